"""When a search for plans can be left out, by what earlier searches of the run found.

A search costs more than all else of a decision, and the network's proposals come next. Both are worth that
where they bring a plan that the past and earlier decisions do not offer. So the gain of each search is
recorded, in margins: below one margin no migration follows from it. The next gain stays below the k-th
smallest of n earlier ones with a probability of k / (n + 1) at least, if gains are exchangeable (split
conformal prediction: Vovk, Gammerman, Shafer, "Algorithmic learning in a random world", 2005). While that
bound, at `CONFIDENCE`, is below a margin, what is known is trusted, and searches are audits: half an hour
after the last one, then after twice as long each time, until one gains a margin again.
"""

from collections import deque
from math import ceil

from ingest.core.units import NS_PER_S

CONFIDENCE = 0.8
"""Probability that a search that is left out would have gained no more than the bound; four gains are the
fewest that give one."""
REMEMBERED = 8
"""Searches whose gains count."""
INTERVAL_NS = 1800 * NS_PER_S
"""Time between audits at first, and between searches without an event while nothing is trusted: worth one per
cent on training windows of geant-70b, whose links change more over hours than by events,"""
MOST_DOUBLINGS = 4
"""and how often it doubles: eight hours at most."""


class SearchTrust:
    """Records the gains of searches; tells whether others are needed."""

    def __init__(self) -> None:
        self._gains: deque[float] = deque(maxlen=REMEMBERED)
        self._audits = 0

    def record(self, gain_in_margins: float) -> None:
        """Records by how much the best plan of a search was worth more than the best one known without it."""
        audited = self.trusts
        self._gains.append(gain_in_margins)
        self._audits = self._audits + 1 if audited and self.trusts else 0

    def forget(self) -> None:
        """Forgets all gains: they were of other GPUs."""
        self._gains.clear()
        self._audits = 0

    @property
    def bound(self) -> float:
        """Margins that the next search gains at most, with a probability of `CONFIDENCE`; infinite while
        there are too few gains."""
        rank = ceil(CONFIDENCE * (len(self._gains) + 1))
        return sorted(self._gains)[rank - 1] if rank <= len(self._gains) else float("inf")

    @property
    def trusts(self) -> bool:
        """True while what is known is as good as what a search would find."""
        return self.bound < 1.0

    @property
    def interval_ns(self) -> int:
        """Time after which plans are searched even so."""
        return INTERVAL_NS << min(self._audits, MOST_DOUBLINGS)
