"""The page about several queue runs: schedulers side by side, the best marked, and who wins by how much."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.core.errors import TwinError
from ingest.core.units import NS_PER_S
from replay.log.run_log import RunReader
from replay.logqueue.schedulers import ComparedQueue, ComparedQueues, compare
from replay.metrics.formatting import duration
from replay.report.answer import Card
from replay.report.drawing.formatting import NONE, percent, plain, time_unit
from replay.report.drawing.plot import variable
from replay.report.drawing.section import Section, chart_section, document, section
from replay.report.queue_page import mean_waits_by_size, over_time
from replay.store import run_index

SHARES = ("utilisation", "unfair_jobs", "deadlines_met", "backfilled", "fragmentation", "availability",
          "moved_jobs", "spanning_jobs")  # fmt: skip
NAMES = {
    "jobs": "jobs",
    "avg_wait_s": "mean wait",
    "p95_wait_s": "95 % of the jobs wait less",
    "max_wait_s": "longest wait",
    "avg_jct_s": "mean time from submission to end",
    "p95_jct_s": "95 % of the jobs end within",
    "avg_bounded_slowdown": "mean bounded slowdown (10 s)",
    "p95_bounded_slowdown": "its 95th percentile",
    "avg_bounded_slowdown_60s": "mean bounded slowdown (60 s)",
    "p95_bounded_slowdown_60s": "its 95th percentile (60 s)",
    "makespan_s": "first submission to last end",
    "utilisation": "utilisation",
    "jain_users": "Jain's index of the users' slowdowns",
    "worst_finish_time_fairness": "worst finish-time fairness",
    "unfair_jobs": "jobs worse off than on a share of their own",
    "deadlines_met": "deadlines met",
    "backfilled": "jobs that overtook the head of the queue",
    "fragmentation": "GPUs free but of no use, mean",
    "nodes_per_gang": "nodes of a job of several GPUs",
    "racks_per_gang": "racks of a job on several nodes",
    "restarts": "runs that faults ended",
    "most_restarts": "most of them of one job",
    "lost_gpu_s": "GPU time lost to faults",
    "availability": "GPU time on nodes that are not out",
    "avg_bounded_slowdown_recorded": "mean bounded slowdown over the log's run time",
    "egress_usd": "egress, USD",
    "moved_gb": "data moved between sites, GB",
    "moved_jobs": "jobs whose data were moved",
    "spanning_jobs": "jobs over several sites",
    "stretch": "time held over the log's run time",
}
"""Key figure of a queue run -> its name on the page."""
SUMMARY = ("avg_wait_s", "p95_wait_s", "avg_bounded_slowdown", "makespan_s", "utilisation", "jain_users",
           "fragmentation", "egress_usd")  # fmt: skip
"""Figures in the table of the answer, as far as the runs have them."""


def shown(name: str, value: Any) -> str:
    """Returns a key figure of a queue run as the page writes it."""
    if value is None:
        return NONE
    if name in SHARES:
        return percent(value)
    if name.endswith("_s") and name in NAMES:
        return duration(value)
    return f"{value:,}" if isinstance(value, int) else plain(value)


def render(store: Path, run_ids: Sequence[str]) -> str:
    """Returns the page as one HTML document, the schedulers by their mean wait."""
    found = compare(store, run_ids)
    parts = (
        _head(found),
        answer(found),
        _over_time(found),
        _by_size(found),
        figures(found),
        _checks(store, found),
    )
    return document(f"{len(run_ids)} schedulers side by side", parts, None)


def beside_parent(store: Path, run_id: str) -> tuple[Section, ...]:
    """Returns the comparison of a what-if of a queue with its parent; nothing for another run, or where the
    parent is not in the store any more."""
    branch = RunReader(run_index.folder(store, run_id)).header().get("branch")
    if branch is None:
        return ()
    try:
        found = compare(store, [str(branch["run"]), run_id])
    except TwinError:
        return ()
    return answer(found, "Compared with its parent"), figures(found, "Key figures of both")


def _head(found: ComparedQueues) -> Section:
    runs = [
        (one.run.run_id, one.label, f"{len(one.run.schedule.jobs):,} jobs of {one.run.choices.log}",
         f"{one.run.schedule.processors:,} {one.run.unit}", one.run.choices.prediction, one.run.choices.rules)
        for one in found.runs
    ]  # fmt: skip
    first = found.runs[0].run
    span_s = max(int(one.run.schedule.end_ns.max()) for one in found.runs) / NS_PER_S
    scale, unit = time_unit(span_s)
    return section(
        "several_queues_head", runs=runs, one_workload=found.one_workload,
        heading=f"{len(runs)} schedulers on {first.choices.log}" if found.one_workload
        else f"{len(runs)} queue runs side by side",
        nodes="" if first.nodes is None else first.nodes.cluster.describe(),
        length=f"{span_s / scale:.3g} {unit}", note=first.header.world["note"],
    )  # fmt: skip


def answer(found: ComparedQueues, title: str = "The answer") -> Section:
    """The sentence, a card for each of the first figures, and a row a scheduler, the best marked."""
    names = [name for name in SUMMARY if name in found.names]
    rows = [
        (one.label, [_marked(found, place, name) for name in names],
         NONE if not place or not found.one_workload else _more(one, found.runs[0]))
        for place, one in enumerate(found.runs)
    ]  # fmt: skip
    cards = [_card(found, name) for name in names[:4]] if found.one_workload else []
    return section(
        "several_queues_answer", title, sentence=found.verdict, rows=rows, cards=cards,
        titles=("scheduler", *(NAMES.get(name, name) for name in names), "mean wait over the first's"),
    )  # fmt: skip


def _marked(found: ComparedQueues, place: int, name: str) -> tuple[str, bool]:
    """A figure of the run at `place`, and whether it is the best."""
    return shown(name, found.runs[place].figures.get(name)), place in found.best(name)


def _card(found: ComparedQueues, name: str) -> Card:
    """The best value of a figure and whose it is."""
    best = sorted(found.best(name))
    if not best:
        return Card(shown(name, found.runs[0].figures.get(name)), NAMES[name], "the same under all")
    others = [one.figures[name] for place, one in enumerate(found.runs) if place not in best]
    text = f"best: {', '.join(found.runs[place].label for place in best)}; others {shown(name, min(others))}"
    text += f" to {shown(name, max(others))}" if len(set(others)) > 1 else ""
    return Card(shown(name, found.runs[best[0]].figures[name]), NAMES[name], text, css="good")


def _more(one: ComparedQueue, first: ComparedQueue) -> str:
    """How many times as long a job waits as under the first scheduler."""
    return f"{one.wait_s / first.wait_s:,.3g} ×" if first.wait_s else NONE


def _over_time(found: ComparedQueues) -> Section:
    runs = [(one.label, one.run) for one in found.runs]
    colours = [(label, variable(k)) for k, (label, _) in enumerate(runs)]
    return chart_section("Over time", over_time(runs), "pair", colours=colours)


def _by_size(found: ComparedQueues) -> Section | None:
    """Mean waits by the size of the jobs, a column each; None for runs of different jobs."""
    if not found.one_workload:
        return None
    columns = [mean_waits_by_size(one.run) for one in found.runs]
    sizes = list(columns[0])
    rows = [(size, *(duration(column[size]) for column in columns)) for size in sizes]
    titles = (found.runs[0].run.unit, *(one.label for one in found.runs))
    return section("queue_waits", "Mean wait by size", intro="Mean wait of the jobs of each size.",
                   tables=((titles, rows),))  # fmt: skip


def figures(found: ComparedQueues, title: str = "Key figures") -> Section:
    """Every key figure, a column each, the best marked."""
    rows = [
        (NAMES.get(name, name), [_marked(found, place, name) for place in range(len(found.runs))])
        for name in found.names
    ]
    return section("several_queues_figures", title, rows=rows,
                   titles=("figure", *(one.label for one in found.runs)))  # fmt: skip


def _checks(store: Path, found: ComparedQueues) -> Section:
    rows = [
        (one.label, one.run.run_id, RunReader(run_index.folder(store, one.run.run_id)).chain_head())
        for one in found.runs
    ]
    return section("several_queues_checks", "How to check this", rows=rows)
