"""Links composed of several data sets: level, variation, round trips, caps, and where each came from."""

from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.units import NS_PER_S
from ingest.pipeline.ingest import ingest
from twin.scenario import prepare
from twin.settings.wan_links import WanSettings
from twin.traces import measured_links
from twin.traces.link_samples import LinkSamples
from twin.traces.relative_variation import varied

S = NS_PER_S
HEADER = "ts,src,dst,bandwidth_bps,rtt_s,streams,kind,duration_s\n"
TOML = 'reader = "columns"\ntable = "link_samples"\n'
GRID = """\
2022-01-01T00:00:00Z,a,b,4e9,0.2,64,tcp,5
2022-01-01T00:00:00Z,b,a,2e9,,64,tcp,5
2022-01-01T00:00:00Z,a,c,6e9,0.1,64,tcp,5
2022-01-01T00:00:00Z,c,a,6e9,,64,tcp,5
2022-01-01T00:00:00Z,b,c,8e9,0.3,64,tcp,5
2022-01-01T00:00:00Z,c,b,8e9,0.5,64,tcp,5
"""


def wave(src: str, dst: str, *rates: float) -> str:
    stamps = (f"2024-01-01T00:0{n}:00Z" for n in range(len(rates)))
    return "".join(f"{ts},{src},{dst},{rate},,1,tcp,10\n" for ts, rate in zip(stamps, rates, strict=True))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    sets = {"grid": GRID, "waves": wave("a", "b", 1e8, 3e8, 2e8, 4e8) + wave("x", "y", 5e7, 5e7, 1e8, 1e8)}
    for name, rows in sets.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "dataset.toml").write_text(TOML)
        (tmp_path / name / "links.csv").write_text(HEADER + rows)
        ingest([tmp_path / name], tmp_path / "store")
    return tmp_path / "store"


def recipe(**changes: object) -> WanSettings:
    level, waves = {"dataset": "grid"}, {"dataset": "waves"}
    base = {"level": level, "variation": waves, "rtt": level, "streams": 64, "cap_bps": 1e12}
    return WanSettings.model_validate(base | changes)


def test_level_times_relative_variation(store: Path) -> None:
    wan = measured_links.load(store, recipe(), ["a", "b", "c"], train_share=0.5)
    # a > b varies by itself: 1, 3, 2, 4 over the mean of the first half, 2
    assert wan.series[0, 1].bandwidth_bps.tolist() == [2e9, 6e9, 4e9, 8e9]
    # b > a is the second borrower, after a > c, and so borrows x > y: 5, 5, 10, 10 over 5
    assert wan.series[1, 0].bandwidth_bps.tolist() == [2e9, 2e9, 4e9, 4e9]
    assert (wan.end_ns, wan.series[0, 1].times_ns.tolist()) == (180 * S, [0, 60 * S, 120 * S, 180 * S])
    # round trips of the grid, those of the other direction where it has none
    assert [float(wan.series[p].latency_s[0]) for p in ((0, 1), (1, 0), (2, 1))] == [0.1, 0.1, 0.25]
    for part in (
        "64 streams x median single-stream rate of grid (",
        "variation of waves (",
        "medians of grid (",
    ):
        assert part in wan.note
    assert "borrowed and rotated in time by 5 links" in wan.note


def test_borrowed_variation_is_rotated_inside_each_share() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 70.0, 80.0, 90.0, 100.0])
    links = {("x", "y"): LinkSamples(np.arange(10) * S, values, np.full(10, np.nan))}
    level = {(i, j): 1.0 for i in range(3) for j in range(3) if i != j}
    found, borrowed = varied(level, links, ["a", "b", "c"], 6 / 9)
    assert borrowed == 6
    rows = [link.single_bps * 3.5 for link in found.values()]
    assert rows[0].tolist() == pytest.approx(values.tolist())
    for row in rows:
        assert sorted(row[:6]) == pytest.approx([1, 2, 3, 4, 5, 6])
        assert sorted(row[6:]) == pytest.approx([70, 80, 90, 100])
    assert len({tuple(row.round(6)) for row in rows}) == 6


