"""Where jobs lie on nodes of several sizes, and on parts of several nodes, by hand."""

import numpy as np

from policy.sharing.srtf import Srtf
from twin.queue.jobs import QueueJobs
from twin.sharing import engine, referee
from twin.sharing.changes import FREE
from twin.sharing.curves import SpeedCurves
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.progress import MOVE
from twin.sharing.speeds import MeasuredSpeeds
from twin.sharing.view import NOWHERE, Allocation, SharingScheduler, SharingView


def world(run_s: list[int], gpus: list[int], sizes: tuple[int, ...]) -> SharingWorld:
    """Jobs that come at once; changes are free."""
    jobs = QueueJobs.of_seconds([0] * len(run_s), run_s, gpus)
    none = np.zeros(len(jobs)), np.zeros((len(jobs), 3))
    speeds, pause = MeasuredSpeeds(*none, SpeedCurves.rigid(jobs.processors)), np.full(len(jobs), 10**10)
    return SharingWorld(
        jobs, jobs.run_ns, pause, len(sizes), max(sizes), FREE, speeds, sizes=np.array(sizes)
    )  # fmt: skip


def ends(done: SharedSchedule) -> list[float]:
    return [one / 1e9 for one in done.states.ended.tolist()]


def test_a_job_takes_smaller_nodes_whole_where_no_larger_one_has_room() -> None:
    assert ends(engine.play(world([50, 60, 70], [8, 8, 8], (8, 4, 4)), Srtf())) == [50, 60, 120]


def test_a_job_over_nodes_of_several_sizes_takes_as_many_as_hold_it() -> None:
    assert ends(engine.play(world([50, 60], [12, 4], (8, 4, 4)), Srtf())) == [50, 60]
    assert ends(engine.play(world([50, 60], [13, 4], (8, 4, 4)), Srtf())) == [50, 110]


class Parted(SharingScheduler):
    """A job of 4 GPUs over two nodes beside one of 3: 3 + 1 at first, 1 + 3 once the other has ended."""

    def decide(self, view: SharingView) -> Allocation:
        """Returns the parts of the job over both nodes, and the other on the second."""
        many = len(view)
        part, node = np.array([3, 1] if many == 2 else [1, 3]), np.array([NOWHERE, 1])[:many]
        whole = np.full(2, 0 if many else NOWHERE)
        return Allocation(np.array([4, 3])[:many], node, whole, part=part)


def test_a_job_lies_on_parts_of_nodes_beside_others_and_is_moved_by_parts_alone() -> None:
    made = world([100, 40], [4, 3], (4, 4))
    done = engine.play(made, Parted())
    assert ends(done) == [100, 40]
    moves = done.events[done.events[:, 1] == MOVE]
    assert moves[:, [0, 2]].tolist() == [[40 * 10**9, 0]]
    assert referee.named(done.events) == referee.referee_events(made, Parted())
