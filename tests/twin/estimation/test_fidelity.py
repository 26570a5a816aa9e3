"""Predictions stay as close to measurements as docs/measured/fidelity.md says, and the page is current."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.twin import fidelity
from benchmarks.twin.fidelity_tables import calibration, judged
from benchmarks.twin.measured_memory import MEMORY_SETS
from benchmarks.twin.measured_runs import DATA_SETS
from twin.calibration.residual_quantiles import MODELS
from twin.costs.memory import needed_bytes

pytestmark = [pytest.mark.shared, pytest.mark.usefixtures("shared")]


@pytest.mark.parametrize(
    ("title", "mean", "worst"),
    [
        ("vTrain, 1-8 A100", 0.10, 0.35),
        ("Megatron SC'21, 32-3,072 A100", 0.05, 0.10),
        ("vTrain, 64 and 512 A100", 0.10, 0.50),
        ("Megatron 2022, sequence parallel", 0.06, 0.10),
        ("MLPerf GPT-3 175B", 0.10, 0.16),
        ("Megatron 2020, V100 and A100", 0.06, 0.15),
        ("Perseus, measured stage times", 0.04, 0.06),
        ("ByteDance, measured stage times", 0.07, 0.10),
    ],
)
def test_iteration_times(title: str, mean: float, worst: float) -> None:
    (data,) = (data for data in DATA_SETS if data.title == title)
    one = judged(data)
    assert one.mape <= mean
    assert np.max(np.abs(one.error)) <= worst


def test_vtrain_ranks_plans_as_measured() -> None:
    one = judged(DATA_SETS[0])
    assert np.quantile(np.abs(one.error), 0.9) <= 0.25
    assert one.spearman >= 0.95


def test_the_interval_is_that_of_the_calibration_rows() -> None:
    one = calibration(DATA_SETS[0])
    low, high = np.quantile(one.measured / one.predicted, [0.1, 0.9])
    assert MODELS.low == pytest.approx(low, abs=1e-3)
    assert MODELS.high == pytest.approx(high, abs=1e-3)
    assert MODELS.rows == len(one.rows)


def test_memory_peaks() -> None:
    sets = [judged(data) for data in MEMORY_SETS[:3]]
    predicted = np.concatenate([one.predicted for one in sets])
    measured = np.concatenate([one.measured for one in sets])
    assert np.mean(np.abs(predicted / measured - 1)) <= 0.10
    allowed = np.array([needed_bytes(peak) for peak in predicted])
    assert np.all(measured <= allowed), "a run that B_max allows would have run out of memory"


def test_the_page_is_current(repository: Path) -> None:
    page = (repository / "docs" / "measured" / "fidelity.md").read_text(encoding="utf-8")
    assert page == fidelity.page(), "run python -m benchmarks.twin.fidelity --write PAGE"
