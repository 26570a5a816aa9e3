"""Orders that follow what users have had."""

from twin.queue.jobs import Int, QueueJobs
from twin.queue.recipe import OrderKeys


def las(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """Least attained service, of the user: the processor-seconds that jobs of the same user have had by now,
    those still running included.

    A job that is never preempted has had nothing while it waits, so that LAS of jobs (Nuyens and Wierman,
    Performance Evaluation 2008) would be first come, first served. Of users it is the rule of share
    schedulers (Kay and Lauder, "A fair share scheduler", CACM 1988), without decay. Jobs without a user count
    as those of one.
    """
    return OrderKeys.least_served_user(len(jobs))
