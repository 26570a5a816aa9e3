"""What `--from` and `--to` mean in a series, and what is refused."""

import numpy as np
import pytest

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from tests.support.worlds import toy_wan
from twin.settings.window import TimeSpan
from twin.traces.time_range import TimeRange
from twin.traces.wan_trace import WanTrace, trace

S = NS_PER_S
MIDNIGHT_S = 1_773_014_400
"""2026-03-09T00:00:00Z, a Monday."""
WEEK = 7 * 86_400


def week(origin_s: int = MIDNIGHT_S + 3600) -> WanTrace:
    """A week of links from one o'clock in the morning on."""
    wan = toy_wan(2, seconds=WEEK)
    return trace(wan.names, wan.series, wan.end_ns, origin_s * S)


def span(begin: str | None, end: str | None, earliest_s: int = 0, **how: bool) -> tuple[float, float]:
    cut = TimeRange.parse(begin, end)
    assert cut is not None
    found = cut.of(week(), earliest_s * S, **how)
    assert found.of_ns == WEEK * S
    return found.from_ns / S, found.to_ns / S


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        ("3600", "7200.5", (3600, 7200.5)),
        ("0", None, (0, WEEK)),
        ("604799", None, (604_799, WEEK)),
        (None, "604800", (0.7 * WEEK, WEEK)),
        ("2026-03-10", "2026-03-11", (82_800, 169_200)),  # Tuesday: 23 h after Monday, 1 o'clock
        ("2026-03-10T00:00:00+01:00", "2026-03-10T00:00:00.25Z", (79_200, 82_800.25)),
        ("3600", "2026-03-09 03:00", (3600, 7200)),
        ("2026-03-09T01:00Z", "1e3", (0, 1000)),
    ],
)
def test_times_count_from_the_start_or_are_calendar_times(begin, end, expected) -> None:
    assert span(begin, end) == expected


def test_without_either_nothing_is_cut() -> None:
    assert TimeRange.parse(None, None) is None
    assert str(TimeSpan(3600 * S, 5400 * S, WEEK * S)) == "3600 to 5400 s"
    assert str(TimeSpan(S // 2, 86_400_250 * S // 1000, WEEK * S)) == "0.5 to 86400.25 s"


WHOLE = r"from 0 s \(2026-03-09T01:00:00Z\) to 604800 s \(2026-03-16T01:00:00Z\)"


@pytest.mark.parametrize(
    ("begin", "end", "message"),
    [
        ("7200", "3600", r"--to 3600 s \(2026-03-09T02:00:00Z\) is not after --from 7200 s"),
        ("60", "60", "is not after --from 60 s"),
        (None, "60", "where the test window begins; give --from too"),
        ("0", "604801", rf"--to 604801 s \(2026-03-16T01:00:01Z\): the series goes {WHOLE}"),
        ("2026-03-16T01:00", None, rf"--from 604800 s .* goes {WHOLE}"),
        ("2026-03-09", None, rf"--from -3600 s .* goes {WHOLE}"),
        ("-1", None, rf"--from -1 s .* goes {WHOLE}"),
        ("0", "1e200", "--to .* s: the series goes"),
        ("Tuesday", None, "--from 'Tuesday': write seconds since the start of the series"),
        ("2026-13-01", None, "--from '2026-13-01': write seconds"),
        ("", None, "--from '': write seconds"),
        ("0", "nan", "--to 'nan': not a time"),
        ("0", "1e308", "--to '1e308': not a time"),
    ],
)
def test_what_is_not_there_is_refused_with_what_there_is(begin, end, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        span(begin, end)


def test_a_span_without_a_past_is_refused_with_the_earliest_that_has_one() -> None:
    assert span("600", None, earliest_s=600) == (600, WEEK)
    with pytest.raises(
        UsageError, match=r"too little came before it .* begin at 600 s .*T01:10:00Z\) or later"
    ):
        span("599.9", None, earliest_s=600)


def test_samples_without_stamps_have_no_calendar_time() -> None:
    cut = TimeRange.parse("2026-03-10", None)
    assert cut is not None
    with pytest.raises(UsageError, match=r"carry no calendar times; give seconds .* 0 s to 604800 s\)"):
        cut.of(week(origin_s=12), 0)
    with pytest.raises(UsageError, match="carry no calendar times"):
        span("2026-03-10", None, stretched=True)
    assert span("3600", "7200", stretched=True) == (3600, 7200)


def test_calendar_times_are_exact_to_the_microsecond() -> None:
    begin, end = span("2026-03-09T01:00:00.000001Z", "2026-03-09T01:00:00.000003Z")
    assert np.rint([begin * S, end * S]).tolist() == [1000, 3000]
