"""The time of a live run: nanoseconds since it began, never running back."""

import time
from collections.abc import Callable


class LiveClock:
    """Time since `origin_epoch_ns`: by the wall clock when it is made, from then on by the monotonic clock.

    A wall clock that is set while the service runs changes nothing. After a restart time goes on from
    `at_least_ns`, that of the last event, even if the wall clock has been set back.
    """

    def __init__(
        self,
        origin_epoch_ns: int,
        at_least_ns: int = 0,
        *,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._monotonic = monotonic
        self._base_ns = max(wall() - origin_epoch_ns, at_least_ns) - monotonic()

    def now_ns(self) -> int:
        """Returns the time of the run."""
        return self._base_ns + self._monotonic()
