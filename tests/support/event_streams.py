"""Streams of events of both simulators of a queue, in the order of the log of a kept run.

The kernel's come from its schedule by the function that writes a kept run (`run_events.changes`), the
referee's from what it wrote down while it went. At one instant nodes come back or go out first, then come
runs that a fault ends, submissions, ends and starts, each by job: a schedule does not say more.
"""

from collections.abc import Sequence
from typing import Any

from replay.logqueue.run_events import HEAD, OVERTAKES, AnySchedule, JobNames, changes
from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.outages import UP
from twin.queue.jobs import Int
from twin.queue.referee import BACK, ENDED, KILLED, OUT, STARTED, SUBMITTED, Happening
from twin.sites.simulation import SiteSchedule

Streamed = tuple[int, str, int, Any]
"""Time, kind, job (or node), and details: reason, GPUs and place of a start, kept work of a run that a fault
ends."""
RANKS = {BACK: 0, OUT: 1, KILLED: 2, SUBMITTED: 3, ENDED: 4, STARTED: 5}
KINDS = {"job_submitted": SUBMITTED, "job_started": STARTED, "job_finished": ENDED}
NUMBERS = JobNames({}, {})


def in_order(events: Sequence[Streamed]) -> list[Streamed]:
    """Returns events in the order of the log."""
    return sorted(events, key=lambda one: (one[0], RANKS[one[1]], one[2]))


def of_kernel(done: AnySchedule) -> list[Streamed]:
    """Returns the events of a schedule, in the order in which a kept run has them."""
    place = {str(number): job for job, number in enumerate(done.jobs.number.tolist())}
    stream = [
        (time, KINDS[kind], place[job], _started(said) if KINDS[kind] == STARTED else None)
        for time, kind, said, job in changes(done, NUMBERS)
    ]
    if not isinstance(done, NodeSchedule) or not len(done.outages):
        return stream
    return in_order([*stream, *_outages(done)])


def _started(said: dict[str, Any]) -> Any:
    return said["reason"], said["gpus"], said["spec"]


def _outages(done: NodeSchedule) -> list[Streamed]:
    """Changes of nodes, and runs that faults ended: a kept run has none of these."""
    found: list[Streamed] = [
        (time, BACK if kind == UP else OUT, node, None)
        for time, node, kind in zip(*(column.tolist() for column in done.outages.changes()), strict=True)
    ]
    broken, width = done.broken, int(done.cluster.gpus.max())
    columns = (broken.job, broken.start_ns, broken.end_ns, broken.kept_ns, broken.backfilled)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for at, (job, begin, end, kept, overtook) in enumerate(rows):
        where = {"places": _places(broken.slots, broken.first, at, width)}
        size = [int(done.jobs.processors[job])]
        found.append((begin, STARTED, job, (OVERTAKES if overtook else HEAD, size, where)))
        found.append((end, KILLED, job, kept))
    return found


def _places(slots: Int, first: Int, at: int, width: int) -> list[list[int]]:
    return [list(divmod(slot, width)) for slot in slots[first[at] : first[at + 1]].tolist()]


def of_referee(happened: Sequence[Happening], done: AnySchedule) -> list[Streamed]:
    """Returns what a referee wrote down; `done` says how many GPUs a job or a way takes."""
    return in_order(
        [(time, kind, which, _detail(kind, which, said, done)) for time, kind, which, said in happened]
    )


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
