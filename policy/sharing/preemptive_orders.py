"""Orders by one key, preemptive: the earliest deadline, the least attained service.

Earliest deadline first (Liu and Layland, JACM 1973): the paper has one processor; on several a job that does
not fit waits, and later ones may start. Jobs without a deadline come last, ties go by submission. A deadline
that has passed still counts, as nobody gives the job up.

Least attained service (Nuyens and Wierman, Performance Evaluation 2008; as the continuous form of Tiresias,
Gu et al., NSDI 2019): attained service is GPU time. Taken to the letter the policy shares GPUs in infinitely
small turns; here it is asked at every event and every quantum of 6 minutes (the round of Gavel, OSDI 2020),
which the papers leave open. Ties: the order of submission.
"""

from dataclasses import dataclass, replace

import numpy as np

from ingest.core.units import NS_PER_S
from twin.queue.jobs import UNKNOWN
from twin.sharing import placing
from twin.sharing.view import Allocation, SharingView

QUANTUM_NS = 360 * NS_PER_S


class EarliestDeadline:
    """The job whose deadline comes first runs first, on what it asked for."""

    def decide(self, view: SharingView) -> Allocation:
        """Returns places in the order of deadlines."""
        deadline = view.facts.deadline_ns[view.job]
        known = np.where(deadline == UNKNOWN, np.iinfo(np.int64).max, deadline)
        return placing.fill(view, np.argsort(known, kind="stable"))


@dataclass
class LeastAttained:
    """Least attained service first."""

    def decide(self, view: SharingView) -> Allocation:
        """Returns places in the order of service had; asks again after a quantum if a job waits."""
        found = placing.fill(view, np.argsort(view.served_ns, kind="stable"))
        waits = bool((found.gpus == 0).any())
        return replace(found, again_ns=view.now_ns + QUANTUM_NS if waits else None)
