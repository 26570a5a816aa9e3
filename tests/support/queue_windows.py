"""Windows of a queue that is busy, for tests of what learns its order."""

import numpy as np

from policy.hippo.queue.windows import PoolPart, Window
from policy.queue.registry import recipe
from twin.core.seeds import generator
from twin.queue.jobs import QueueJobs
from twin.queue.simulation import simulate


def busy_window(least_s: int, jobs: int = 120) -> Window:
    """Synthetic: a pool of ten that is asked for more than it has; runs last `least_s` to 500 s."""
    random = generator(0, "busy queue")
    run = random.integers(least_s, 500, jobs)
    made = QueueJobs.of_seconds(
        np.sort(random.integers(0, 100 * jobs, jobs)), run, random.integers(2, 10, jobs), run
    )
    done = simulate(made, 10, recipe("sjf+easy"))
    return Window(PoolPart(done.jobs, 10), done.start_ns)