def test_caps_round_trips_and_a_stretched_time_axis(store: Path) -> None:
    spec = WanSettings.model_validate(
        {
            "dataset": "waves", "streams": 20, "cap_bps": 5e9, "stretch": 10, "sites": {"p": "a", "q": "b"},
            "rtt": {"dataset": "grid", "sites": {"p": "a", "q": "b"}},
            "cap": {"dataset": "grid", "sites": {"p": "a", "q": "b"}},
        }
    )  # fmt: skip
    with pytest.raises(UsageError, match="no bandwidth sample from 'b' to 'a'"):
        measured_links.load(store, spec, ["p", "q"])
    (store.parent / "waves" / "more.csv").write_text(HEADER + wave("b", "a", 1e8, 1e8))
    ingest([store.parent / "waves"], store)
    wan = measured_links.load(store, spec, ["p", "q"])
    assert wan.series[0, 1].bandwidth_bps.tolist() == [
        2e9,
        4e9,
        4e9,
        4e9,
    ]  # 20 streams, no more than the grid's
    assert wan.series[1, 0].bandwidth_bps.tolist() == [2e9, 2e9]
    assert (wan.end_ns, wan.series[1, 0].times_ns.tolist()) == (1800 * S, [0, 600 * S])
    assert wan.series[0, 1].latency_s.tolist() == [0.1] * 4
    assert "stretched 10-fold" in wan.note and "no more than the median that grid (" in wan.note


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"level": {"dataset": "grit"}}, NotFoundError, "no link samples of 'grit'"),
        ({"variation": {"dataset": "wave"}}, NotFoundError, "no link samples of 'wave'"),
        ({"level": {"dataset": "waves"}}, UsageError, "no site 'c'"),
        ({"cap": {"dataset": "waves"}}, UsageError, "no site 'c'"),
        ({"rtt": None}, UsageError, "no round-trip time"),
        ({"level": {"dataset": "grid", "file": "other.csv"}}, UsageError, "no site 'a'"),
    ],
)
def test_what_a_recipe_lacks_is_named(
    store: Path, changes: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        measured_links.load(store, recipe(**changes), ["a", "b", "c"])


def test_load_and_capacity_are_no_links_and_available_is_not_scaled(store: Path) -> None:
    rows = wave("a", "b", 1e9).replace("tcp", "available") + wave("b", "a", 3e9, 2e9).replace(
        "tcp", "available"
    )
    (store.parent / "left").mkdir()
    (store.parent / "left" / "dataset.toml").write_text(TOML)
    load = wave("a", "b", 7e9).replace("tcp", "load") + wave("a", "b", 8e9).replace("tcp", "capacity")
    (store.parent / "left" / "links.csv").write_text(HEADER + rows + load)
    ingest([store.parent / "left"], store)
    spec = WanSettings(dataset="left", streams=32, cap_bps=1e10, default_rtt_s=0.1)
    wan = measured_links.load(store, spec, ["a", "b"])
    assert wan.series[0, 1].bandwidth_bps.tolist() == [1e9]
    assert wan.series[1, 0].bandwidth_bps.tolist() == [3e9, 2e9]


@pytest.mark.parametrize(
    "given", [{}, {"dataset": "a", "level": {"dataset": "b"}}, {"level": {"dataset": "b"}}]
)
def test_a_recipe_names_one_way_to_the_links(given: dict) -> None:
    with pytest.raises(ValueError, match="either dataset, or level and variation"):
        WanSettings.model_validate({"streams": 1, "cap_bps": 1, **given})


def test_a_data_set_on_the_command_line_replaces_the_whole_recipe() -> None:
    spec = prepare.load("octo-175b").wan
    assert (spec.title, spec.stretch, [what for what, _ in spec.sources]) == (
        "wanify-aws8",
        4,
        ["rtt", "cap"],
    )
    alone = spec.replaced("synthetic-octo")
    assert (alone.title, alone.stretch, alone.sources) == ("synthetic-octo", 1, ())
    planet = prepare.load("planet-405b").wan
    assert planet.title == "skyplane-grids x wanify-aws8"
    assert planet.replaced("mine").title == "mine"
