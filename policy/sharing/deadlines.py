"""Earliest deadline first, preemptive (Liu and Layland, JACM 1973).

The paper has one processor; on several a job that does not fit waits, and later ones may start. Jobs without
a deadline come last, ties go by submission. A deadline that has passed still counts, as nobody gives the job
up.
"""

import numpy as np

from twin.queue.jobs import UNKNOWN
from twin.sharing import placing
from twin.sharing.view import Allocation, SharingView


class EarliestDeadline:
    """The job whose deadline comes first runs first, on what it asked for."""

    def decide(self, view: SharingView) -> Allocation:
        """Returns places in the order of deadlines."""
        deadline = view.facts.deadline_ns[view.job]
        known = np.where(deadline == UNKNOWN, np.iinfo(np.int64).max, deadline)
        return placing.fill(view, np.argsort(known, kind="stable"))
