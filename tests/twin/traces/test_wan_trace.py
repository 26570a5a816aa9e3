from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.units import NS_PER_S
from ingest.lake import lake
from ingest.pipeline.ingest import ingest
from tests.support.worlds import toy_wan
from twin.settings.wan_links import WanSettings
from twin.traces import measured_links
from twin.traces.wan_trace import LinkSeries, trace

S = NS_PER_S


def series(*samples: tuple[float, float, float]) -> LinkSeries:
    times, bandwidth, latency = zip(*samples, strict=True)
    return LinkSeries(np.array([round(t * S) for t in times]), np.array(bandwidth), np.array(latency))


def two(ab: LinkSeries, ba: LinkSeries, seconds: float = 100):
    return trace(("a", "b"), {(0, 1): ab, (1, 0): ba}, round(seconds * S))


WAN = two(series((10, 1.0, 0.1), (20, 2.0, 0.2), (50, 3.0, 0.2)), series((0, 5.0, 0.3), (20, 6.0, 0.3)))


def test_a_sample_holds_until_the_next_and_the_first_also_before() -> None:
    got = [WAN.at(t * S).bandwidth_bps[0, 1] for t in (0, 9, 10, 19, 20, 49, 50, 99)]
    assert got == [1, 1, 1, 1, 2, 2, 3, 3]
    assert WAN.at(20 * S - 1).latency_s[0, 1] == 0.1
    assert np.isinf(WAN.at(0).bandwidth_bps[1, 1])
    assert WAN.at(0).latency_s[1, 1] == 0


def test_changes_are_sorted_by_time_then_link_and_lie_inside() -> None:
    times, i, j, bandwidth, latency = WAN.changes()
    assert times.tolist() == [10 * S, 20 * S, 20 * S, 50 * S]
    assert list(zip(i.tolist(), j.tolist(), strict=True)) == [(0, 1), (0, 1), (1, 0), (0, 1)]
    assert bandwidth.tolist() == [1, 2, 6, 3]
    assert latency.tolist() == [0.1, 0.2, 0.3, 0.2]


def test_breakpoints_are_distinct_and_begin_at_zero() -> None:
    assert WAN.breakpoints().tolist() == [0, 10 * S, 20 * S, 50 * S]


def test_a_window_shows_the_same_world_with_a_clock_of_its_own() -> None:
    part = WAN.window(15 * S, 60 * S)
    assert (part.start_ns, part.end_ns, part.origin_epoch_ns) == (0, 45 * S, 15 * S)
    for t in range(45):
        a, b = part.at(t * S), WAN.at((15 + t) * S)
        assert np.array_equal(a.bandwidth_bps, b.bandwidth_bps)
        assert np.array_equal(a.latency_s, b.latency_s)


def test_a_window_knows_nothing_of_what_follows() -> None:
    part = WAN.window(0, 40 * S)
    assert max(link.times_ns[-1] for link in part.series.values()) < 40 * S
    other = two(series((10, 1.0, 0.1), (20, 2.0, 0.2), (50, 9.0, 0.2)), WAN.series[1, 0])
    assert other.window(0, 40 * S).digest == part.digest
    assert other.digest != WAN.digest


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [(0, 1.0, 0.1), (0, 2.0, 0.1)],
        [(1, 1.0, 0.1), (0, 2.0, 0.1)],
        [(0, -1.0, 0.1)],
        [(0, np.nan, 0.1)],
        [(0, 1.0, np.inf)],
    ],
)
def test_a_series_that_makes_no_sense_is_refused(samples: list) -> None:
    columns = list(zip(*samples, strict=True)) or [(), (), ()]
    with pytest.raises(ValueError, match="link series"):
        LinkSeries(np.array(columns[0], np.int64), np.array(columns[1]), np.array(columns[2]))


