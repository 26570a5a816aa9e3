"""Runs of pScheduler, value by value."""

import json
from datetime import datetime

import pytest

from ingest.readers.links.pscheduler import seconds
from tests.support.kits_links import DELAYS, HOPS, ROUND_TRIPS, listed, scheduled

AT = datetime(2026, 3, 1)


def test_throughput_is_that_of_the_whole_run(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({"a.json": json.dumps(scheduled(parallel=4)).encode()})
    found = sql(
        "SELECT ts, src, dst, kind, bandwidth_bps, retransmits, streams, duration_s FROM link_samples"
    )
    assert found == [(AT, "a.example", "b.example", "tcp", 9.4e9, 7, 4, 30.0)]


def test_delays_of_each_test(put) -> None:  # type: ignore[no-untyped-def]
    """13 ms is the mean of two packets at 12.5 and one at 14; the last hops of both paths take 60.5 s."""
    runs = (scheduled("rtt", ROUND_TRIPS), scheduled("latency", DELAYS), scheduled("trace", HOPS))
    sql = put({"a.json": listed(*runs)})
    found = sql(
        "SELECT round(rtt_s, 9), round(one_way_s, 9), loss FROM link_samples ORDER BY source_row, rtt_s"
    )
    assert found == [(0.0315, None, 0.25), (None, 0.013, 0.25), (60.5, None, None), (60.5, None, None)]


def test_a_run_a_line_with_a_reversed_and_a_nameless_end(put) -> None:  # type: ignore[no-untyped-def]
    """Without `source` the first participant runs the test; buckets of 100 us."""
    back = scheduled("latency", DELAYS, reverse=True, **{"bucket-width": 1e-4})
    alone = scheduled(source=None) | {"participants": [{"host": "here.example"}]}
    late = alone | {"schedule": {"start": "2026-03-01T02:00:00+02:00"}}
    sql = put({"a.json": "".join(json.dumps(run) + "\n" for run in (back, alone, late)).encode()})
    found = sql("SELECT ts, src, dst, round(one_way_s, 9) FROM link_samples ORDER BY source_row")
    assert found == [
        (AT, "b.example", "a.example", 0.0013),
        (AT, "here.example", "b.example", None),
        (AT, "here.example", "b.example", None),
    ]


def test_packets_that_never_came_back_have_no_delay(put) -> None:  # type: ignore[no-untyped-def]
    gone = {"sent": 2, "loss": 1.0, "roundtrips": [{"seq": 1, "error": "timeout"}]}
    some = {"sent": 2, "loss": 0.5, "roundtrips": [{"rtt": "PT0.02S"}, {"rtt": "PT0.04S"}, {}]}
    sql = put({"a.json": listed(scheduled("rtt", gone), scheduled("rtt", some))})
    assert sql("SELECT rtt_s, loss FROM link_samples ORDER BY source_row") == [(None, 1.0), (0.03, 0.5)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("PT0.0315S", 0.0315), ("PT1M0.5S", 60.5), ("P1DT2H", 93_600), ("PT40S", 40)],
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "40", "PT-1S", None, 3])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)
