"""How far a task has come and how long the rest takes at the pace so far."""

from collections.abc import Callable
from time import monotonic


class Pace:
    """A `Progress` that keeps the newest task: name, steps done and in all, and when it began."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.what = self.note = ""
        self.total: int | None = None
        self.done = 0
        self._began_s = clock()

    def start(self, total: int | None, what: str, unit: str = "") -> None:
        """Begins a new task; the share is all that is shown, whatever the `unit`."""
        self.what, self.total, self.done, self.note = what, total, 0, ""
        self._began_s = self._clock()

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Counts `steps` more."""
        self.done += steps
        self.note = note

    @property
    def elapsed_s(self) -> float:
        """Seconds since the task began."""
        return self._clock() - self._began_s

    @property
    def share(self) -> float | None:
        """Returns the share done, 0 to 1; None where the total is not known."""
        total = self.total  # read once: another thread may begin a task
        return min(1.0, self.done / total) if total else None

    @property
    def left_s(self) -> float | None:
        """Returns the seconds that the rest takes if it goes as fast as the part done; None before a step."""
        share = self.share
        return self.elapsed_s * (1.0 - share) / share if share else None
