"""Least attained service of the job first, preemptive (Nuyens and Wierman, Performance Evaluation 2008; as
the continuous form of Tiresias, Gu et al., NSDI 2019).

Attained service is GPU time. Taken to the letter the policy shares GPUs in infinitely small turns; here it is
asked at every event and every quantum of 6 minutes (the round of Gavel, OSDI 2020), which the papers leave
open. Ties: the order of submission.
"""

from dataclasses import dataclass, replace

import numpy as np

from ingest.core.units import NS_PER_S
from twin.sharing import placing
from twin.sharing.view import Allocation, SharingView

QUANTUM_NS = 360 * NS_PER_S


@dataclass
class LeastAttained:
    """Least attained service first."""

    def decide(self, view: SharingView) -> Allocation:
        """Returns places in the order of service had; asks again after a quantum if a job waits."""
        found = placing.fill(view, np.argsort(view.served_ns, kind="stable"))
        waits = bool((found.gpus == 0).any())
        return replace(found, again_ns=view.now_ns + QUANTUM_NS if waits else None)
