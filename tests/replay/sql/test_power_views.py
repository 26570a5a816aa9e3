"""Power of a run over time: its integral is the energy that the run had before."""

from pathlib import Path

import pytest

from replay.log.run_log import RunReader
from replay.report import charts
from replay.report.run_data import fold_run
from replay.sql.query import query


def test_the_integral_of_power_is_the_energy_of_the_run(kept_store: Path) -> None:
    runs = sorted((kept_store / "runs").iterdir())
    assert runs
    for run in runs:
        data, kpis = fold_run(RunReader(run).events())
        (row,) = query(
            kept_store,
            "SELECT sum(energy_j) AS energy, sum(power_w * (end_s - start_s)) AS integral, count(*) AS n, "
            f"min(power_w) AS low, max(end_s) AS until FROM power WHERE run = '{run.name}'",
        ).to_pylist()
        assert row["energy"] == pytest.approx(kpis.energy_j, rel=1e-12)
        assert row["integral"] == pytest.approx(kpis.energy_j, rel=1e-9)
        assert data.energy_j == kpis.energy_j > 0
        assert row["n"] > 1 and row["low"] > 0 and row["until"] == pytest.approx(kpis.wall_s)
        section = charts.power(data)
        assert section is not None
        (chart,) = section.data["charts"]
        assert f"{kpis.energy_j / 3.6e6:,.4g} kWh" in chart.note
