"""The energy files beside the repository, counted independently."""

import csv
from pathlib import Path

import polars as pl
import pytest

from ingest.core.errors import InputError
from ingest.lake import duckdb_views
from ingest.pipeline.ingest import ingest

pytestmark = pytest.mark.shared


def test_intensities_and_prices_come_in_as_they_are(shared: Path, tmp_path: Path) -> None:
    folders = [shared / "energy" / name for name in ("carbon-intensity", "electricity-price")]
    report = ingest(folders, tmp_path / "store")
    assert all(file.rejected == 0 for file in report.files)
    sql = duckdb_views.connect(tmp_path / "store")
    with (folders[0] / "DE-LU_2024_hourly.csv").open(encoding="utf-8") as file:
        direct = [float(row["Carbon Intensity gCO₂eq/kWh (direct)"]) for row in csv.DictReader(file)]
    held = sql.execute(
        "SELECT direct_g_per_kwh FROM carbon_intensity WHERE zone = 'DE' ORDER BY ts"
    ).fetchall()
    assert [row[0] for row in held] == direct
    assert sql.execute("SELECT count(DISTINCT zone) FROM carbon_intensity").fetchone() == (4,)
    with (folders[1] / "DE-LU_electricity_prices_2024.csv").open(encoding="utf-8") as file:
        prices = [float(row["Price (USD/MWh)"]) for row in csv.DictReader(file)]
    assert min(prices) < 0
    found = sql.execute(
        "SELECT usd_per_mwh FROM electricity_prices WHERE zone = 'DE-LU' ORDER BY ts"
    ).fetchall()
    assert [row[0] for row in found] == prices


def test_the_surf_week_comes_in_with_its_date(shared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "surf-power"
    folder.mkdir()
    for name in ("consumption", "carbon", "tasks"):
        (folder / f"{name}.parquet").symlink_to(shared / f"energy/surf-power/{name}.parquet")
    assert all(file.rejected == 0 for file in ingest([folder], tmp_path / "store").files)
    sql = duckdb_views.connect(tmp_path / "store")
    power = pl.read_parquet(shared / "energy/surf-power/consumption.parquet")
    found = sql.execute("SELECT count(*), sum(power_w), min(ts)::VARCHAR FROM host_samples").fetchone()
    assert found == (len(power), power["power_draw"].sum(), "2022-10-06 22:00:30")
    assert sql.execute("SELECT count(*) FROM jobs").fetchone() == (7850,)
    assert sql.execute("SELECT DISTINCT zone FROM carbon_intensity").fetchall() == [("surf-power",)]


def test_a_table_without_its_columns_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    pl.DataFrame({"timestamp": [1]}).write_parquet(folder / "consumption.parquet")
    with pytest.raises(InputError, match="no column power_draw"):
        ingest([folder], tmp_path / "store")
