"""What-ifs of a queue run: the same jobs on the same machine under another scheduler, as a run of its own."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from replay.logqueue import logged_nodes, run_events
from replay.logqueue.job_changes import AnySchedule
from replay.logqueue.logged_nodes import NODES
from replay.logqueue.logged_run import LoggedQueue, load, played
from replay.logqueue.windowed import WINDOWS, Ranged, Windowed, ratio
from replay.store.run_header import QUEUE
from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.runs import runs_of
from twin.queue.simulation import QueueSchedule

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QueueWhatIf:
    """Two schedules of the same jobs, their figures, how many starts differ and which is the first.

    `slowdown_ratio`: mean bounded slowdown of the other over that of the base, paired by windows of the jobs;
    None where there are too few for an interval."""

    base_run: str
    base_policy: str
    run_id: str
    policy: str
    base: Json
    other: Json
    jobs: int
    starts_differ: int
    first_job: str | None
    first_s: float | None
    slowdown_ratio: Ranged | None

    @property
    def differences(self) -> dict[str, float | None]:
        """Other less base, for every figure; None where one has no value."""
        return {
            name: None if value is None or self.base[name] is None else value - self.base[name]
            for name, value in self.other.items()
            if not isinstance(value, dict)  # shares by site
        }

    def to_json(self) -> Json:
        """Returns the object of `twin replay --run RUN --policy OTHER --json`."""
        found = {name: getattr(self, name) for name in self.__slots__ if name != "slowdown_ratio"}
        found["run"] = found.pop("run_id")
        slow = None if self.slowdown_ratio is None else self.slowdown_ratio.to_json()
        return {
            "schema": "twin.queue_whatif/1", **found, "differences": self.differences, "slowdown_ratio": slow,
        }  # fmt: skip


def what_if(store: Path, run_id: str, policy: str) -> QueueWhatIf:
    """Plays the jobs of a queue run by another scheduler, writes that as a run, and compares the two.

    Raises:
        UsageError: no queue run, an unknown scheduler, or one that cannot be played there.
    """
    run = load(store, run_id)
    if policy == run.choices.policy:
        raise UsageError(f"{run_id} has the scheduler {policy} itself; name another one")
    other = played(run, run.logged.jobs, policy)
    header = _header(run, policy, other)
    name = run_events.written(store, header, other, run.names, run.left_out, run.failed)
    starts = run.first_start_ns, other.start_ns
    if isinstance(other, NodeSchedule):
        starts = run.first_start_ns, runs_of(other).first_starts(len(other.jobs))
    differ, earlier = np.flatnonzero(starts[0] != starts[1]), np.minimum(*starts)
    first = int(differ[np.argmin(earlier[differ])]) if len(differ) else None
    begun = None if first is None else int(earlier[first])
    return QueueWhatIf(
        run_id, run.choices.policy, name, policy, run_events.figures_of(run.logged),
        run_events.figures_of(other), len(other.jobs),
        len(differ), None if first is None else run.names.job(int(run.logged.jobs.number[first])),
        None if begun is None else begun / 1e9, _ratio(other, run.logged),
    )  # fmt: skip


def _header(run: LoggedQueue, policy: str, other: AnySchedule) -> Any:
    """The header of the run with the other scheduler, which names the run that it is a what-if of."""
    scenario = {**run.header.world["scenario"], QUEUE: replace(run.choices, policy=policy).to_json()}
    if isinstance(other, NodeSchedule) and len(other.outages):  # drawn as long as its jobs run
        scenario[NODES] = logged_nodes.to_json(other)
    world = {**run.header.world, "scenario": scenario}
    return replace(run.header, world=world, branch={"run": run.run_id, "decision": 0})


def _ratio(other: AnySchedule, base: AnySchedule) -> Ranged | None:
    if len(base.jobs) < 5 * WINDOWS:
        return None
    pools = [one if isinstance(one, QueueSchedule) else one.as_pool for one in (other, base)]
    return ratio(Windowed(pools[0]), Windowed(pools[1]))