def test_a_trace_needs_every_ordered_pair() -> None:
    with pytest.raises(ValueError, match="every ordered pair"):
        trace(("a", "b"), {(0, 1): WAN.series[0, 1]}, 100)
    with pytest.raises(ValueError, match="is not inside"):
        WAN.window(0, 101 * S)


def test_digest_depends_on_content_alone() -> None:
    assert toy_wan(3).digest == toy_wan(3).digest
    assert len({toy_wan(3).digest, toy_wan(3, seconds=601).digest, toy_wan(3, bps=1e9).digest}) == 3


HEADER = "ts,src,dst,bandwidth_bps,rtt_s,streams,kind,duration_s\n"
TOML = 'name = "mine"\nreader = "columns"\ntable = "link_samples"\n'


def store_of(folder: Path, rows: str, toml: str = TOML) -> Path:
    data = folder / "mine"
    data.mkdir()
    (data / "links.csv").write_text(HEADER + rows)
    (data / "dataset.toml").write_text(toml)
    ingest([data], folder / "store")
    return folder / "store"


ROWS = """\
2024-01-01T00:00:00Z,a,b,1e8,0.2,1,tcp,10
2024-01-01T00:00:03Z,a,b,9e8,0.2,1,tcp,1
2024-01-01T00:01:00Z,a,b,3e8,,4,tcp,10
2024-01-01T00:02:00Z,a,b,9e8,0.4,1,tcp,10
2024-01-01T00:00:30Z,b,a,2e8,,1,tcp,10
"""


def spec(**changes: object) -> WanSettings:
    base = {"dataset": "mine", "streams": 8, "min_duration_s": 5, "cap_bps": 2e9, "default_rtt_s": 0.3}
    return WanSettings.model_validate(base | changes)


def test_samples_are_scaled_by_streams_capped_and_halved(tmp_path: Path) -> None:
    wan = measured_links.load(store_of(tmp_path, ROWS), spec(), ["a", "b"])
    ab, ba = wan.series[0, 1], wan.series[1, 0]
    assert (ab.times_ns / S).tolist() == [0, 60, 120]  # the 1 s row is left out
    assert ab.bandwidth_bps.tolist() == [8e8, 6e8, 2e9]  # x 8, x 8/4, capped
    assert ab.latency_s.tolist() == [0.1, 0.1, 0.2]  # the missing one takes the one before
    assert (ba.times_ns / S).tolist() == [30]
    assert ba.latency_s.tolist() == [0.15]  # declared
    assert wan.end_ns == 120 * S
    assert wan.origin_epoch_ns == 1_704_067_200 * S
    assert "8 streams" in wan.note
    assert "2 Gb/s" in wan.note


def test_sites_may_have_other_names_than_domains(tmp_path: Path) -> None:
    wan = measured_links.load(store_of(tmp_path, ROWS), spec(sites={"paris": "a"}), ["paris", "b"])
    assert wan.names == ("paris", "b")


@pytest.mark.parametrize(
    ("rows", "changes", "domains", "error", "message"),
    [
        (ROWS, {"dataset": "synthetic-tri"}, ["a", "b"], NotFoundError, "run `twin ingest shipped`"),
        (ROWS, {"dataset": "other"}, ["a", "b"], NotFoundError, "choose one of: mine with --dataset"),
        (ROWS, {}, ["a", "bb"], UsageError, "no site 'bb'; did you mean 'b'?; name the site"),
        (
            ROWS,
            {"default_rtt_s": None},
            ["a", "b"],
            UsageError,
            "no round-trip time from 'b' to 'a': declare",
        ),
        (ROWS, {}, ["a", "b", "zz"], UsageError, "no site 'zz'; known: a, b; name the site"),
        (ROWS, {"min_duration_s": 60}, ["a", "b"], UsageError, "no bandwidth sample of 60 s or longer"),
        (
            ROWS.splitlines(keepends=True)[0] + "2024-01-01T00:00:00Z,b,a,1e8,0.2,1,tcp,10\n",
            {},
            ["a", "b"],
            UsageError,
            "one instant only",
        ),
        (
            "".join(ROWS.splitlines(keepends=True)[:4]),
            {},
            ["a", "b"],
            UsageError,
            "no bandwidth sample of 5 s or longer from 'b'",
        ),
    ],
)
def test_what_is_missing_is_named_with_the_way_out(
    tmp_path: Path, rows: str, changes: dict, domains: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        measured_links.load(store_of(tmp_path, rows), spec(**changes), domains)
    assert message in str(caught.value)


def test_an_empty_lake_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="run `twin ingest` on the folder of mine"):
        measured_links.load(tmp_path, spec(), ["a", "b"])


