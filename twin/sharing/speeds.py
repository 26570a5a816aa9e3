"""How fast jobs run on what they hold, in millionths of their speed alone on the GPUs that they asked for.

Interleaved: iterations of the jobs of a group overlap by stages, storage and CPU, GPU, network. All take the
period of the best order of the jobs, as in the simulator of Muri (Zhao et al., SIGCOMM 2022): a job does one
iteration in each period. The period of a group of 2, 3, 4 was measured longer than its stages say, by 1.33,
1.5, 1.37 over the 1.015 of a job alone. Turns: the GPUs are given to one job after the other; suspending
costs 2 % (Xiao et al., Gandiva, OSDI 2018). Below: the leader runs as if it were alone, the others in what
it leaves (Xiao et al., AntMan, OSDI 2020). Sizes: the measured curve of the job (`curves.py`).
"""

from dataclasses import dataclass, field
from itertools import permutations
from typing import Protocol

import numpy as np

from twin.queue.jobs import Float, Int
from twin.sharing.curves import SpeedCurves

ALONE, INTERLEAVED, TURNS, BELOW = range(4)
"""Ways in which jobs share the GPUs that their leader holds."""
MOST_SHARING = 4
"""Jobs of a group for which stages were measured."""
LONGER = (1.0, 1.33 / 1.015, 1.5 / 1.015, 1.37 / 1.015)
"""Measured period of a group of 1 to 4 over that of its stages, relative to a job alone."""
SUSPENDING = 0.98
"""Share of a turn that is not lost to suspending and resuming."""
Stages = tuple[float, ...]
"""Times of one iteration of a job: on storage and CPU, on the GPU, on the network; any unit."""


class Speeds(Protocol):
    """Speeds that sizes and sharing give to jobs, as measured."""

    def rates(self, job: Int, gpus: Int, leader: Int, mode: Int) -> Int:
        """Returns the speed of each of these jobs (rows,), millionths; 0 where it has no GPUs.

        `leader`: the job that leads those who share the same GPUs, NOWHERE for who shares with nobody, and
        `mode` how they share.
        """
        ...


def period(group: tuple[Stages, ...]) -> float:
    """Returns the time in which each job of a group does one iteration, in the best order of the jobs.

    Four slots go round; in slot i the job before it is on the network, the next on the GPU, the one after
    begins on storage and CPU, which may take two slots. Two jobs may also take turns: one on storage and CPU
    while the other is on GPU and network.
    """
    if len(group) == 1:
        return sum(group[0])
    best = min(_round(order) for order in permutations(group))
    if len(group) == 2:
        (s0, g0, n0), (s1, g1, n1) = group
        best = min(best, max(s0, g1 + n1) + max(s1, g0 + n0))
    return best


def _round(order: tuple[Stages, ...]) -> float:
    """Returns the time of one round of four slots in this order, once rounds are alike."""
    ends, slots = [0.0], 4
    for i in range(2 * slots):
        times = [ends[i]]
        for ahead, stage, since in ((1, 2, i), (2, 1, i), (3, 0, i - 1)):
            place = (i + ahead) % slots
            if since >= 0 and place < len(order):
                times.append(ends[since] + order[place][stage])
        ends.append(max(times))
    return ends[-1] - ends[-1 - slots]


def iterations_below(own: Stages, leader: Stages) -> int:
    """Returns how many iterations of its leader pass during one of a job below it, whose stages run while the
    leader is on other resources (Muri's simulation of AntMan): what a stage leaves of that time in the last
    of its iterations goes to the next stage."""
    (storage, gpu, network), (off_storage, off_gpu, off_network) = own, leader
    idle = (off_gpu + off_network, off_storage + off_network, off_storage + off_gpu)
    count, over = _passes(storage, idle[0])
    if over:
        gpu -= min(gpu, off_network, idle[0] - over)
    more, over = _passes(gpu, idle[1])
    count += more
    if 0 < over < off_storage:
        network -= min(network, idle[2] - over)
    more, over = _passes(network, idle[2])
    return count + more - (1 if 0 < over <= off_storage else 0)


def _passes(stage: float, idle: float) -> tuple[int, float]:
    """Iterations of idle time that a stage begins, and how far it comes in the last one; 0 if it fills it."""
    if stage <= 0 or idle <= 0:
        return (0, 0.0) if stage <= 0 else (10_000, 0.0)
    whole, over = divmod(stage, idle)
    return int(whole) + (1 if over > 0 else 0), over


@dataclass(eq=False)
class MeasuredSpeeds:
    """Speeds by what was measured of the jobs (n,): time of an iteration and of its stages (n, 3), any unit,
    0 where they are not known, and curves over sizes.

    A job without stages interleaves as one that holds its GPUs all the time: sharing gives it nothing.
    """

    iteration: Float
    stages: Float
    curves: SpeedCurves
    periods: dict[tuple[Stages, ...], float] = field(default_factory=dict)

    def profiled(self, job: Int) -> Int:
        """Returns 1 for each of these jobs whose stages were measured, else 0."""
        return (self.iteration[job] > 0).astype(np.int64)

    def stages_of(self, job: int) -> Stages:
        """Returns the stages of a job."""
        if not self.iteration[job]:
            return (0.0, 1.0, 0.0)
        return tuple(self.stages[job].tolist())

    def group_period(self, group: tuple[Stages, ...]) -> float:
        """Returns the period of jobs of these stages with what sharing was measured to cost."""
        key = tuple(sorted(group))
        if key not in self.periods:
            self.periods[key] = period(key) * LONGER[len(key) - 1]
        return self.periods[key]

    def rates(self, job: Int, gpus: Int, leader: Int, mode: Int) -> Int:
        """Returns the speed of each of these jobs (rows,), millionths."""
        return self.shared(self.curves.rates(job, gpus), job, gpus, leader, mode)

    def shared(self, alone: Int, job: Int, gpus: Int, leader: Int, mode: Int) -> Int:
        """Returns the speed of each of these jobs (rows,) from that without the others on its GPUs."""
        found = alone.copy()
        for first in np.unique(leader[(leader >= 0) & (gpus > 0)]).tolist():
            rows = np.flatnonzero((leader == first) & (gpus > 0))
            if len(rows) > 1:
                found[rows] = self._shared(job[rows], first, int(mode[rows[0]]), found[rows])
        return found

    def _shared(self, jobs: Int, leader: int, mode: int, alone: Int) -> Int:
        if mode == TURNS:
            shares = [SUSPENDING / len(jobs)] * len(jobs)
        elif mode == BELOW:
            shares = [
                1.0 if one == leader else self.beside(one, leader, len(jobs) - 1) for one in jobs.tolist()
            ]
        else:
            shares = self.interleaved(tuple(jobs.tolist()))
        found: Int = np.maximum((alone * np.array(shares)).astype(np.int64), 1)
        return found

    def interleaved(self, jobs: tuple[int, ...]) -> list[float]:
        """Returns the speed of each job of a group over its speed alone."""
        group = tuple(self.stages_of(one) for one in jobs)
        together = self.group_period(group)
        own = [float(self.iteration[one]) or 1.0 for one in jobs]
        return [one / together for one in own]

    def beside(self, job: int, leader: int, others: int = 1) -> float:
        """Returns the speed of a job that runs in what its leader leaves, over its speed alone, divided
        among those who do so; at most 1."""
        if not self.iteration[job] or not self.iteration[leader]:
            return 0.01 / others
        own = float(self.iteration[job])
        passed = iterations_below(self.stages_of(job), self.stages_of(leader)) * float(self.iteration[leader])
        return own / max(own, passed) / others
