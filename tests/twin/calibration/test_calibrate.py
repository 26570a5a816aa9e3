"""Calibration from the profiles that ship: a small lake, constants, the store, and answers that use them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import cli
from ingest.core import resources
from ingest.core.errors import DamageError, NotFoundError
from ingest.pipeline.ingest import ingest
from twin.calibration import calibration
from twin.calibration.calibrate import Profiles, calibrate, timed
from twin.calibration.calibration import Calibration
from twin.calibration.profiled_layers import shape_of
from twin.calibration.uncalibrated import uncalibrated
from twin.cases.table_answers import constants_of, estimate
from twin.core.domain import Domain
from twin.core.gpu_models import preset
from twin.costs.layer_compute import layer_times

H200 = Domain("d", preset("H200"), 8, 8, 3.6e12, 4e11, 3e-6, 8e-6, 0.0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    names = ("profile-nvidia-h200", "operators-nvidia-h200", "telemetry-nvidia-h200")
    ingest([resources.traces() / name for name in names], folder)
    return folder


@pytest.fixture(scope="module")
def fitted(store: Path) -> Calibration:
    return calibrate(store)


def test_constants_of_the_h200(fitted: Calibration) -> None:
    h200 = fitted.gpus["H200"]
    assert h200["product"].values["efficiency"] == pytest.approx(0.69, abs=0.02)
    assert h200["fp8"].values["efficiency"] == pytest.approx(0.64, abs=0.03)
    assert all(fit.better for fit in h200.values())
    assert h200["power"].values["slope_w"] > 300


def test_measured_blocks_are_interpolated_in_the_micro_batch(fitted: Calibration) -> None:
    label = "llama-h4096-a32-kv32-f11008-s4096"
    model = shape_of(label)
    assert model is not None
    measured = {int(size): (f, b) for size, f, b in fitted.blocks["H200"][label]}
    assert fitted(model, H200, 1, 4, "none").forward_s[1] == measured[4][0]
    between = fitted(model, H200, 1, 3, "none").backward_s[1]
    assert between == pytest.approx((measured[2][1] + measured[4][1]) / 2)
    full = fitted(model, H200, 1, 4, "full")
    assert full.backward_s[1] == pytest.approx(sum(measured[4]))


def test_what_was_not_measured_comes_from_the_model(fitted: Calibration) -> None:
    model = shape_of("llama-h4096-a32-kv32-f11008-s4096")
    assert model is not None
    wide = fitted(model, H200, 2, 4, "none")
    assert np.array_equal(
        wide.forward_s,
        layer_times(
            model, H200, 2, 4, "none", calibration.rates_from(H200.gpu, fitted.gpus["H200"])
        ).forward_s,
    )
    other = Domain("d", preset("A100-80"), 8, 8, 2.4e12, 2e11, 3e-6, 8e-6, 0.0)
    same = layer_times(model, other, 1, 4, "none")
    assert np.array_equal(fitted(model, other, 1, 4, "none").forward_s, same.forward_s)
    written = replace(model, attention="materialised")
    assert fitted(written, H200, 1, 4, "none").forward_s[1] > fitted(model, H200, 1, 4, "none").forward_s[1]


def test_kept_in_the_store_and_used(store: Path, fitted: Calibration, tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text(
        "gpu_model,layers,hidden,ffn,seq,global_batch,recompute\nH200,32,4096,11008,4096,8,none\n"
    )
    before = estimate(cases).rows[0][1]
    assert before.basis == "built-in constants"
    path = fitted.save(store)
    fitted.save(store)  # the same again is no error
    assert path.name == f"{fitted.digest}.json"
    loaded = calibration.load(store)
    assert loaded is not None and loaded.digest == fitted.digest
    after = estimate(cases, constants_of(store)).rows[0][1]
    assert after.basis == f"calibration {fitted.digest[:12]}"
    assert after.iter_s != before.iter_s
    result = CliRunner().invoke(cli.twin, ["--store", str(store), "estimate", str(cases), "--json"])
    assert json.loads(result.output)["constants"] == after.basis


def test_the_command_prints_what_it_stores(store: Path) -> None:
    result = CliRunner().invoke(cli.twin, ["--store", str(store), "calibrate", "--json"])
    body = json.loads(result.output)
    assert body["schema"] == "twin.calibration/1"
    assert (store / "calibrations" / f"{body['digest']}.json").is_file()


def test_an_empty_lake_and_a_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="twin ingest shipped"):
        calibrate(tmp_path)
    assert calibration.load(tmp_path) is None
    (tmp_path / "calibration.json").write_text("{}")
    with pytest.raises(DamageError, match="twin calibrate"):
        calibration.load(tmp_path)


def test_a_changed_or_deleted_calibration_is_not_used(fitted: Calibration, tmp_path: Path) -> None:
    named, used = fitted.save(tmp_path), tmp_path / "calibration.json"
    whole = named.read_bytes()
    for path in (named, used):
        path.write_bytes(whole.replace(b'"efficiency": 0.', b'"efficiency": 0.1', 1))
        with pytest.raises(DamageError, match=f"{path.name}: its .*`twin calibrate`"):
            calibration.find(tmp_path, fitted.digest[:8] if path == named else "latest")
        path.write_bytes(whole)
    assert calibration.find(tmp_path, "latest").digest == fitted.digest
    used.unlink()
    with pytest.raises(DamageError, match=r"calibration.json: missing, though .* built-in constants"):
        calibration.load(tmp_path)
    used.mkdir()
    with pytest.raises(DamageError, match="not a regular file"):
        calibration.load(tmp_path)
    used.rmdir()
    fitted.save(tmp_path)
    named.unlink()
    with pytest.raises(DamageError, match="changed or deleted"):
        calibration.load(tmp_path)


def test_rows_of_other_profiles() -> None:
    row = {"model": "", "layer": "", "forward_s": 1.0, "backward_s": 2.0, "tp": 1, "micro_batch": 2}
    aceso = {**row, "layer": "enc-attention-qkv", "param_bytes": 200, "seq": None}
    assert [(one.flops, one.seconds) for one in timed(aceso)] == [(2.0 * 2 * 2048 * 100, 1.0)]
    vidur = {**row, "model": "llama2-7b", "layer": "mlp_down_proj", "param_bytes": None, "seq": 10, "tp": 2}
    assert [one.flops for one in timed(vidur)] == [2.0 * 2 * 10 * 4096 * 11008 / 2]
    assert list(timed({**row, "param_bytes": None, "seq": None})) == []


def test_rows_without_a_fit_are_listed_with_the_reason(
    store: Path, fitted: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert uncalibrated(store, fitted) == ()
    layer = {"gpu_model": "V100-16"}
    sent = {"gpu_model": "H200", "ranks": 16, "nodes": 2}
    found = Profiles(
        [layer] * 3 + [{"gpu_model": "abacus"}],
        [sent] * 9 + [{**sent, "nodes": 1}] * 2 + [{**sent, "gpu_model": "abacus"}],
        [],
    )
    monkeypatch.setattr("twin.calibration.uncalibrated.profiles", lambda _: found)
    assert [(one.gpu, one.what, one.rows, one.why.split()[0]) for one in uncalibrated(store, fitted)] == [
        ("V100-16", "layers", 3, "no"),
        ("abacus", "layers", 1, "the"),
        ("H200", "intra-node all-reduce", 2, "fewer"),
        ("H200", "inter-node, 8 a node, all-reduce", 9, "no"),
        ("abacus", "all-reduces", 1, "the"),
    ]
    shown = CliRunner().invoke(cli.twin, ["--store", str(store), "calibrate"]).output
    assert "not fitted" in shown and "abacus" in shown
