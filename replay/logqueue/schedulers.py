"""Queue runs compared: figures side by side, sorted by mean wait, and which scheduler wins by how much."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.progress import SILENT, Progress
from replay.log.events import canonical
from replay.log.run_log import RunReader
from replay.logqueue import run_events
from replay.logqueue.logged_nodes import NODES, OUTAGES
from replay.logqueue.logged_run import LoggedQueue, load
from replay.logqueue.logged_sites import SITES
from replay.logqueue.windowed import WINDOWS, Ranged, Windowed, saved_wait
from replay.metrics.formatting import duration
from replay.store import run_index
from replay.store.run_header import from_payload, unfinished
from twin.queue.simulation import QueueSchedule

Json = dict[str, Any]
LESS_IS_BETTER = (
    "avg_wait_s", "p95_wait_s", "max_wait_s", "avg_jct_s", "p95_jct_s", "avg_bounded_slowdown",
    "p95_bounded_slowdown", "avg_bounded_slowdown_60s", "p95_bounded_slowdown_60s", "makespan_s",
    "worst_finish_time_fairness", "unfair_jobs", "fragmentation", "nodes_per_gang", "racks_per_gang",
    "restarts", "lost_gpu_s", "avg_bounded_slowdown_recorded", "egress_usd", "moved_gb", "stretch",
)  # fmt: skip
MORE_IS_BETTER = ("utilisation", "jain_users", "deadlines_met", "availability")


@dataclass(frozen=True, eq=False)
class ComparedQueue:
    """One queue run: its label among the others, and its figures by name."""

    run: LoggedQueue
    label: str
    figures: Json

    @property
    def wait_s(self) -> float:
        """Mean wait of a job."""
        return float(self.figures["avg_wait_s"])

    @cached_property
    def windowed(self) -> Windowed | None:
        """The schedule in windows; None where the log has too few jobs for an interval."""
        done = self.run.logged
        pool = done if isinstance(done, QueueSchedule) else done.as_pool
        return Windowed(pool) if len(pool.jobs) >= 5 * WINDOWS else None


@dataclass(frozen=True, eq=False)
class ComparedQueues:
    """Queue runs by mean wait, the shortest first. `one_workload`: they have the same jobs and machine, so
    that the schedulers alone differ."""

    runs: tuple[ComparedQueue, ...]
    one_workload: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Figures that any of the runs has, in their order; those of single sites are left out."""
        found = dict.fromkeys(
            name
            for one in self.runs
            for name, value in one.figures.items()
            if value is not None and not isinstance(value, dict)
        )
        return tuple(found)

    def best(self, name: str) -> frozenset[int]:
        """Returns the places of the runs with the best value of a figure; none where all are equal, where no
        value is better than another, and for runs of several workloads."""
        values = [one.figures.get(name) for one in self.runs]
        known = [value for value in values if value is not None]
        if not self.one_workload or len(set(known)) < 2 or name not in LESS_IS_BETTER + MORE_IS_BETTER:
            return frozenset()
        wanted = max(known) if name in MORE_IS_BETTER else min(known)
        return frozenset(place for place, value in enumerate(values) if value == wanted)

    def saved(self, place: int) -> Ranged | None:
        """Returns the share of the mean wait of the run at `place` that the first run saves, with a 95 %
        interval over windows of the jobs; None where there is none."""
        mine, other = self.runs[0].windowed, self.runs[place].windowed
        if not self.one_workload or mine is None or other is None:
            return None
        return saved_wait(mine, other)

    @property
    def verdict(self) -> str:
        """One or two sentences: which scheduler wins, by how much, and whether the log tells them apart."""
        if not self.one_workload:
            return (
                "The runs have different jobs or machines: their figures are shown side by side, and no "
                "scheduler wins."
            )
        first, second, last = self.runs[0], self.runs[1], self.runs[-1]
        if first.wait_s == second.wait_s:
            equal = [one.label for one in self.runs if one.wait_s == first.wait_s]
            text = f"{_listed(equal)} have the same mean wait, {duration(first.wait_s)}."
            return text if len(equal) == len(self.runs) else f"{text} {_slowest(first, last)}"
        less = f"{_less(first, second)} than under {second.label} ({duration(second.wait_s)})"
        saved, told_apart = self.saved(1), True
        if saved is not None:
            less += f"; 95 % interval {100 * saved.low:+.1f} to {100 * saved.high:+.1f} %"
            told_apart = saved.low > 0
        if told_apart:
            text = f"{first.label} wins: a job waits {duration(first.wait_s)} in the mean, {less}."
        else:
            text = (
                f"{first.label} has the shortest mean wait, {duration(first.wait_s)}, {less}, so that this "
                "log does not tell the two apart."
            )
        if len(self.runs) > 2:
            text += f" {_slowest(first, last)}"
        return text + self._by_slowdown

    @property
    def _by_slowdown(self) -> str:
        """Who wins by bounded slowdown, where it is another."""
        values = [one.figures["avg_bounded_slowdown"] for one in self.runs]
        best = values.index(min(values))
        if not best or values[best] == values[0]:
            return ""
        return (
            f" By mean bounded slowdown {self.runs[best].label} is best: {values[best]:,.4g} against "
            f"{values[0]:,.4g}."
        )

    def to_json(self) -> Json:
        """Returns the object of `twin compare --json` for queue runs."""
        rows = []
        for place, one in enumerate(self.runs):
            found = self.saved(place) if place else None
            rows.append({
                "run": one.run.run_id, "label": one.label, "scheduler": one.run.choices.policy,
                "placement": one.run.choices.placement, "figures": one.figures,
                "wait_saved_by_first": None if found is None else found.to_json(),
            })  # fmt: skip
        return {
            "schema": "twin.queues_compared/1", "one_workload": self.one_workload, "runs": rows,
            "verdict": self.verdict,
        }  # fmt: skip


