"""The least mean wait of small queues, by a mixed-integer programme, and how far schedulers and solvers are
from it.

Binary x[j, t] is 1 if job j starts in slot t: each job starts once and not before its submission, and in no
slot do running jobs hold more processors than there are (Sousa and Wolsey, Mathematical Programming 1992).
The programme knows the future; HiGHS solves it through scipy.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from benchmarks.queue.genetic import genetic_wait_slots
from benchmarks.queue.lookahead import lookahead_wait_slots
from policy.queue.registry import recipe
from twin.queue.jobs import QueueJobs
from twin.queue.metrics import waits_s
from twin.queue.rules import INSTANT
from twin.queue.simulation import simulate

SLOT_S = 600
POOL, JOBS, INSTANCES, LONGEST_SLOTS, WITHIN_SLOTS = 16, 8, 60, 24, 12
Slots = NDArray[np.int64]


def instances(jobs: QueueJobs, seed: int = 0) -> list[tuple[Slots, Slots, Slots]]:
    """Returns (submit, run, processors) of small queues whose jobs are drawn from a log, in slots.

    Runs are rounded up; jobs of more than `LONGEST_SLOTS` or `POOL` processors are not drawn; submissions lie
    within two hours.
    """
    random = np.random.default_rng(seed)
    run = -(-jobs.run_ns // (SLOT_S * 10**9))
    short = np.flatnonzero((run <= LONGEST_SLOTS) & (jobs.processors <= POOL))
    found = []
    for _ in range(INSTANCES):
        drawn = random.choice(short, JOBS, replace=False)
        submit = np.sort(random.integers(0, WITHIN_SLOTS, JOBS))
        found.append((submit, run[drawn], jobs.processors[drawn]))
    return found


def least_wait_slots(submit: Slots, run: Slots, processors: Slots, pool: int = POOL) -> float:
    """Returns the least sum of waits of these jobs on a pool, in slots."""
    horizon = int(submit.max() + run.sum())
    pairs = [(job, slot) for job in range(len(submit)) for slot in range(submit[job], horizon)]
    cost = np.array([slot - submit[job] for job, slot in pairs], float)
    rows, columns, values = [], [], []
    for at, (job, slot) in enumerate(pairs):
        rows.append(job)
        columns.append(at)
        values.append(1.0)
        for busy in range(slot, min(slot + int(run[job]), horizon)):
            rows.append(len(submit) + busy)
            columns.append(at)
            values.append(float(processors[job]))
    shape = (len(submit) + horizon, len(pairs))
    matrix = coo_array((values, (rows, columns)), shape=shape).tocsc()
    low = np.concatenate((np.ones(len(submit)), np.zeros(horizon)))
    high = np.concatenate((np.ones(len(submit)), np.full(horizon, pool)))
    done = milp(cost, constraints=LinearConstraint(matrix, low, high), bounds=Bounds(0, 1),
                integrality=np.ones(len(pairs)))  # fmt: skip
    assert done.success, done.message
    return float(done.fun)


def waits_slots(submit: Slots, run: Slots, processors: Slots, policy: str) -> float:
    """Returns the sum of waits under a scheduler that knows the run times, in slots."""
    jobs = QueueJobs.of_seconds(submit * SLOT_S, run * SLOT_S, processors)
    done = simulate(jobs, POOL, recipe(policy), rules=INSTANT)
    return float(waits_s(done).sum() / SLOT_S)


SOLVERS: dict[str, Callable[[Slots, Slots, Slots, int], float]] = {
    "genetic search (pymoo)": genetic_wait_slots,
    "LOS (dynamic programme)": lookahead_wait_slots,
}
"""Solvers beside the programme; the first one knows the future."""


def gaps(jobs: QueueJobs, policies: tuple[str, ...]) -> dict[str, tuple[float, float, float, int]]:
    """Returns for each scheduler and solver: sum of waits over the least, the ends of its 95 % interval over
    instances, and in how many instances it is optimal."""
    small = instances(jobs)
    least = np.array([least_wait_slots(*one) for one in small])
    random = np.random.default_rng(1)
    drawn = random.integers(0, len(small), (1_000, len(small)))
    found = {}
    for policy in (*policies, *SOLVERS):
        solver = SOLVERS.get(policy)
        waits = np.array([solver(*one, POOL) if solver else waits_slots(*one, policy) for one in small])
        assert (waits >= least - 1e-6).all(), f"{policy} is better than the optimum"
        ratios = waits[drawn].sum(axis=1) / least[drawn].sum(axis=1)
        low, high = np.quantile(ratios, (0.025, 0.975))
        same = int((waits <= least + 1e-6).sum())
        found[policy] = (float(waits.sum() / least.sum()), float(low), float(high), same)
    return found
