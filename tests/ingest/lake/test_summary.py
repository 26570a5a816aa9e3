import json
from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import NotFoundError, UsageError
from ingest.lake.summary import COLUMNS, Line, sparkline, summarise
from ingest.pipeline.ingest import ingest

TOML = 'name = "mine"\nreader = "columns"\ntable = "link_samples"\nlicence = "MIT"\nsynthetic = true\n'


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two links: one in two blocks of 1 min steps with an hour between, one regular; one short run inside."""
    folder = tmp_path / "mine"
    folder.mkdir()
    rows = ["ts,src,dst,bandwidth_bps,duration_s"]
    rows += [f"2024-01-01T0{h}:{m:02d}:00Z,a,b,{100 + m % 2},10" for h in (0, 1) for m in range(10)]
    rows += [f"2024-01-01T00:{m:02d}:00Z,b,a,{200},10" for m in range(10)]
    rows += ["2024-01-01T00:00:30Z,a,b,900,1"]
    (folder / "links.csv").write_text("\n".join(rows) + "\n")
    (folder / "dataset.toml").write_text(TOML)
    ingest([folder], tmp_path / "store")
    return tmp_path / "store"


def only(store: Path) -> Line:
    (line,) = summarise(store).lines
    return line


def test_a_line_says_what_there_is(store: Path) -> None:
    line = only(store)
    assert (line.dataset, line.table, line.rows) == ("mine", "link_samples", 31)
    assert (line.series, line.series_kind) == (2, "links")
    assert (line.first, line.last) == ("2024-01-01T00:00:00Z", "2024-01-01T01:09:00Z")
    assert (line.licence, line.synthetic) == ("MIT", True)


def test_gaps_and_coverage_are_per_series(store: Path) -> None:
    line = only(store)
    assert line.interval_s == 60
    assert line.gaps == 1
    # a > b: 51 of 69 minutes are a gap; b > a has none; the median of two is their mean.
    assert line.coverage == pytest.approx((1 - 51 / 69 + 1) / 2, rel=1e-3)


def test_short_runs_do_not_count_as_samples_of_the_series(store: Path) -> None:
    spread = 0.5 / 100.5
    assert only(store).cv == pytest.approx(spread / 2, rel=1e-3)


def test_json_has_a_schema_and_the_columns_of_a_row(store: Path) -> None:
    document = json.loads(json.dumps(summarise(store).to_json()))
    assert document["schema"] == "twin.traces/1"
    assert set(document["columns"]) <= set(document["rows"][0])
    assert tuple(document["columns"]) == COLUMNS


def test_an_empty_lake_has_no_lines(tmp_path: Path) -> None:
    assert summarise(tmp_path).lines == ()


def test_tables_without_a_series_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "cost"
    folder.mkdir()
    (folder / "prices.csv").write_text("src,dst,usd_per_gb\na,b,0.02\nb,a,0.09\n")
    (folder / "dataset.toml").write_text('reader = "columns"\ntable = "prices"\n')
    ingest([folder], tmp_path / "store")
    line = only(tmp_path / "store")
    assert (line.table, line.rows, line.series, line.series_kind) == ("prices", 2, 2, "rows")
    assert line.first is None
    assert line.interval_s is None
    assert line.licence == "not stated"


def test_sparkline_is_scaled_to_its_largest_and_blank_where_there_is_nothing() -> None:
    times = np.array([0.0, 1, 2, 9])
    assert sparkline(times, np.array([1.0, 4, 8, 8]), width=9) == "▁▄█     █"
    assert sparkline(times, np.zeros(4), width=9) == "▁▁▁     ▁"


def test_a_plot_shows_every_series_and_is_the_same_each_time(tmp_path: Path) -> None:
    from ingest.lake.plot import picture

    rows = [
        f"2024-01-01T{n // 60:02d}:{n % 60:02d}:00Z,a,{dst},{100 + n},0.1" for n in range(900) for dst in "bc"
    ]
    (tmp_path / "set").mkdir()
    (tmp_path / "set/l.csv").write_text("\n".join(["ts,src,dst,bandwidth_bps,rtt_s", *rows]) + "\n")
    ingest([tmp_path / "set"], tmp_path / "store")
    drawn = picture(tmp_path / "store", "set", Path("x.svg"))
    assert drawn == picture(tmp_path / "store", "set", Path("y.SVG"))
    text = drawn.decode()
    assert text.startswith("<?xml") and "a &gt; b -->" in text and "a &gt; c -->" in text
    assert text.count("900 samples, CV") == 2 and "dotted: mean" in text
    with pytest.raises(NotFoundError, match="did you mean 'set'"):
        picture(tmp_path / "store", "sett", Path("x.svg"))
    drawn = picture(tmp_path / "store", "set", Path("x.png"))
    assert drawn.startswith(b"\x89PNG") and drawn == picture(tmp_path / "store", "set", Path("y.png"))
    with pytest.raises(UsageError, match=r"--plot x.pdf: the name must end in .svg or .png"):
        picture(tmp_path / "store", "set", Path("x.pdf"))


def test_rates_and_round_trips_of_one_set_are_not_mixed(tmp_path: Path) -> None:
    rows = [f"2024-01-01T00:{n:02d}:00Z,a,b,{100 if n % 2 else ''},{'' if n % 2 else 0.1}" for n in range(20)]
    (tmp_path / "set").mkdir()
    (tmp_path / "set/l.csv").write_text("\n".join(["ts,src,dst,bandwidth_bps,rtt_s", *rows]) + "\n")
    ingest([tmp_path / "set"], tmp_path / "store")
    (line,) = summarise(tmp_path / "store").lines
    assert (line.rows, line.series, line.cv, line.interval_s) == (20, 1, 0.0, 120.0)
