"""The page about a queue run: queue and used processors over time, waits by user and by size."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from ingest.core.errors import TwinError
from ingest.core.units import NS_PER_S
from replay.log.run_log import RunReader
from replay.logqueue.logged_run import LoggedQueue, load, used_processors
from replay.report.answer import Card
from replay.report.drawing.formatting import percent, plain, time_unit
from replay.report.drawing.plot import LiveChart, variable
from replay.report.drawing.section import Section, chart_section, document, section
from replay.store import run_index
from replay.store.run_header import QUEUE
from twin.nodes.metrics import (
    availability,
    fragmentation_over_time,
    lost_gpu_s,
    mean_fragmentation,
    node_use,
)
from twin.nodes.on_nodes import NodeSchedule
from twin.queue.jobs import UNKNOWN, Float, Int
from twin.queue.metrics import bounded_slowdowns, figures, waits_s
from twin.queue.simulation import QueueSchedule

POINTS = 800
"""Points of a line; a chart is not finer."""
USERS = 15
WAITS = ("jobs", "mean wait, h", "95 % wait less, h", "bounded slowdown", "processor h")


def render(store: Path, run_id: str, beside_parent: Sequence[Section] = ()) -> str:
    """Returns the page as one HTML document; of a what-if with its comparison with the run before it."""
    run = load(store, run_id)
    reader = RunReader(run_index.folder(store, run_id))
    heading = _heading(store, run)
    parts = (_head(run, heading), *beside_parent, _answer(run), _over_time(run), _nodes(run), _by_size(run),
             _by_user(run),             _verification(run, reader))  # fmt: skip
    title = run_id if run.header.branch is None else f"{heading} ({run_id})"
    return document(title, parts, None)


def _heading(store: Path, run: LoggedQueue) -> str:
    """The title: scenario and scheduler; of a what-if also the scheduler that this one is in place of."""
    name, scheduler = run.header.world["scenario"]["name"], run.choices.policy
    if run.header.branch is None:
        return f"{name} under {scheduler}"
    with suppress(TwinError):  # the parent may have been removed
        parent = RunReader(run_index.folder(store, str(run.header.branch["run"]))).header()
        scheduler = f"{scheduler} in place of {parent['scenario'][QUEUE]['policy']}"
    return f"What if in {name}: scheduler {scheduler}"


def _head(run: LoggedQueue, heading: str) -> Section:
    done, chosen = run.schedule, run.choices
    span_s = int(done.end_ns.max() - done.jobs.submit_ns.min()) / NS_PER_S
    scale, unit = time_unit(span_s)
    return section(
        "queue_head", heading=heading, parent=(run.header.branch or {}).get("run", ""),
        policy=chosen.policy,
        jobs=f"{len(done.jobs):,}", log=chosen.log, processors=f"{done.processors:,}",
        length=f"{span_s / scale:.3g} {unit}", prediction=chosen.prediction, rules=chosen.rules,
        left_out=len(run.left_out), run_id=run.run_id, unit=run.unit, placement=chosen.placement,
        nodes="" if run.nodes is None else run.nodes.cluster.describe(), note=run.header.world["note"],
        followers=0 if run.moved is None else int(run.moved.dependencies.waits.sum()),
    )  # fmt: skip


def _answer(run: LoggedQueue) -> Section:
    found = figures(run.schedule)
    fair = "–" if found.jain_users is None else plain(found.jain_users, 3)
    shown: tuple[tuple[str, str], ...] = (
        (f"{plain(found.p95_wait_s / 3600)} h", "95 % of the jobs wait less"),
        (plain(found.avg_bounded_slowdown), "mean bounded slowdown (10 s)"),
        (fair, "Jain's index of the users' bounded slowdowns"),
        (percent(found.backfilled), "of the jobs overtook the head of the queue"),
    )
    if run.nodes is not None:
        lost = percent(mean_fragmentation(run.nodes))
        shown += ((lost, "of the GPUs are free but of no use to the jobs of the log, mean over time"),)
        shown += _of_outages(run.nodes)
    used, mean_h = percent(found.utilisation), plain(found.avg_wait_s / 3600)
    sentence = f"A job waits {mean_h} h in the mean, and {used} of the processor-time is used."
    return section("answer", "The answer", sentence=sentence, cards=[Card(*one) for one in shown])


def _of_outages(done: NodeSchedule) -> tuple[tuple[str, str], ...]:
    """What outages cost, if there were any."""
    if not len(done.outages):
        return ()
    count = len(done.broken)
    runs = "1 run that a fault of a node" if count == 1 else f"{count:,} runs that faults of nodes"
    ended = f"GPU hours of work are lost in {runs} ended"
    up = percent(availability(done)), "of the GPU time is on nodes that are not out"
    return (plain(lost_gpu_s(done) / 3600), ended), up


def _over_time(run: LoggedQueue) -> Section:
    """Jobs that wait, and processors in use."""
    return chart_section("Over time", over_time([("", run)]), "pair")


def over_time(runs: Sequence[tuple[str, LoggedQueue]]) -> list[LiveChart]:
    """Returns two charts: jobs that wait, and processors in use; a line for each (name, run), in a colour of
    its own where there are several."""
    begin = min(int(run.schedule.jobs.submit_ns.min()) for _, run in runs)
    end = max(int(run.schedule.end_ns.max()) for _, run in runs)
    marks, right = np.linspace(begin, end, POINTS + 1), (end - begin) / NS_PER_S
    seconds = ((marks[:-1] - begin) / NS_PER_S).tolist()
    lengths = [_highest(*_waiting(run.runs), marks) for _, run in runs]
    top = max(1.0, *(float(length.max()) for length in lengths)) * 1.05
    unit, processors = runs[0][1].unit, max(run.schedule.processors for _, run in runs)
    queue = LiveChart(right, top, "jobs", "Queue", ": jobs that wait")
    busy = LiveChart(right, processors * 1.05, unit, "In use", ": mean of a stretch")
    for k, (name, run) in enumerate(runs):
        colour = variable(k) if len(runs) > 1 else "strong"
        held = _mean(*used_processors(run.runs), marks).tolist()
        waits = list(zip(seconds, lengths[k].tolist(), strict=True))
        queue.line(waits, name or "jobs that wait", colour, step=True)
        busy.line(list(zip(seconds, held, strict=True)), name or f"{unit} in use", colour, step=True)
    return [queue, busy]


def _nodes(run: LoggedQueue) -> Section | None:
    """Nodes by use, and fragmentation; None for a run on no nodes."""
    return None if run.nodes is None else _nodes_over_time(run.nodes)


def _nodes_over_time(done: NodeSchedule) -> Section:
    begin, end = int(done.jobs.submit_ns.min()), int(done.end_ns.max())
    marks, right, total = np.linspace(begin, end, POINTS + 1), (end - begin) / NS_PER_S, len(done.cluster)
    seconds = ((marks[:-1] - begin) / NS_PER_S).tolist()
    times, counts = node_use(done)
    times, counts = np.append(begin, times), np.vstack(((total, 0, 0, 0), counts))
    chart = LiveChart(right, total * 1.05, "nodes", "Nodes", ": mean of a stretch")
    states = ("idle", "partly used", "full", "out")[: 4 if len(done.outages) else 3]
    chart.legend = [(name, variable(k)) for k, name in enumerate(states)]
    for k, (name, colour) in enumerate(chart.legend):
        mean = _mean(times, counts[:, k], marks).tolist()
        chart.line(list(zip(seconds, mean, strict=True)), name, colour, step=True)
    times, share = fragmentation_over_time(done)
    lost = (100 * _mean(times, share, marks)).tolist()
    most = max(1.0, max(lost)) * 1.05
    free = LiveChart(right, most, "% of all GPUs", "Fragmentation", ": mean of a stretch")
    free.line(list(zip(seconds, lost, strict=True)), "free but of no use", step=True)
    intro = (
        "A node is full when all its GPUs are given away. Fragmentation: GPUs that are free but of no use to "
        "the jobs of the log."
    )
    if len(done.outages):
        intro += " A node that drains is out, and those that are out count as free in the fragmentation."
    return chart_section("Nodes over time", [chart, free], "pair", intro=intro)


def _waiting(done: QueueSchedule) -> tuple[Int, Int]:
    """Returns the times at which the number of waiting jobs changes, and that number from then on."""
    times = np.concatenate((done.jobs.submit_ns, done.start_ns))
    steps = np.repeat((1, -1), len(done.jobs))
    changed, at = np.unique(times, return_inverse=True)
    net = np.zeros(len(changed), np.int64)
    np.add.at(net, at, steps)
    return changed, np.cumsum(net)


def _highest(times: Int, values: Int, marks: Float) -> Float:
    """Returns the most of a step function in each stretch between marks."""
    first = np.searchsorted(times, marks[:-1], side="right")
    held = np.where(first > 0, values[np.maximum(first - 1, 0)], 0)
    last = np.searchsorted(times, marks[1:], side="right")
    inside = [values[a:b].max(initial=0) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    return np.asarray(np.maximum(held, inside), np.float64)


def _mean(times: Int, values: Int | Float, marks: Float) -> Float:
    """Returns the mean of a step function in each stretch between marks."""
    lengths = np.diff(times, append=times[-1:])
    area = np.concatenate(([0.0], np.cumsum(values * lengths)))
    at = np.searchsorted(times, marks, side="right")
    since = np.where(at > 0, marks - times[np.maximum(at - 1, 0)], 0.0)
    held = np.where(at > 0, values[np.maximum(at - 1, 0)], 0)
    until = area[np.maximum(at - 1, 0)] + held * since
    return np.asarray(np.diff(until) / np.diff(marks))


def _by_size(run: LoggedQueue) -> Section:
    """Waits by processors and by run time, in powers of two and of four."""
    jobs, size = run.schedule.jobs, _sizes(run)
    hours = np.maximum(jobs.run_ns / (3600 * NS_PER_S), 1 / 64)
    length = np.floor(np.log2(hours) / 2).astype(np.int64)
    tables = (
        (("processors", *WAITS), _rows(run.schedule, size, _range)),
        (("run time, h", *WAITS), _rows(run.schedule, length, lambda k: f"{4.0**k:g} to {4.0 ** (k + 1):g}")),
    )
    return section(
        "queue_waits", "Waits by size", intro="Shorter runs count to the first row.", tables=tables
    )


def _sizes(run: LoggedQueue) -> Int:
    """Returns the power of two of the processors of each job (n,)."""
    return np.floor(np.log2(np.maximum(run.schedule.jobs.processors, 1))).astype(np.int64)


def mean_waits_by_size(run: LoggedQueue) -> dict[str, float]:
    """Returns the mean wait of the jobs of each range of sizes, seconds, the smallest first."""
    size, wait = _sizes(run), waits_s(run.schedule)
    return {_range(power): float(wait[size == power].mean()) for power in np.unique(size).tolist()}


def _range(power: int) -> str:
    return f"{2**power:,} to {2 ** (power + 1) - 1:,}" if power else "1"


def _by_user(run: LoggedQueue) -> Section | None:
    """Waits of the users with the most processor-time; None where no user is known."""
    jobs = run.schedule.jobs
    if (jobs.user == UNKNOWN).all():
        return None
    rows = _rows(run.schedule, jobs.user, lambda k: run.names.user(k) or "unknown")
    rows.sort(key=lambda row: -float(row[-1].replace(",", "")))
    tables = ((("user", *WAITS), rows[:USERS]),)
    intro = f"{len(rows):,} users; those with the most processor-time."
    return section("queue_waits", "Waits by user", intro=intro, tables=tables)


def _rows(done: QueueSchedule, group: Int, name: Callable[[int], str]) -> list[tuple[str, ...]]:
    """Returns a row for each group of jobs."""
    wait, slow = waits_s(done) / 3600, bounded_slowdowns(done)
    hours = done.jobs.run_ns / (3600 * NS_PER_S) * done.jobs.processors
    found: list[tuple[str, ...]] = []
    for one in np.unique(group).tolist():
        mine = group == one
        found.append((
            name(one), f"{int(mine.sum()):,}", plain(float(wait[mine].mean())),
            plain(float(np.percentile(wait[mine], 95))), plain(float(slow[mine].mean())),
            f"{hours[mine].sum():,.0f}",
        ))  # fmt: skip
    return found


def _verification(run: LoggedQueue, reader: RunReader) -> Section:
    header = run.header
    facts = [
        ("digest of the events", reader.digest()),
        ("chain head", reader.chain_head()),
        ("configuration", header.config_digest),
        ("code", " ".join(map(str, header.code.values()))),
        ("jobs", header.world["traces"]["source"]),
    ]
    return section("verification", "How to check this", facts=facts, note="none", run_id=run.run_id)
