"""The doctor: what it finds in a sound installation, in a broken one, and what compiling leaves."""

import sys
from pathlib import Path

import pytest

from ingest.core.compiled import kept
from replay.health import diagnosis, installation, kernels, stored_files
from replay.health.check import Check
from tests.support.histories import write


def test_a_sound_installation_is_told_in_order(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a", decisions=2)
    found = diagnosis.diagnose(tmp_path)
    names = [check.name for check in found.checks]
    assert found.ok and found.compiled is None and found.to_json()["schema"] == "twin.doctor/1"
    for name in ("python", "packages", "torch", "traces", "scenarios", "kernels", "weights", "store", "disk"):
        assert name in names, name


def test_what_is_damaged_is_broken_and_named(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a", decisions=2)
    segment = next((tmp_path / "runs" / "a").glob("*.parquet"))
    segment.write_bytes(b"x")
    found = [check for check in stored_files.store_health(tmp_path) if check.state == "broken"]
    assert found and segment.name in found[0].found


def test_a_store_that_is_not_there_yet_is_no_fault(tmp_path: Path) -> None:
    store, disk = stored_files.store_health(tmp_path / "none")
    assert store.state == "note" and disk.state in ("ok", "note") and not (tmp_path / "none").exists()


def test_a_torch_that_cannot_be_loaded_is_broken_and_ends_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert installation.torch().state == "broken"
    found = diagnosis.diagnose(tmp_path, compile_kernels=True)
    assert not found.ok and "kernels" not in [check.name for check in found.checks]


def test_missing_shipped_files_are_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.core.resources.root", lambda: tmp_path)
    assert [check.state for check in installation.shipped()] == ["broken", "broken"]


def test_every_kernel_of_a_first_decision_is_one() -> None:
    found = kernels.all_kernels()
    assert set(kernels.FIRST) <= set(found) and len(found) > 100


def test_kernels_that_are_not_kept_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "kept", lambda kernel: False)
    check = kernels.check()
    assert check.state == "note" and check.way == "twin doctor --compile" and check.found.startswith("0 of ")
    monkeypatch.setattr(kernels, "kept", lambda kernel: True)
    assert kernels.check().state == "ok"


def test_compiling_plays_and_leaves_kernels_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "POLICIES", ("static",))
    count = kernels.compile_first(processes=1)
    found = kernels.all_kernels()
    assert count == len(kernels.used()) > 0
    assert "twin.pipeline.kernel._standard" in kernels.used()
    assert kept(found["twin.pipeline.kernel._standard"])


def test_a_check_is_told_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    from commands.show import doctor
    from commands.show.console import Console

    made = diagnosis.Diagnosis((Check("disk", "broken", "full", "free space"),), 3)
    doctor.diagnosis(Console(), made)
    told = capsys.readouterr().out
    assert "broken  disk" in told and "-> free space" in told and told.endswith("1 broken\n")
    assert "3 kernels" in told
