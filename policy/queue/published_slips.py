"""Orders as they were published with a slip, under names of their own, so that published results come out.

RLScheduler (Zhang et al., SC 2020; DIR-LAB/deep-batch-scheduler @ cd433e3d62a0) takes `scheduled_time - s`
for the wait of a job. A waiting job has scheduled_time = -1, so its wait is -1 - s: jobs that are submitted
later go first, whatever the time. `wfp3` and `unicef` are the right ones.
"""

import numpy as np

from ingest.core.units import NS_PER_S
from twin.queue.jobs import Float, Int, QueueJobs
from twin.queue.recipe import OrderKeys

TINY = 1e-15
"""What that code adds to waits and processors of UNICEP."""


def wfp3_slip(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """-(w / r)^3 n with w = -1 - s."""
    key = -((_no_wait(jobs) / (predicted_ns / NS_PER_S)) ** 3) * jobs.processors
    return OrderKeys.fixed(key, as_recorded=True)


def unicep_slip(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """-w / (log2(n) r) with w = -1 - s."""
    share = np.log2(jobs.processors + TINY) * (predicted_ns / NS_PER_S)
    return OrderKeys.fixed(-(_no_wait(jobs) + TINY) / share, as_recorded=True)


def _no_wait(jobs: QueueJobs) -> Float:
    return -1.0 - jobs.submit_ns / NS_PER_S
