"""The heuristic that a training begins at, and the windows of a log that are worth learning from."""

from dataclasses import dataclass

import numpy as np

from ingest.core.errors import UsageError
from policy.queue.registry import recipe
from twin.queue.jobs import Float, Int, QueueJobs
from twin.queue.metrics import TAU_S, bounded_slowdowns
from twin.queue.recipe import QueueRecipe
from twin.queue.simulation import simulate

ORDERS = ("fcfs", "sjf", "saf", "f1", "wfp3", "unicef", "hrrn")
"""Orders that the features of a job can tell; those of users (las) they cannot."""
WINDOW, STRIDE = 1_000, 500
"""Jobs of a window, and from one to the next."""
TRIVIAL = 0.1
"""Windows with a smaller mean log bounded slowdown under the heuristic teach nothing."""
LEAST_JOBS = 400


@dataclass(frozen=True, eq=False)
class PoolPart:
    """Jobs, no run longer than its estimate, on a pool of so many processors."""

    jobs: QueueJobs
    processors: int


@dataclass(frozen=True, eq=False)
class Window:
    """A part to practise on, and when its jobs start under the heuristic (n,), nanoseconds."""

    part: PoolPart
    start_ns: Int

    @property
    def log_slowdown(self) -> float:
        """Mean log bounded slowdown under the heuristic."""
        return log_slowdown(self.part, self.start_ns)


def log_slowdown(part: PoolPart, start_ns: Int) -> float:
    """Returns the mean log bounded slowdown of a schedule: the logarithm of the geometric mean."""
    return float(log_slowdowns(part, start_ns).mean())


def log_slowdowns(part: PoolPart, start_ns: Int) -> Float:
    """Returns log bounded slowdowns (n,) of a schedule."""
    run_s = part.jobs.run_ns / 1e9
    jct_s = (start_ns - part.jobs.submit_ns) / 1e9 + run_s
    found = np.log(np.maximum(1.0, jct_s / np.maximum(run_s, TAU_S)))
    return np.asarray(found)


def best_order(parts: list[PoolPart]) -> str:
    """Returns the order with the lowest geometric mean of bounded slowdowns over all parts, inside EASY."""
    means = {}
    for name in ORDERS:
        done = [simulate(part.jobs, part.processors, recipe(f"{name}+easy")) for part in parts]
        means[name] = np.concatenate([np.log(bounded_slowdowns(one)) for one in done]).mean()
    return min(ORDERS, key=lambda name: means[name])


def split(part: PoolPart, share: float) -> tuple[PoolPart, PoolPart]:
    """Returns the first share of the jobs, and the others."""
    cut = round(share * len(part.jobs))
    first, later = (part.jobs.select(chosen) for chosen in (slice(cut), slice(cut, None)))
    return PoolPart(first, part.processors), PoolPart(later, part.processors)


def windows_of(parts: list[PoolPart], heuristic: QueueRecipe) -> list[Window]:
    """Returns windows in which the heuristic makes jobs wait.

    Raises:
        UsageError: there is none.
    """
    found = []
    for part in parts:
        for first in range(0, max(len(part.jobs) - LEAST_JOBS, 1), STRIDE):
            jobs = part.jobs.select(slice(first, first + WINDOW))
            done = simulate(jobs, part.processors, heuristic)
            found.append(Window(PoolPart(done.jobs, part.processors), done.start_ns))
    kept = [one for one in found if one.log_slowdown >= TRIVIAL]
    if not kept:
        busiest = max(found, key=lambda one: one.log_slowdown)
        raise UsageError(
            f"there is nothing to learn: under {heuristic.name} the geometric mean slowdown of the busiest "
            f"{len(busiest.part.jobs):,} jobs is {np.exp(busiest.log_slowdown):.3f}, and learning takes "
            f"{np.exp(TRIVIAL):.3f}; say fewer --processors than {busiest.part.processors:,}, or take the "
            "log of a busier machine"
        )
    return kept
