"""The twin's predictions stay as close to measurements as docs/fidelity.md says, and the page is current."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def fidelity(repository: Path, shared: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fidelity", repository / "benchmarks" / "fidelity.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fidelity"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("title", "mean", "worst"),
    [
        ("vTrain, 1-8 A100", 0.10, 0.35),
        ("Megatron SC'21, 32-3,072 A100", 0.05, 0.10),
        ("Megatron 2020, V100 and A100", 0.06, 0.15),
        ("Perseus, measured stage times", 0.04, 0.06),
        ("ByteDance, measured stage times", 0.07, 0.10),
    ],
)
def test_iteration_times(fidelity: ModuleType, title: str, mean: float, worst: float) -> None:
    (data,) = (data for data in fidelity.DATA_SETS if data.title == title)
    one = fidelity.judged(data)
    assert one.mape <= mean
    assert np.max(np.abs(one.error)) <= worst


def test_vtrain_ranks_plans_as_measured(fidelity: ModuleType) -> None:
    one = fidelity.judged(fidelity.DATA_SETS[0])
    assert np.quantile(np.abs(one.error), 0.9) <= 0.25
    assert one.spearman >= 0.95


def test_the_interval_is_that_of_the_calibration_rows(fidelity: ModuleType) -> None:
    one = fidelity.calibration(fidelity.DATA_SETS[0])
    low, high = np.quantile(one.measured / one.predicted, [0.1, 0.9])
    assert fidelity.MODELS.low == pytest.approx(low, abs=1e-3)
    assert fidelity.MODELS.high == pytest.approx(high, abs=1e-3)
    assert fidelity.MODELS.rows == len(one.rows)


def test_memory_peaks(fidelity: ModuleType) -> None:
    sets = [fidelity.judged(data) for data in fidelity.MEMORY_SETS[:2]]
    predicted = np.concatenate([one.predicted for one in sets])
    measured = np.concatenate([one.measured for one in sets])
    assert np.mean(np.abs(predicted / measured - 1)) <= 0.10
    allowed = np.array([fidelity.memory.needed_bytes(peak) for peak in predicted])
    assert np.all(measured <= allowed), "a run that B_max allows would have run out of memory"


def test_the_page_is_current(fidelity: ModuleType, repository: Path) -> None:
    page = (repository / "docs" / "fidelity.md").read_text(encoding="utf-8")
    assert page == fidelity.page(), "run: python benchmarks/fidelity.py --write docs/fidelity.md"
