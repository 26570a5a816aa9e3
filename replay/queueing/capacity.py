"""The least machine on which a scheduler meets a target: `twin queue LOG --solve gpus --target p95_wait=1h`.

Every size is played by the simulator itself. Between the largest job, below which something would be left
out, and the peak of what is wanted at once, where nobody waits, the size is found by bisection. That takes
for granted that more GPUs do not make a figure worse, which schedulers do not promise (Graham, "Bounds on
multiprocessing timing anomalies", SIAM J. Applied Mathematics 1969): sizes below the answer are played too,
and one that meets the target is taken, and told.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.config import suggestion
from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from ingest.readers import job_logs
from ingest.readers.job_logs import LakeJobs
from policy.placement.registry import placement
from policy.queue.registry import recipe
from replay.logqueue import on_nodes
from replay.logqueue.comparison import read_to_json
from replay.logqueue.logged_run import used_processors
from twin.nodes.on_nodes import simulate_on_nodes
from twin.nodes.outage_plan import OutagePlan
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands, possible
from twin.queue.jobs import Prediction, QueueJobs
from twin.queue.metrics import QueueFigures, figures
from twin.queue.recipe import QueueRecipe
from twin.queue.rules import QueueRules
from twin.queue.simulation import QueueSchedule, simulate
from twin.workload.selection import LogJobs, select

TIMES = {name: f"{name}_s" for name in ("avg_wait", "p95_wait", "max_wait", "avg_jct", "p95_jct")}
PLAIN = ("avg_bounded_slowdown", "p95_bounded_slowdown")
"""Figures that a target names: times with their unit, and numbers."""
UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_TARGET = re.compile(r"\s*(\w+)\s*=\s*([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)\s*")
CHECKED = 8
"""Sizes below the answer that are played: so many next to it, and so many over the rest."""


@dataclass(frozen=True, slots=True)
class CapacityTarget:
    """A figure of a schedule and what it may be at most: seconds, or a number."""

    figure: str
    most: float

    @classmethod
    def parse(cls, text: str) -> "CapacityTarget":
        """Returns the target of `p95_wait=1h` or `avg_bounded_slowdown=5`.

        Raises:
            UsageError: it is none.
        """
        found = _TARGET.fullmatch(text)
        known = (*TIMES, *PLAIN)
        if found is None:
            raise UsageError(f"--target {text!r}: write FIGURE=VALUE, as in p95_wait=1h; {', '.join(known)}")
        name, value, unit = found.groups()
        if name not in known:
            raise UsageError(f"--target: no figure is called {name!r}{suggestion(name, known)}")
        if unit not in UNITS_S or (unit and name in PLAIN):
            wants = "a number without a unit" if name in PLAIN else "a time in s, min, h or d"
            raise UsageError(f"--target {text!r}: {name} takes {wants}")
        try:
            return cls(TIMES.get(name, name), float(value) * UNITS_S[unit])
        except ValueError:
            raise UsageError(f"--target {text!r}: {value} is no number") from None

    def met(self, found: QueueFigures) -> bool:
        """Returns True if the figures meet the target."""
        return bool(getattr(found, self.figure) <= self.most)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The least size for one scheduler, its figures, the sizes played with what they gave, and whether a
    smaller size met the target than one that missed it. `nodes`: of the first group; None on a pool."""

    policy: str
    gpus: int
    nodes: int | None
    figures: QueueFigures
    tried: tuple[tuple[int, float, bool], ...]
    monotone: bool

    def to_json(self, figure: str) -> dict[str, Any]:
        """Returns the fields by name."""
        return {
            "policy": self.policy, "gpus": self.gpus, "nodes": self.nodes,
            figure: getattr(self.figures, figure),
            "monotone": self.monotone, "figures": self.figures.to_json(),
            "tried": [{"gpus": size, figure: value, "met": met} for size, value, met in self.tried],
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class CapacityAnswer:
    """The least machine for each scheduler."""

    log: LogJobs
    target: CapacityTarget
    least: int
    answers: tuple[Capacity, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin queue --solve gpus --json`."""
        return {
            "schema": "twin.queue_capacity/1", "log": self.log.name, "jobs": len(self.log.jobs),
            "target": {"figure": self.target.figure, "at_most": self.target.most}, "largest_job": self.least,
            "results": [one.to_json(self.target.figure) for one in self.answers], **read_to_json(self.log),
        }  # fmt: skip


Play = Callable[[QueueRecipe, int], QueueFigures]


def solve(
    source: Path | LakeJobs, target: CapacityTarget, policies: Sequence[str] = (), *,
    processors: int | None = None, nodes: str | None = None, place: str | None = None,
    prediction: Prediction = "estimate", rules: QueueRules, outages: OutagePlan = on_nodes.NEVER_OUT,
    progress: Progress = SILENT,
) -> CapacityAnswer:  # fmt: skip
    """Returns the least pool, or the least number of nodes of the first group of `nodes`, for each scheduler.

    Jobs are those that the log's own machine (or `processors`) can run. Faults are drawn for each size: a
    node of it has the same ones at every size, as far as its number is the same.

    Raises:
        InputError: the log cannot be read. UsageError: an unknown scheduler, no size is enough, outages of a
            file, which are those of nodes that are given, or jobs that faults let never end.
    """
    if outages.file is not None:
        raise UsageError(
            "--outages: a file names the nodes of one machine, and --solve tries many; say --mtbf-h"
        )
    recipes = [recipe(name) for name in dict.fromkeys(policies or ("easy",))]
    read = job_logs.read(source)
    log = select(read, rules, processors or read.processors or 10**9)
    cut = log.jobs.cut_at_estimate() if rules.cuts else log.jobs
    least, most = int(cut.processors.max()), _peak(cut)
    grown: Callable[[int], int] | None = None
    if nodes is None:
        play = _on_pool(log.jobs, prediction, rules)
    else:
        play, grown, least, most = _on_nodes(log.jobs, nodes, place, prediction, rules, outages, least, most)
    log = replace(log, notes=(*log.notes, *outages.notes))
    progress.start(None, "sizes", "sizes")
    answers = tuple(_least(one, target, play, least, most, grown, progress) for one in recipes)
    return CapacityAnswer(log, target, int(cut.processors.max()), answers)


def _peak(jobs: QueueJobs) -> int:
    """Processors in use at most if every job started when it was submitted."""
    at_once = QueueSchedule(jobs, 1, jobs.submit_ns, np.zeros(len(jobs), np.bool_))
    return int(used_processors(at_once)[1].max())


def _on_pool(jobs: QueueJobs, prediction: Prediction, rules: QueueRules) -> Play:
    return lambda one, size: figures(simulate(jobs, size, one, prediction=prediction, rules=rules))


def _on_nodes(
    jobs: QueueJobs, nodes: str, place: str | None, prediction: Prediction, rules: QueueRules,
    outages: OutagePlan, least: int, most: int,
) -> tuple[Play, Callable[[int], int], int, int]:  # fmt: skip
    """How a number of nodes of the first group is played, the GPUs that it makes, and its bounds."""
    given, chosen = NodeCluster.parse(nodes), placement(place or on_nodes.USUAL_PLACEMENT)
    group = 1
    while group < len(given) and given.gpus[group] == given.gpus[0] and given.model[group] == given.model[0]:
        group += 1
    each = int(given.gpus[0])
    rest = given.gpus[group:].tolist()
    others = [given.models[one] for one in given.model[group:]]

    def cluster(count: int) -> NodeCluster:
        return NodeCluster.of_nodes([each] * count + rest, [given.models[0]] * count + others)

    def play(one: QueueRecipe, count: int) -> QueueFigures:
        made = cluster(count)
        demands = Demands.of_jobs(made, jobs.processors)
        played = partial(
            simulate_on_nodes, jobs, demands, made, one, chosen, prediction=prediction, rules=rules
        )
        return figures(outages.play(made, jobs, played).as_pool)

    def runs_all(count: int) -> bool:
        made = cluster(count)
        wants = Demands.of_jobs(made, np.unique(jobs.processors)).wants
        return bool(possible(made, wants, chosen.gang).all())

    low = max(1, -(-(least - sum(rest)) // each))
    while not runs_all(low):
        low += 1
        if low * each > 2 * least + each:
            raise UsageError(f"--nodes {nodes!r}: a job of {least:,} GPUs fits on no number of such nodes")
    # every job alone on nodes of its own: more than that nobody can ask for
    return play, lambda count: count * each + sum(rest), low, max(low, len(jobs) * -(-least // each))


def _least(
    one: QueueRecipe, target: CapacityTarget, play: Play, least: int, most: int,
    grown: Callable[[int], int] | None, progress: Progress,
) -> Capacity:  # fmt: skip
    """Finds the least size between two, and plays some below it."""
    known: dict[int, QueueFigures] = {}

    def met(size: int) -> bool:
        if size not in known:
            known[size] = play(one, size)
            progress.advance(1, f"{one.name}, {size:,}")
        return target.met(known[size])

    low = high = least
    while not met(high):
        if high >= most:
            value = getattr(known[high], target.figure)
            raise UsageError(
                f"--target: no machine is enough, {one.name} has {target.figure} {value:,.4g} even where "
                "nobody waits; take a larger target"
            )
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if met(middle) else (middle, high)
    good, found_less = high, True
    while found_less:
        spread = np.linspace(least, good, CHECKED + 1).astype(int).tolist()
        for size in sorted({*range(max(least, good - CHECKED), good), *spread} - {good}):
            met(size)
        less = min(size for size in known if target.met(known[size]))
        good, found_less = less, less < good
    monotone = all(target.met(found) for size, found in known.items() if size > good)
    tried = tuple(
        (size if grown is None else grown(size), float(getattr(found, target.figure)), target.met(found))
        for size, found in sorted(known.items())
    )
    if grown is None:
        return Capacity(one.name, good, None, known[good], tried, monotone)
    return Capacity(one.name, grown(good), good, known[good], tried, monotone)
