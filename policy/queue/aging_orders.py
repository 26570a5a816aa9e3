"""Orders whose key falls while a job waits; w is the wait, r the predicted run time, n the processors."""

import numpy as np

from ingest.core.units import NS_PER_S
from twin.queue.jobs import Float, Int, QueueJobs
from twin.queue.recipe import OrderKeys

SERIAL = 1e-15
"""log2(n) of a job of one processor in `unicef`: so small that it goes before all wider ones, and not 0."""


def wfp3(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """-(w / r)^3 n (WFP3; Tang, Lan, Desai and Buettner, "Fault-aware, utility-based job scheduling on Blue
    Gene/P systems", CLUSTER 2009)."""
    return OrderKeys.aging(_seconds(predicted_ns), 3, jobs.processors.astype(np.float64))


def unicef(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """-w / (log2(n) r) (UNICEF, the same paper): small jobs go first."""
    return OrderKeys.aging(np.maximum(np.log2(jobs.processors), SERIAL) * _seconds(predicted_ns), 1)


def hrrn(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """Highest response ratio next, (w + r) / r (Brinch Hansen, "An analysis of response ratio scheduling",
    IFIP 1971), also called the expansion factor. The 1 in it orders nothing and is left out."""
    return OrderKeys.aging(_seconds(predicted_ns), 1)


def _seconds(predicted_ns: Int) -> Float:
    """Returns seconds; a prediction of 0 counts as a nanosecond."""
    return np.maximum(predicted_ns, 1) / NS_PER_S
