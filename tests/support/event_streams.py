"""Streams of events of both simulators of a queue, in the order of the log of a kept run.

The kernel's come from its schedule by the function that writes a kept run (`job_changes.changes`), the
referee's from what it wrote down while it went. At one instant come submissions, ends, nodes that come back,
nodes that go out, runs that a fault ends, and starts, each by job or node: a schedule does not say more.
"""

from collections.abc import Sequence
from typing import Any

from replay.logqueue.job_changes import HEAD, OVERTAKES, AnySchedule, JobNames, changes
from twin.queue.referee import BACK, ENDED, KILLED, OUT, STARTED, SUBMITTED, Happening
from twin.sites.simulation import SiteSchedule

Streamed = tuple[int, str, int, Any]
"""Time, kind, job (or node), and details: reason, GPUs and place of a start, kept work of a run that a fault
ends."""
RANKS = {SUBMITTED: 0, ENDED: 1, BACK: 2, OUT: 3, KILLED: 4, STARTED: 5}
KINDS = {
    "job_submitted": SUBMITTED, "job_started": STARTED, "job_finished": ENDED, "job_preempted": KILLED,
    "node_up": BACK, "node_down": OUT,
}  # fmt: skip
NUMBERS = JobNames({}, {})


def of_kernel(done: AnySchedule) -> list[Streamed]:
    """Returns the events of a schedule, in the order in which a kept run has them."""
    place = {str(number): job for job, number in enumerate(done.jobs.number.tolist())}
    return [
        (time, KINDS[kind], said["node"] if "node" in said else place[job], _said(kind, said))
        for time, kind, said, job in changes(done, NUMBERS)
    ]


def _said(kind: str, said: dict[str, Any]) -> Any:
    if kind == "job_preempted":
        return said["spec"]["kept_ns"]
    return (said["reason"], said["gpus"], said["spec"]) if kind == "job_started" else None


def of_referee(happened: Sequence[Happening], done: AnySchedule) -> list[Streamed]:
    """Returns what a referee wrote down, to the last end; `done` says how many GPUs a job or a way takes."""
    last = int(done.end_ns.max(initial=-1))
    events = [
        (time, kind, which, _detail(kind, which, said, done))
        for time, kind, which, said in happened
        if time <= last
    ]
    return sorted(events, key=lambda one: (one[0], RANKS[one[1]], one[2]))


def _detail(kind: str, job: int, said: tuple[Any, ...], done: AnySchedule) -> Any:
    if kind == KILLED:
        return said[0]
    if kind != STARTED:
        return None
    overtakes, where = said
    why = OVERTAKES if overtakes else HEAD
    if isinstance(done, SiteSchedule):
        return why, done.world.options.need[where].tolist(), {"way": where}
    spec = {} if where is None else {"places": [list(one) for one in where]}
    return why, [int(done.jobs.processors[job])], spec
