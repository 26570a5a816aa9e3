"""iperf3: runs and seconds, warm-up, and between whom a run was."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.formats import RUN, iperf_bytes, second


def test_iperf3_run_and_second_rows(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({RUN: iperf_bytes()})
    run, first, last = sql(
        "SELECT source_row, ts, src, dst, bandwidth_bps, rtt_s, retransmits, streams, kind, duration_s "
        "FROM link_samples ORDER BY source_row"
    )
    start = datetime.fromtimestamp(1627916111, UTC).replace(tzinfo=None)
    assert run == (0, start, "lon", "syd", 79e6, pytest.approx(0.281), 7, 1, "tcp", 2.0)
    # three seconds of warm-up are left out, and the seconds that count lie after them
    assert (first[0], (first[1] - start).total_seconds(), first[4]) == (4, 3.0, 80e6)
    assert (last[0], (last[1] - start).total_seconds(), last[5]) == (5, 4.0, pytest.approx(0.280004))


@pytest.mark.parametrize(
    ("path", "ends"),
    [
        ("host-lon/target-syd/baseline/time-x/baseline_host_target_direct_0.res", ("lon", "syd")),
        ("host-lon/target-syd/baseline/time-x/baseline_target_host_direct_0.res", ("syd", "lon")),
        ("host-lon/target-syd/proxy-fra/time-x/bw_host_target_direct_3.res", ("lon", "syd")),
        ("host-lon/target-syd/proxy-fra/time-x/bw_proxy_target_direct.res", ("fra", "syd")),
        ("host-lon/target-syd/proxy-fra/time-x/bw_proxy_host_direct.res", ("fra", "lon")),
        (
            "host-us-east4-a_gcp/target-us-west-2_aws/b/bw_host_target_direct.res",
            ("us-east4-a_gcp", "us-west-2_aws"),
        ),
    ],
)
def test_iperf3_direction_stands_in_the_path(put, path: str, ends: tuple[str, str]) -> None:  # type: ignore[no-untyped-def]
    assert put({path: iperf_bytes()})("SELECT DISTINCT src, dst FROM link_samples") == [ends]


@pytest.mark.parametrize(
    "path",
    [
        "host-lon/target-syd/time-x/baseline_host_host_direct_0.res",  # says who sends, not to whom
        "host-lon/target-syd/time-x/bw_proxy_target_direct.res",  # no proxy in the path
        "lon-to-syd.json",
    ],
)
def test_iperf3_without_a_direction_is_rejected_not_guessed(put, path: str) -> None:  # type: ignore[no-untyped-def]
    sql = put({path: iperf_bytes()})
    assert sql("SELECT count(*) FROM link_samples") == [(0,)]
    assert sql('SELECT "column", raw FROM rejects') == [("path", path)]


def connected(name: str = "10.0.1.7", reverse: int = 0, server: bool = False, **more: Any) -> bytes:
    """A run from 10.0.0.5 to 10.0.1.7, as either of them writes it."""
    near, far = ("10.0.1.7", "10.0.0.5") if server else ("10.0.0.5", "10.0.1.7")
    side = {"accepted_connection": {"host": near}} if server else {"connecting_to": {"host": name}}
    start = {
        "connected": [{"local_host": near, "remote_host": far}],
        "version": "iperf 3.16",
        "timestamp": {"timesecs": 1627916111},
        "test_start": {"protocol": "TCP", "num_streams": 1, "reverse": reverse},
    }
    return iperf_bytes(start=start | side | more)


NAMED = b'[sites]\n"10.0.0.5" = "paris"\n"10.0.1.7" = "oslo"\n'


@pytest.mark.parametrize(
    ("content", "toml", "ends"),
    [
        (connected(), NAMED, ("paris", "oslo")),
        (connected(reverse=1), NAMED, ("oslo", "paris")),
        (connected(server=True), NAMED, ("paris", "oslo")),
        (connected(), b'[values]\nsrc = "lyon"\ndst = "rome"\n', ("lyon", "rome")),
        (connected(), b'[values]\nsrc = "lyon"\n' + NAMED, ("lyon", "oslo")),
        (
            connected("oslo.example"),
            b'[sites]\n"10.0.0.5" = "paris"\n"oslo.example" = "oslo"\n',
            ("paris", "oslo"),
        ),
    ],
)
def test_iperf3_ends_come_from_dataset_toml(put, content: bytes, toml: bytes, ends: tuple[str, str]) -> None:  # type: ignore[no-untyped-def]
    sql = put({"run.json": content, "dataset.toml": toml})
    assert sql("SELECT DISTINCT src, dst FROM link_samples") == [ends]
    assert sql("SELECT count(*) FROM rejects") == [(0,)]


@pytest.mark.parametrize(
    ("content", "toml", "reason"),
    [
        (connected(), b"", "[sites] of the addresses, of 10.0.0.5 and of 10.0.1.7"),
        (connected(), b'[sites]\n"10.0.0.5" = "paris"\n', "[values] src and dst, or [sites]"),
        (connected("x.example"), b"", "of 10.0.0.5 and of 10.0.1.7 or x.example"),
        (connected(reverse=1), b'[values]\nsrc = "a"\ndst = "b"\n', "reversed (-R)"),
        (connected(connected=[7], test_start=7, connecting_to=None), b"", "[values] src and dst"),
        (b'{"start": {"connected": [], "version": "iperf 3.16"}, "error": "no route"}', b"", "no route"),
    ],
)
def test_iperf3_without_two_ends_says_how_to_give_them(put, content: bytes, toml: bytes, reason: str) -> None:  # type: ignore[no-untyped-def]
    sql = put({"run.json": content, "dataset.toml": toml})
    ((reason_stored,),) = sql("SELECT reason FROM rejects")
    assert reason in reason_stored and sql("SELECT count(*) FROM link_samples") == [(0,)]


def test_iperf3_with_two_warm_up_seconds_and_reverse(put) -> None:  # type: ignore[no-untyped-def]
    document = iperf_bytes(
        warm_up=2,
        start={
            "version": "iperf 3.9",
            "timestamp": {"timesecs": 1627916111},
            "test_start": {"protocol": "TCP", "num_streams": 4, "reverse": 1},
        },
    )
    sql = put({RUN: document})
    assert sql("SELECT DISTINCT src, dst, streams FROM link_samples") == [("syd", "lon", 4)]
    assert sql("SELECT epoch_ns(ts) - 1627916111000000000 FROM link_samples ORDER BY ts") == [
        (0,),
        (2_000_000_000,),
        (3_000_000_000,),
    ]


def test_seconds_of_an_iperf3_run_that_never_warmed_up(put) -> None:  # type: ignore[no-untyped-def]
    sql = put({RUN: iperf_bytes(intervals=[second(0, 0.0, True)])})
    assert sql("SELECT count(*) FROM link_samples") == [(1,)]  # the run itself
