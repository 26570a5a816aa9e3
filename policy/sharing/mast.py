"""MAST's queue of one cluster: by priority, the higher preempts (Choudhury et al., OSDI 2024).

Jobs go by priority, then by submission; a job of a higher priority takes the GPUs of lower ones where it
finds none free, and a job that does not fit is passed over. Priority 0 is the highest, jobs that have none
come last; where a log has none at all they are alike, and the queue is first come, first served with later
jobs passing what does not fit.

Left open, or not here: the paper schedules over regions, a fast path that searches all of them and a slow
path that places data ahead of jobs. Nodes here are of one place, so that only the order of one queue and its
preemptions are played; the planner `mast` of `twin replay` chooses domains, the placement `mast` of a queue
over sites (`policy/placement/sites.py`) regions. Quota of tenants, by which the paper also ranks jobs, is in
no log. Whom to preempt is open: here the lowest priority, of it the latest.
"""

import numpy as np

from twin.queue.jobs import UNKNOWN
from twin.sharing import placing
from twin.sharing.view import Allocation, SharingView

LAST = int(np.iinfo(np.int64).max)


class PriorityQueue:
    """The highest priority first, then the earliest."""

    def decide(self, view: SharingView) -> Allocation:
        """Returns places in the order of priority and submission."""
        known = view.facts.priority[view.job]
        return placing.fill(view, np.argsort(np.where(known == UNKNOWN, LAST, known), kind="stable"))