def _less(one: ComparedQueue, other: ComparedQueue) -> str:
    return f"{100 * (1 - one.wait_s / other.wait_s):.1f} % less"


def _slowest(first: ComparedQueue, last: ComparedQueue) -> str:
    saved = _less(first, last)
    return f"{last.label} has the longest, {duration(last.wait_s)}: under {first.label} it is {saved}."


def _listed(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]


def compare(store: Path, run_ids: Sequence[str], progress: Progress = SILENT) -> ComparedQueues:
    """Compares finished queue runs.

    Raises:
        UsageError: fewer than two, one twice, or one is no queue run. NotFoundError: one is not finished.
        DamageError: a log is not what was written.
    """
    if len(set(run_ids)) < max(2, len(run_ids)):
        raise UsageError("take two or more different runs; `twin runs` lists them")
    progress.start(len(run_ids), "runs", "runs")
    loaded = []
    for run_id in run_ids:
        reader = RunReader(run_index.folder(store, run_id))
        if not reader.finished:
            raise NotFoundError(unfinished(from_payload(reader.header()), run_id))
        loaded.append(load(store, run_id))
        progress.advance(1, run_id)
    labels = _labels(loaded)
    found = [
        ComparedQueue(run, label, run_events.figures_of(run.logged))
        for run, label in zip(loaded, labels, strict=True)
    ]
    found.sort(key=lambda one: (one.wait_s, one.figures["avg_bounded_slowdown"]))
    return ComparedQueues(tuple(found), len({_workload(run) for run in loaded}) == 1)


def _workload(run: LoggedQueue) -> str:
    """Text that is equal for runs with the same jobs and machine."""
    scenario = run.header.world["scenario"]
    nodes = dict(scenario.get(NODES, {}))
    outages = dict(nodes.pop(OUTAGES, {}))
    if outages.get("drawn"):  # by one law, for as long as the jobs of each schedule run
        del outages["rows"]
    machine = [nodes, outages, scenario.get(SITES), run.schedule.processors]
    return canonical([run.header.world["traces"], len(run.schedule.jobs), machine])


def _labels(runs: Sequence[LoggedQueue]) -> list[str]:
    """Names of the runs: the scheduler, with its placement, prediction, rules or id where it needs them."""
    parts: tuple[Any, ...] = (
        lambda run: run.choices.placement, lambda run: run.choices.prediction, lambda run: run.choices.rules,
        lambda run: run.choices.log,
    )  # fmt: skip
    labels = [run.choices.policy for run in runs]
    for part in parts:
        counts = Counter(labels)
        if max(counts.values()) == 1:
            return labels
        differs = len({part(run) for run in runs}) > 1
        labels = [
            f"{label}, {part(run)}" if counts[label] > 1 and differs and part(run) else label
            for label, run in zip(labels, runs, strict=True)
        ]
    counts = Counter(labels)
    return [run.run_id if counts[label] > 1 else label for label, run in zip(labels, runs, strict=True)]
