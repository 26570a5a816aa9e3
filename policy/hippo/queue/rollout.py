"""One window played by a network: its choices, and what each of them cost beside the heuristic.

The cost that a schedule has accrued by a time is the sum over submitted jobs of the log bounded slowdown that
they would have if they started then, or have, if they have started. Between two choices the reward is the
heuristic's accrual minus the own one; the rewards of a window add up to the difference of the two sums of log
bounded slowdowns. Run times are in it: it is made when the window has ended.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ingest.core.compiled import njit
from ingest.core.units import NS_PER_S
from policy.hippo.queue.windows import PoolPart, Window
from twin.queue import kernel, scoring
from twin.queue.jobs import LATEST_NS, Float, Int
from twin.queue.metrics import TAU_S
from twin.queue.pool import Scoring
from twin.queue.recipe import JobScorer, OrderKeys
from twin.queue.rules import PREDICTSIM

ROOM = 200_000
"""Rows of features that a window may record."""
Priced = Callable[[Window, Int, Int], Float]
"""Rewards of choices (k,), or (k, objectives), from a window, own starts (n,) and times of choices (k,)."""


@dataclass(frozen=True, eq=False)
class QueueRollout:
    """The choices of a window.

    rows: features of each job that could be chosen (e, 9), choice by choice, the chosen one first. begin:
    first row of each choice (k,). job: waiting job of each row (e,). time_ns (k,). reward (k,), or
    (k, objectives).
    """

    rows: Float
    begin: Int
    job: Int
    time_ns: Int
    reward: Float


def starts(part: PoolPart, scorer: JobScorer, trail: Scoring | None = None) -> Int:
    """Returns when the jobs of a part start (n,), nanoseconds, in the order of a network inside EASY."""
    jobs, keys = part.jobs, OrderKeys.scored(len(part.jobs), scorer)
    return kernel.play(jobs, jobs.estimate_ns, part.processors, keys, "easy", PREDICTSIM, trail)[0]


def rollout(window: Window, scorer: JobScorer, seed: int, priced: Priced | None = None) -> QueueRollout:
    """Returns sampled choices in a window, with rewards of that price [`rewards`]."""
    trail = scoring.trail_of(ROOM, seed)
    own_ns = starts(window.part, scorer, trail)
    taken = trail.decisions[: trail.counts[scoring.DECISIONS]]
    eligible = trail.eligible[: trail.counts[scoring.ELIGIBLE]]
    time_ns = taken[:, scoring.TIME]
    return QueueRollout(
        trail.rows[eligible], taken[:, scoring.AT].copy(), trail.job[eligible], time_ns.copy(),
        (priced or rewards)(window, own_ns, time_ns),
    )  # fmt: skip


def rewards(window: Window, own_ns: Int, time_ns: Int) -> Float:
    """Returns the reward of each choice (k,): the heuristic's accrual minus the own one until the next."""
    return accruals(window, window.start_ns, time_ns) - accruals(window, own_ns, time_ns)


def accruals(window: Window, start_ns: Int, time_ns: Int) -> Float:
    """Returns what a schedule accrues from each choice until the next (k,)."""
    jobs, until = window.part.jobs, np.append(time_ns, LATEST_NS)
    return np.diff(accrued(jobs.submit_ns, jobs.run_ns, start_ns, until))


@njit(cache=True, nogil=True)
def accrued(submit: Int, run: Int, start: Int, times: Int) -> Float:
    """Returns the sum of log bounded slowdowns by each of the ascending times (k,)."""
    sums, finished = np.zeros(len(times)), np.zeros(len(times) + 1)
    for job in range(len(submit)):
        run_s = run[job] / NS_PER_S
        least = max(run_s, TAU_S)
        at = np.searchsorted(times, submit[job])
        while at < len(times) and times[at] < start[job]:
            sums[at] += np.log(max(1.0, ((times[at] - submit[job]) / NS_PER_S + run_s) / least))
            at += 1
        finished[at] += np.log(max(1.0, ((start[job] - submit[job]) / NS_PER_S + run_s) / least))
    return sums + np.cumsum(finished)[:-1]
