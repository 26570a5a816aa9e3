"""Sequences of consecutive jobs, each on an empty machine: how RLScheduler (Zhang et al., SC 2020) judges."""

from collections.abc import Iterator

import numpy as np

from twin.queue.jobs import QueueJobs
from twin.queue.metrics import bounded_slowdowns, utilisation_to_last_start
from twin.queue.recipe import QueueRecipe
from twin.queue.rules import RLSCHEDULER
from twin.queue.simulation import simulate

LENGTH = 1024
STARTS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
"""First jobs of the ten published sequences, as drawn there with seed 1; jobs by number, from 0."""


def sequences(jobs: QueueJobs) -> Iterator[QueueJobs]:
    """Yields the ten sequences of a log."""
    by_number = jobs.select(np.argsort(jobs.number, kind="stable"))
    for start in STARTS:
        yield by_number.select(slice(start, start + LENGTH))


def judged(jobs: QueueJobs, processors: int, recipe: QueueRecipe) -> list[tuple[float, float]]:
    """Returns average bounded slowdown and utilisation, as that paper defines it, of each sequence."""
    found = []
    for part in sequences(jobs):
        done = simulate(part, processors, recipe, rules=RLSCHEDULER)
        found.append((float(bounded_slowdowns(done).mean()), utilisation_to_last_start(done)))
    return found
