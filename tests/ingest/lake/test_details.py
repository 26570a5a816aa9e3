import json
from pathlib import Path

import pytest

from ingest.core.errors import NotFoundError
from ingest.lake.details import SeriesFigures, details
from ingest.lake.summary import summarise
from ingest.lake.undated import DEFAULT_START, is_dated
from ingest.pipeline.ingest import ingest

TOML = 'title = "My links"\ncitation = "measured by hand"\nlicence = "MIT"\n'
PING = "PING far (10.0.0.1) 56(84) bytes of data.\n" + "".join(
    f"64 bytes from 10.0.0.1: icmp_seq={n} ttl=56 time={rtt} ms\n" for n, rtt in ((1, 10), (2, 12), (3, 20))
)
DAY_NS = 86_400 * 10**9


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """`mine`: a link every minute for ten, two hours later for ten more. `ping`: probes without dates."""
    for name, file, text in (("mine", "links.csv", ""), ("ping", "ping.txt", PING)):
        (tmp_path / name).mkdir()
        rows = [f"2024-01-01T0{h}:{m:02d}:00Z,a,b,{100 + 10 * h + m}" for h in (0, 2) for m in range(10)]
        (tmp_path / name / file).write_text(text or "\n".join(["ts,src,dst,bandwidth_bps", *rows]) + "\n")
    (tmp_path / "mine" / "dataset.toml").write_text(TOML)
    ingest([tmp_path / "mine", tmp_path / "ping"], tmp_path / "store")
    return tmp_path / "store"


def test_details_say_what_was_stated_and_the_figures_of_every_series(store: Path) -> None:
    found = details(store, "mine")
    assert (found.title, found.source, found.licence) == ("My links", "measured by hand", "MIT")
    assert (found.files, found.rejected, found.synthetic) == (1, 0, False)
    (line,) = found.tables
    assert (line.rows, line.series, line.dated) == (20, 1, True)
    assert found.series == (
        SeriesFigures(
            "link_samples", "a > b", "bandwidth_bps", 20, "2024-01-01T00:00:00Z", "2024-01-01T02:09:00Z",
            interval_s=60.0, gaps=1, longest_gap_s=111 * 60.0, low=100.0, median=114.5, high=129.0,
        ),
    )  # fmt: skip
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert document["schema"] == "twin.dataset/1" and document["series"][0]["gaps"] == 1


def test_a_set_without_dates_is_marked_so(store: Path) -> None:
    dated = {line.dataset: line.dated for line in summarise(store).lines}
    assert dated == {"mine": True, "ping": False}
    found = details(store, "ping")
    assert not found.tables[0].dated and any("no dates" in text for text in found.assumptions)
    assert (found.series[0].column, found.series[0].median) == ("rtt_s", 0.012)


def test_the_arbitrary_day_is_no_invention_where_a_start_was_stated() -> None:
    first_ns = int(DEFAULT_START.timestamp()) * 10**9
    assert not is_dated(first_ns, None) and not is_dated(first_ns + DAY_NS - 1, None)
    assert is_dated(first_ns + DAY_NS, None) and is_dated(first_ns - 1, None)
    assert is_dated(first_ns, DEFAULT_START)


def test_a_name_that_is_not_there_is_told_what_is(store: Path) -> None:
    with pytest.raises(NotFoundError, match=r"\(`twin traces` lists them\); did you mean 'mine'\?"):
        details(store, "mime")
    with pytest.raises(NotFoundError, match="it is empty; `twin ingest shipped`"):
        details(store / "none", "mine")
