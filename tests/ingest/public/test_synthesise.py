import csv
import io
import tomllib
from pathlib import Path

import numpy as np
import pytest

from ingest.core import resources
from ingest.core.errors import InputError
from ingest.lake.schema import TABLES
from ingest.pipeline.ingest import ingest
from ingest.public import synthesise
from ingest.public.link_statistics import FILE_NAME, OCTO_SITES, QUAD_SITES, series_figures


@pytest.fixture(scope="module")
def figures() -> dict:
    return synthesise.read(resources.traces() / FILE_NAME)


@pytest.fixture(scope="module")
def made(figures: dict) -> dict[str, str]:
    return dict(synthesise.files(figures))


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_shipped_files_are_reproduced_byte_for_byte(tmp_path: Path) -> None:
    for path in synthesise.write(tmp_path):
        shipped = resources.traces() / path.relative_to(tmp_path)
        assert path.read_bytes() == shipped.read_bytes(), path.name


def test_a_second_write_touches_nothing(tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in synthesise.write(tmp_path)}
    assert {path: path.stat().st_mtime_ns for path in synthesise.write(tmp_path)} == before


def test_everything_says_that_it_is_synthetic(made: dict[str, str]) -> None:
    for name, text in made.items():
        assert name.startswith("synthetic-")
        if name.endswith(".toml"):
            stated = tomllib.loads(text)
            assert stated["synthetic"] is True
            assert stated["reader"] == "columns"
            assert "synthetic" in stated["assumptions"][0]
        else:
            assert Path(name).name.startswith("synthetic-")


def test_all_of_it_is_small(made: dict[str, str]) -> None:
    assert sum(len(text) for text in made.values()) < 2_000_000


def test_columns_are_canonical(made: dict[str, str]) -> None:
    for name, text in made.items():
        if name.endswith(".csv"):
            header = text.splitlines()[0].split(",")
            known = TABLES["gpu_samples" if "gpu" in name else "link_samples"].names
            assert set(header) <= set(known)


@pytest.mark.parametrize(
    ("name", "sites"),
    [("synthetic-tri", synthesise.TRI_SITES), ("synthetic-quad", QUAD_SITES), ("synthetic-octo", OCTO_SITES)],
)
def test_every_directed_link_is_there(made: dict[str, str], name: str, sites: tuple[str, ...]) -> None:
    found = {(row["src"], row["dst"]) for row in table(made[f"{name}/{name}.csv"])}
    assert found == {(a, b) for a in sites for b in sites if a != b}


def test_levels_and_spread_are_those_of_the_source(figures: dict, made: dict[str, str]) -> None:
    rows = table(made["synthetic-quad/synthetic-quad.csv"])
    for link in figures["links"]["cloudpilot-iperf3"]:
        mine = [float(r["bandwidth_bps"]) for r in rows if (r["src"], r["dst"]) == (link["src"], link["dst"])]
        source = link["bandwidth"]
        assert np.median(mine) == pytest.approx(source["quantiles"][5], rel=0.25)
        assert source["quantiles"][0] <= min(mine) + 1000
        assert max(mine) <= source["quantiles"][-1] + 1000
        assert len(mine) >= 200


def test_series_figures_recover_what_was_put_in() -> None:
    rng = np.random.default_rng(5)
    times = np.arange(20_000) * 30.0
    score = synthesise._gaussian(times, 0.0, 1.0, 300.0, rng)
    got = series_figures(times, np.exp(score))
    # The exponential of a unit OU process has correlation (e^r - 1)/(e - 1), which is 1/e at r = ln(2 - 1/e).
    expected = -300 * np.log(np.log(2 - np.exp(-1)))
    assert got["fast_tau_s"] == pytest.approx(expected, rel=0.2)
    assert got["quantiles"][5] == pytest.approx(1.0, rel=0.1)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"schema": "other"}')
    with pytest.raises(InputError, match="expected 'twin"):
        synthesise.write(tmp_path)
    (tmp_path / FILE_NAME).write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        synthesise.write(tmp_path)


def test_text_of_the_figures_reads_back(figures: dict, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(synthesise.dumps(figures))
    assert synthesise.read(tmp_path / FILE_NAME) == figures


def test_the_figures_are_those_of_the_real_sets(shared: Path, figures: dict, tmp_path: Path) -> None:
    folders = (
        "wan/cloudpilot-iperf3",
        "wan/wanify-aws8",
        "wan/skyplane-grids",
        "gpu/telemetry-h100-dcgm-10hz",
    )
    ingest([shared / "traces" / folder for folder in folders], tmp_path)
    text = synthesise.dumps(synthesise.measure(tmp_path))
    assert text == (resources.traces() / FILE_NAME).read_text()
