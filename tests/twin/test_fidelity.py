"""The twin's predictions stay as close to measured iterations as they were when its constants were set."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def fidelity(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fidelity", repository / "benchmarks" / "fidelity.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fidelity"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.shared
@pytest.mark.parametrize(
    ("table", "mean", "worst"),
    [
        ("vtrain_ground_truth_single.csv", 0.10, 0.35),
        ("megatron_sc21_weak_scaling.csv", 0.05, 0.10),
        ("megatron_2020_dp_scaling.csv", 0.06, 0.15),
    ],
)
def test_predicted_against_measured(
    shared: Path, fidelity: ModuleType, table: str, mean: float, worst: float
) -> None:
    cases = list(fidelity.TABLES[table](shared / "validation" / table))
    error = np.array([abs(case.predict_s() / case.measured_s - 1) for case in cases])
    assert error.mean() <= mean
    assert error.max() <= worst
