"""Schedulers on the queues of scenarios, over loads and seeds: figures with intervals, paired world by world.

With several seeds (they draw thinning and synthetic arrivals) intervals are Student's over worlds; with one
they are those of `comparison.py`, over windows of the jobs. Nothing is written: `twin replay` keeps a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from replay.logqueue.comparison import QueueComparison
from replay.logqueue.windowed import Ranged
from replay.metrics.paired_comparison import student
from replay.queueing import scenario_run
from replay.queueing.on_sites import SiteComparison
from replay.queueing.scenario_run import Compared
from twin.queue.metrics import QueueFigures
from twin.settings.job_queue import QueueScenario


@dataclass(frozen=True, slots=True)
class QueueBenchRow:
    """One scheduler in the worlds of one scenario and load; means over worlds, intervals of 95 %, None where
    there are too few jobs and one world. `over_first`: mean bounded slowdown over that of the scheduler named
    first, in the same world."""

    scenario: str
    load: float
    policy: str
    worlds: int
    jobs: float
    avg_wait_s: float
    p95_wait_s: float
    avg_bounded_slowdown: float
    p95_bounded_slowdown: float
    utilisation: float
    wait_interval: Ranged | None
    slowdown_interval: Ranged | None
    over_first: Ranged | None

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name; intervals as [value, low, high]."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {name: one.to_json() if isinstance(one, Ranged) else one for name, one in plain.items()}


@dataclass(frozen=True, slots=True)
class QueueBench:
    """All rows, what was done to the logs, and whether submissions were drawn."""

    rows: tuple[QueueBenchRow, ...]
    notes: tuple[str, ...]
    synthetic: bool

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin bench --json` for queues."""
        return {
            "schema": "twin.queue_bench/1", "synthetic_arrivals": self.synthetic,
            "results": [one.to_json() for one in self.rows], "notes": list(self.notes),
        }  # fmt: skip


def bench(
    store: Path, scenarios: Sequence[QueueScenario], policies: Sequence[str], *, seeds: int = 1,
    loads: Sequence[float] = (), progress: Progress = SILENT,
) -> QueueBench:  # fmt: skip
    """Returns what schedulers make of the queues of scenarios at each load, with so many seeds from theirs.

    Raises:
        NotFoundError: the lake lacks jobs. UsageError: as `scenario_run.replay`; seeds that draw nothing.
    """
    worlds = [(one, load) for one in scenarios for load in (loads or (1.0,))]
    for one in scenarios:
        drawn = one.jobs.thin < 1 or one.jobs.arrivals != "trace"
        drawn |= one.outages is not None and one.outages.mtbf_h is not None
        if seeds > 1 and not drawn:
            raise UsageError(
                f"--seeds: nothing in {one.name} is drawn, every seed gives the same jobs; set `thin` or "
                "`arrivals` in its `jobs`, or leave it out"
            )
    progress.start(len(worlds) * seeds, "queues", "worlds")
    rows, notes, synthetic = list[QueueBenchRow](), dict[str, None](), False
    for scenario, load in worlds:
        found = list[Compared]()
        for seed in range(scenario.seed, scenario.seed + seeds):
            given = scenario_run.changed(scenario, seed=seed, load=load)
            found.append(scenario_run.replay(store, given, policies, keep=False))
            progress.advance(1, f"{scenario.name}, load {load:g}, seed {seed}")
        rows += _rows(scenario.name, load, found)
        notes.update(dict.fromkeys(note for one in found for note in one.log.notes))
        synthetic = synthetic or any(one.synthetic for one in found)
    return QueueBench(tuple(rows), tuple(notes), synthetic)


def _rows(scenario: str, load: float, worlds: list[Compared]) -> list[QueueBenchRow]:
    each = [_named(one) for one in worlds]
    first = next(iter(each[0]))
    return [_row(scenario, load, name, [one[name] for one in each], [one[first] for one in each], worlds)
            for name in each[0]]  # fmt: skip


def _named(one: Compared) -> dict[str, QueueFigures]:
    """Figures of a comparison by scheduler; those of a pool, on nodes and over sites too."""
    if isinstance(one, QueueComparison):
        return dict(one.figures)
    if isinstance(one, SiteComparison):
        return {policy: found.of_pool for policy, found in one.figures.items()}
    return {policy: found.of_pool for (policy, _), found in one.figures.items()}


def _row(
    scenario: str, load: float, name: str, mine: list[QueueFigures], firsts: list[QueueFigures],
    worlds: list[Compared],
) -> QueueBenchRow:  # fmt: skip
    def mean(figure: str) -> float:
        return float(np.mean([getattr(one, figure) for one in mine]))

    wait = slow = over = None
    if len(mine) > 1:
        wait = over_worlds([one.avg_wait_s for one in mine])
        slow = over_worlds([one.avg_bounded_slowdown for one in mine])
        over = over_worlds(
            [a.avg_bounded_slowdown / b.avg_bounded_slowdown for a, b in zip(mine, firsts, strict=True)]
        )
    elif isinstance(worlds[0], QueueComparison) and name in worlds[0].intervals:
        one = worlds[0].intervals[name]
        wait, slow, over = one.wait_s, one.slowdown, one.over_first
    return QueueBenchRow(
        scenario, load, name, len(mine), mean("jobs"), mean("avg_wait_s"), mean("p95_wait_s"),
        mean("avg_bounded_slowdown"), mean("p95_bounded_slowdown"), mean("utilisation"), wait, slow, over,
    )  # fmt: skip


def over_worlds(values: Sequence[float]) -> Ranged:
    """Returns the mean of two or more values with Student's 95 % interval."""
    found = student("", np.array(values))
    return Ranged(found.mean, found.low, found.high)
