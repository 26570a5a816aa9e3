"""Parts of a series in time, for training, validation and testing, and the identity of the series."""

from dataclasses import dataclass
from typing import Literal

from ingest.core import config
from ingest.core.errors import NotFoundError, UsageError
from ingest.core.units import NS_PER_S

Window = Literal["train", "validate", "test", "all"]

TRAIN_SHARE = 0.70
"""Part of a series, in time, for training; the rest is for testing."""
VALIDATE_SHARE = 0.15
"""Last part of the training share, kept for validation."""
_VALIDATE_FROM = TRAIN_SHARE * (1 - VALIDATE_SHARE)
_SHARES: dict[Window, tuple[float, float]] = {
    "train": (0, _VALIDATE_FROM),
    "validate": (_VALIDATE_FROM, TRAIN_SHARE),
    "test": (TRAIN_SHARE, 1),
    "all": (0, 1),
}
_SLACK_NS = 1_000
"""Tolerance: above the rounding error from a series to its window and back, below the spacing of samples."""


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Part [from_ns, to_ns) of a series that was `of_ns` long, in nanoseconds since its start."""

    from_ns: int
    to_ns: int
    of_ns: int

    def __str__(self) -> str:
        return f"{self.from_ns / NS_PER_S:.15g} to {self.to_ns / NS_PER_S:.15g} s"


Part = Window | TimeSpan


def split(end_ns: int, window: Part) -> tuple[int, int]:
    """Start and end of a part of a series from 0 to `end_ns`, in nanoseconds of the series.

    Raises:
        UsageError: unknown window. NotFoundError: the series does not reach to the end of the span.
    """
    if isinstance(window, TimeSpan):
        if window.to_ns > end_ns:
            raise NotFoundError(f"the series ends at {end_ns / NS_PER_S:g} s; {window} of it were run")
        return window.from_ns, window.to_ns
    if window not in _SHARES:
        raise UsageError(f"no window is called {window!r}{config.suggestion(window, _SHARES)}")
    first, last = _SHARES[window]
    return round(first * end_ns), round(last * end_ns)


def known_share(window: Part) -> float:
    """Share of the series, in time, to whose mean the variation of a composed set is relative."""
    return min(TRAIN_SHARE, window.from_ns / window.of_ns) if isinstance(window, TimeSpan) else TRAIN_SHARE


def known_ns(end_ns: int, window: Part) -> int:
    """End of the training data of a run of `window`, ns of the series.

    It is that of the training share, or the beginning of a span that begins inside it.
    """
    learned_ns = split(end_ns, "test")[0]
    return min(learned_ns, window.from_ns) if isinstance(window, TimeSpan) else learned_ns


@dataclass(frozen=True, slots=True)
class SeriesIdentity:
    """Series that a run was made from, as recorded in its header.

    `origin_epoch_ns` and `length_ns` are those of the window that was run; `digest` is of the whole series.
    """

    origin_epoch_ns: int
    length_ns: int
    digest: str

    def extent(self, window: Part, stretch: float = 1.0) -> tuple[int, int]:
        """First and last time of the samples of the whole series, epoch ns, if `window` of it was run.

        `stretch` is that of the time axis. Widened by less than the spacing of any two samples.
        """
        if isinstance(window, TimeSpan):
            begin_ns, whole_ns = self.origin_epoch_ns - window.from_ns, float(window.of_ns)
        else:
            first, last = _SHARES[window]
            whole_ns = self.length_ns / (last - first)
            begin_ns = self.origin_epoch_ns - round(first * whole_ns)
        return begin_ns - _SLACK_NS, begin_ns + round(whole_ns / stretch) + _SLACK_NS
