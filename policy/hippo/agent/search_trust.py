"""When a search for plans can be left out, by what earlier searches of the run found.

A search costs more than all else of a decision. It is worth that where it finds a plan that the network, the
past and earlier decisions do not offer. So the gain of each search is recorded, in margins: below one margin
no migration follows from it. Once the last searches all gained less, plans are searched every half hour only,
until one gains more again.
"""

from collections import deque

LEAST = 4
"""Searches without a gain after which plans are no longer searched at every event."""
REMEMBERED = 8
"""Searches whose gains count."""


class SearchTrust:
    """Records the gains of searches; tells whether others are needed."""

    def __init__(self) -> None:
        self._gains: deque[float] = deque(maxlen=REMEMBERED)

    def record(self, gain_in_margins: float) -> None:
        """Records by how much the best plan of a search was worth more than the best one known without it."""
        self._gains.append(gain_in_margins)

    def forget(self) -> None:
        """Forgets all gains: they were of other GPUs."""
        self._gains.clear()

    @property
    def needless(self) -> bool:
        """Whether the last searches gained less than a margin each."""
        return len(self._gains) >= LEAST and max(self._gains) < 1.0