@pytest.mark.parametrize(
    ("name", "origin"), [("wanify-aws8", "wanify-aws8"), ("geant-available", "geant-traffic-matrices")]
)
def test_a_public_set_says_where_it_comes_from(tmp_path: Path, name: str, origin: str) -> None:
    with pytest.raises(NotFoundError, match=f"run `twin fetch {origin}`"):
        measured_links.load(tmp_path, spec(dataset=name), ["a", "b"])


def test_a_small_window_lets_go_of_the_series() -> None:
    link = LinkSeries(np.arange(1000) * NS_PER_S, np.arange(1000.0), np.zeros(1000))
    small, large = link.window(0, 100 * NS_PER_S), link.window(0, 900 * NS_PER_S)
    assert small.bandwidth_bps.base is None and small.latency_s.base is None
    assert large.bandwidth_bps.base is link.bandwidth_bps
    np.testing.assert_array_equal(small.bandwidth_bps, link.bandwidth_bps[:100])


AVAILABLE = """\
2024-01-01T00:00:00Z,a,b,1e8,0.2,,available,
2024-01-01T00:01:00Z,a,b,3e8,,,available,
2024-01-01T00:00:30Z,b,a,2e8,,,available,
"""


@pytest.mark.parametrize(
    ("rows", "rate"),
    [
        (ROWS, "8 streams x measured single-stream rate of mine ({digest})"),
        (AVAILABLE, "measured available rate of mine ({digest})"),
        (
            AVAILABLE + "2024-01-01T00:02:00Z,b,a,2e7,,,tcp,10\n",
            "measured available rate of mine ({digest}), "
            "elsewhere 8 streams x measured single-stream rate of mine ({digest})",
        ),
    ],
    ids=["tcp", "available", "both"],
)
def test_the_note_says_which_samples_were_multiplied(tmp_path: Path, rows: str, rate: str) -> None:
    store = store_of(tmp_path, rows)
    wan = measured_links.load(store, spec(), ["a", "b"])
    said = rate.format(digest=lake.digest(store, "mine")[:12])
    assert wan.note.startswith(f"available bandwidth = min(2 Gb/s, {said}); one-way latency")


@pytest.mark.parametrize(
    ("kind", "rate"),
    [
        ("available", "{mine}: worked out"),
        ("tcp", "8 streams x measured single-stream rate of {mine}: worked out"),
    ],
)
def test_a_computed_set_says_how_and_what_is_multiplied(tmp_path: Path, kind: str, rate: str) -> None:
    store = store_of(tmp_path, AVAILABLE.replace("available", kind), TOML + 'derived = "worked out"\n')
    wan = measured_links.load(store, spec(), ["a", "b"])
    said = rate.format(mine=f"mine ({lake.digest(store, 'mine')[:12]})")
    assert wan.note.startswith(f"available bandwidth = min(2 Gb/s, {said}); one-way latency")


def test_datagrams_and_offered_load_are_no_bandwidth_of_a_link(tmp_path: Path) -> None:
    others = "".join(f"2024-01-01T00:01:30Z,a,b,1e6,,1,{kind},10\n" for kind in ("udp", "load", "capacity"))
    wan = measured_links.load(store_of(tmp_path, ROWS + others), spec(), ["a", "b"])
    assert (wan.series[0, 1].times_ns / S).tolist() == [0, 60, 120]
