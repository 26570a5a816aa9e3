"""Time ranges as typed ("--from 3600", "--to 2020-01-01T02:00"), resolved to a span of a series."""

from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S, to_ns
from twin.settings.window import TimeSpan, split
from twin.traces.wan_trace import WanTrace

Moment = int | datetime
"""Nanoseconds since the start of a series, or a calendar time with its zone."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_CLOCK_NS = 365 * 86_400 * NS_PER_S
"""Series that begin before 1971 carry no calendar times: they count from a start of their own."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Begin and end of a part of a series; None: the begin of the test window, the end of the series."""

    begin: Moment | None = None
    end: Moment | None = None

    @classmethod
    def parse(cls, begin: str | None, end: str | None) -> "TimeRange | None":
        """Range of `--from` and `--to`, None where neither is given.

        Raises:
            UsageError: one is neither a number of seconds nor an ISO 8601 time.
        """
        if begin is None and end is None:
            return None
        return cls(_moment("--from", begin), _moment("--to", end))

    def of(self, whole: WanTrace, earliest_ns: int, stretched: bool = False) -> TimeSpan:
        """Span of `whole`; filters need the past before `earliest_ns` for training.

        Raises:
            UsageError: it is empty, not inside the series, or begins too early; or it is given in calendar
                times, and the series carries none, or its time axis is `stretched`.
        """
        clock = whole.origin_epoch_ns >= _FIRST_CLOCK_NS and not stretched
        known = f"the series goes from {_text(whole, 0, clock)} to {_text(whole, whole.end_ns, clock)}"
        begin_ns = _since_start(whole, "--from", self.begin, clock, known)
        end_ns = _since_start(whole, "--to", self.end, clock, known)
        first_ns = split(whole.end_ns, "test")[0] if begin_ns is None else begin_ns
        last_ns = whole.end_ns if end_ns is None else end_ns
        for option, at_ns, inside in (
            ("--from", first_ns, 0 <= first_ns < whole.end_ns),
            ("--to", last_ns, 0 < last_ns <= whole.end_ns),
        ):
            if not inside:
                raise UsageError(f"{option} {_text(whole, at_ns, clock)}: {known}")
        if first_ns >= last_ns:
            begins = _text(whole, first_ns, clock)
            default = "" if self.begin is not None else ", where the test window begins; give --from too"
            raise UsageError(
                f"--to {_text(whole, last_ns, clock)} is not after --from {begins}{default}; {known}"
            )
        if first_ns < earliest_ns:
            raise UsageError(
                f"--from {_text(whole, first_ns, clock)}: too little came before it to fit filters on, and "
                f"what comes after it must not be known; begin at {_text(whole, earliest_ns, clock)} or later"
            )
        return TimeSpan(first_ns, last_ns, whole.end_ns)


def _moment(option: str, text: str | None) -> Moment | None:
    """Time as typed: a number is in seconds, times without a zone are UTC, dates their midnight."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise UsageError(
                f"{option} {text!r}: write seconds since the start of the series, as in 3600, or an ISO 8601 "
                "time (UTC unless it says otherwise), as in 2020-01-01T02:00 or 2020-01-01"
            ) from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if not isfinite(seconds * NS_PER_S):
        raise UsageError(f"{option} {text!r}: not a time; write seconds, or as in 2020-01-01T02:00")
    return to_ns(seconds)


def _since_start(whole: WanTrace, option: str, at: Moment | None, clock: bool, known: str) -> int | None:
    """Moment in nanoseconds since the start of the series."""
    if not isinstance(at, datetime):
        return at
    if not clock:
        raise UsageError(
            f"{option} {at.isoformat()}: the samples of this series carry no calendar times; give seconds "
            f"since its start ({known})"
        )
    since = at - _EPOCH
    return (
        (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1_000 - whole.origin_epoch_ns
    )


def _text(whole: WanTrace, at_ns: int, clock: bool) -> str:
    """Moment of the series in words: "3600 s", with the calendar time if there is one."""
    text = f"{round(at_ns / NS_PER_S, 3):.15g} s"
    epoch_s = (whole.origin_epoch_ns + at_ns) // NS_PER_S
    if not clock or not 0 <= epoch_s < 253_402_300_800:  # the year 10000
        return text
    return f"{text} ({datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%dT%H:%M:%SZ})"
