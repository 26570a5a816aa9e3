"""Factors from runs that were made with known factors, runs that cannot show them, and the store."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import cli
from ingest.core.errors import InputError
from ingest.pipeline.ingest import ingest
from twin.calibration import calibration
from twin.calibration.calibration import Calibration
from twin.calibration.least_squares import Fit
from twin.calibration.run_factors import BETWEEN, COMPUTE, INSIDE, RunFactors
from twin.cases import table_reader
from twin.cases.case import Case
from twin.cases.measured_steps import MeasuredStep
from twin.cases.resolve import resolve
from twin.cases.run_learning import fit, learn, not_identifiable, predicted_s, terms_s
from twin.cases.table_answers import constants_of, estimate

BASE = Calibration("", {}, {})
TRUE = {COMPUTE: 1.3, INSIDE: 2.0, BETWEEN: 1.6}
SHAPE = {
    "gpu_model": "A100-80", "layers": "8", "hidden": "8192", "seq": "2048", "recompute": "none",
    "micro_batch": "4",
}  # fmt: skip
ALONE = {"global_batch": "16"}
TENSOR = {"tp": "8", "global_batch": "16"}
NODES = {"dp": "16", "global_batch": "64", "inter_node_bps": "1e10"}


def _case(**cells: str) -> Case:
    return resolve(table_reader.parse({**SHAPE, **cells}))


def _made(*plans: dict[str, str]) -> list[tuple[Case, MeasuredStep]]:
    """Runs as the twin predicts them with the factors `TRUE`."""
    fits = {name: Fit({"factor": value}, 1, None, 0.0) for name, value in TRUE.items()}
    known = Calibration("", {}, {}, RunFactors({"A100-80": fits}, (), ""))
    cases = [_case(**plan) for plan in plans]
    return [(case, MeasuredStep(predicted_s(case, known), 1, "made")) for case in cases]


def test_known_factors_are_recovered() -> None:
    learned = fit(BASE, _made(ALONE, TENSOR, NODES), "")
    assert learned.calibration.runs is not None
    found = learned.calibration.runs.gpus["A100-80"]
    assert {name: one.values["factor"] for name, one in found.items()} == pytest.approx(TRUE, rel=1e-3)
    assert learned.left == ()
    for run in learned.runs:
        assert run.after_s == pytest.approx(run.step.seconds, rel=1e-4)


def test_one_device_shows_computing_alone_and_the_difference_lies_there() -> None:
    learned = fit(BASE, _made(ALONE), "")
    assert learned.calibration.runs is not None
    (name,) = learned.calibration.runs.gpus["A100-80"]
    assert name == COMPUTE
    assert {gone for _, gone, _ in learned.left} == {INSIDE, BETWEEN}
    shown = learned.runs[0].to_json()
    assert shown["difference_s"]["tensor-parallel"] == shown["difference_s"]["reduction"] == 0
    assert shown["unexplained_s"] == pytest.approx(0, abs=1e-3)


def test_one_tensor_parallel_run_shows_a_sum_and_no_factor() -> None:
    learned = fit(BASE, _made(TENSOR), "")
    assert learned.calibration.runs is not None and learned.calibration.runs.gpus == {"A100-80": {}}
    reasons = {name: why for _, name, why in learned.left}
    assert "these 1 runs tell 1 of 2 factors apart" in reasons[COMPUTE]
    assert reasons[BETWEEN].startswith("changes none")


def test_identifiable_by_hand() -> None:
    """Columns alike: their difference is silent, (1, -1) / sqrt 2; the third stands alone."""
    alike = np.array([[0.5, 0.5, 0.0], [0.4, 0.4, 0.0], [0.1, 0.1, 0.8]])
    assert set(not_identifiable(alike)) == {COMPUTE, INSIDE}
    assert not_identifiable(np.eye(3)) == {}
    assert set(not_identifiable(np.zeros((2, 3)))) == {COMPUTE, INSIDE, BETWEEN}


def test_terms_add_up() -> None:
    case = _case(**NODES, tp="2", pp="2")
    found = terms_s(case, BASE)
    assert sum(found.values()) == pytest.approx(predicted_s(case, BASE))
    assert all(seconds > 0 for seconds in found.values())


def test_kept_with_provenance_and_used_by_estimate(tmp_path: Path) -> None:
    """Of every step the slowest worker counts: 3 s."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/step_times.csv").write_text(
        "job,worker,step,time_s\nj,a,1,3\nj,b,1,1\nj,a,2,3\nj,b,2,2\n"
    )
    store, runs = tmp_path / "store", tmp_path / "runs.csv"
    ingest([tmp_path / "jobs"], store)
    names = [*SHAPE, "global_batch", "run"]
    runs.write_text(f"{','.join(names)}\n{','.join(SHAPE.values())},16,jobs/j\n")
    before = estimate(runs).rows[0][1]
    result = CliRunner().invoke(cli.twin, ["--store", str(store), "calibrate", "--runs", str(runs), "--json"])
    body = json.loads(result.output)
    assert body["schema"] == "twin.runs/1" and body["runs"][0]["measured_s"] == 3
    kept = calibration.find(store, "latest")
    assert kept.runs is not None and kept.runs.runs[0]["source"] == "jobs/j, step times"
    after = estimate(runs, constants_of(store)).rows[0][1]
    assert after.iter_s == pytest.approx(3, rel=1e-3) and after.basis.startswith("calibration")
    assert estimate(runs).rows[0][1].iter_s == before.iter_s
    plain = CliRunner().invoke(cli.twin, ["--store", str(store), "calibrate", "--runs", str(runs)])
    assert "factors on times" in plain.output


@pytest.mark.parametrize(
    ("column", "cell", "why"),
    [("run", "jobs/none", "no step times of 'jobs/none' on A100-80"), ("measured_s", "0", "longer than 0"),
     ("case", "x", "give either measured_s, or run")],
)  # fmt: skip
def test_rows_without_a_measured_time(tmp_path: Path, column: str, cell: str, why: str) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/step_times.csv").write_text("job,worker,step,time_s\nj,a,1,3\n")
    ingest([tmp_path / "jobs"], tmp_path / "store")
    runs = tmp_path / "runs.csv"
    runs.write_text(f"{','.join(SHAPE)},global_batch,{column}\n{','.join(SHAPE.values())},16,{cell}\n")
    with pytest.raises(InputError, match=why):
        learn(tmp_path / "store", runs)
