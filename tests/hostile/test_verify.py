"""`twin verify` names every damaged file of a store, with what to do, and repairs nothing."""

import json
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import Output, twin
from ingest.core import durable
from tests.support.rot import KINDS, Rot, flip

pytest.importorskip("cryptography", reason="extra `sign`")


@pytest.fixture(scope="module")
def rot(tmp_path_factory: pytest.TempPathFactory) -> Rot:
    return Rot.made(tmp_path_factory.mktemp("verify"))


def verify(store: Path) -> tuple[int, dict[str, object]]:
    told = CliRunner().invoke(twin, ["verify", "--store", str(store), "--json"], obj=Output())
    return told.exit_code, json.loads(told.stdout)


def test_a_whole_store_is_clean(rot: Rot) -> None:
    code, report = verify(rot.kept)
    clean = {"schema": "twin.verify/1", "store": str(rot.kept), "ok": True, "findings": [], "notes": []}
    assert (code, report) == (0, clean)
    assert "clean" in CliRunner().invoke(twin, ["verify", "--store", str(rot.kept)], obj=Output()).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_and_left_as_it_is(rot: Rot, tmp_path: Path, kind: str) -> None:
    store = tmp_path / "store"
    shutil.copytree(rot.kept, store)
    path = max(store.glob(KINDS[kind]))
    flip(path, random.Random(kind))
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    code, report = verify(store)
    assert code == 3 and path.name in json.dumps(report["findings"])
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_damaged_part_does_not_hide_another(rot: Rot, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(rot.kept, store)
    parts = sorted(store.glob(KINDS["lake part"]))
    for path in parts:
        flip(path, random.Random(0))
    code, report = verify(store)
    assert isinstance(report["findings"], list)
    assert (code, [one["file"] for one in report["findings"]]) == (3, [str(path) for path in parts])
    assert all(one["part"] == "lake" and "--drop" in one["problem"] for one in report["findings"])


def test_a_lost_run_is_a_finding_and_a_part_without_a_manifest_a_note(rot: Rot, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(rot.kept, store)
    stray = store / "lake/link_samples/dataset=x" / f"{'0' * 64}.parquet"
    durable.put(stray, b"of a killed ingest")
    code, report = verify(store)
    assert code == 0 and isinstance(report["notes"], list) and str(stray) in report["notes"][0]
    shutil.rmtree(store / "runs" / "a")
    code, report = verify(store)
    assert code == 3 and str(store / "heads/a.json") in json.dumps(report["findings"])
