"""The time of a live run: nanoseconds since its time 0, never running back."""

import time
from collections.abc import Callable


def wall_ns() -> int:
    """Returns the time of this machine, nanoseconds since the epoch; somebody may set it."""
    return time.time_ns()


def steady_ns() -> int:
    """Returns nanoseconds of a clock that is never set; on Linux it also counts while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


class LiveClock:
    """Time since `origin_epoch_ns`, which begins at `at_least_ns` and goes on by the steady clock alone.

    It moves to another time only by `move_to`: the wall clock has no say of its own (`clock_watch`).
    """

    def __init__(
        self,
        origin_epoch_ns: int,
        at_least_ns: int = 0,
        *,
        wall: Callable[[], int] = wall_ns,
        steady: Callable[[], int] = steady_ns,
    ) -> None:
        self.origin_epoch_ns = origin_epoch_ns
        self._wall, self._steady = wall, steady
        self._base_ns = at_least_ns - steady()
        self._latest_ns = at_least_ns

    def now_ns(self) -> int:
        """Returns the time of the run."""
        self._latest_ns = max(self._latest_ns, self._base_ns + self._steady())
        return self._latest_ns

    def epoch_ns(self) -> int:
        """Returns the time of the run, nanoseconds since the epoch."""
        return self.origin_epoch_ns + self.now_ns()

    def wall_ns(self) -> int:
        """Returns the time of the wall clock, nanoseconds since the epoch."""
        return self._wall()

    def steady_ns(self) -> int:
        """Returns the time of the steady clock; only differences mean something."""
        return self._steady()

    def move_to(self, epoch_ns: int) -> None:
        """Goes on from another time; if that is past, the run's time stands still until it is reached."""
        self._base_ns = epoch_ns - self.origin_epoch_ns - self._steady()
