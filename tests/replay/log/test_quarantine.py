"""Quarantine: what is wrong is moved and named, nothing is deleted, and what is left is whole."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import Output, twin
from ingest.core.errors import LockedError, NotFoundError
from replay.log.compaction import compact
from replay.log.quarantine import quarantine
from replay.log.run_log import RunReader, RunWriter
from tests.support.histories import history, totals, write


def everything(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write(tmp_path / "runs" / "a", flush_events=50)
    return tmp_path / "runs" / "a"


def test_a_clean_run_is_left_alone(run: Path) -> None:
    assert quarantine(run).files == ()
    assert not (run.parents[1] / "quarantine").exists()


def test_foreign_files_go_and_the_run_stays(run: Path) -> None:
    (run / "notes.txt").write_text("x")
    (run / "folder").mkdir()
    (run / "folder" / "inner").write_text("y")
    (run / "link").symlink_to("notes.txt")
    before = everything(run.parents[1])
    moved = quarantine(run)
    assert [finding.file for finding in moved.files] == ["folder", "link", "notes.txt"]
    assert all("does not belong" in finding.problem for finding in moved.files)
    assert everything(run.parents[1]) == before
    assert RunReader(run).verify() == [] and RunReader(run).finished
    (run / "notes.txt").write_text("z")
    assert quarantine(run).folder != moved.folder, "nothing in quarantine is replaced"


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_from_the_damage_on_all_goes_and_the_run_can_be_resumed(run: Path, ending: str) -> None:
    digest = RunReader(run).digest()
    path = sorted(run.glob(f"*.{ending}"))[2]
    path.write_bytes(b"damaged")
    before = everything(run.parents[1])
    moved = quarantine(run)
    reasons = {finding.file: finding.problem for finding in moved.files}
    assert path.name in reasons and "does not follow" not in reasons[path.name]
    assert len(reasons) == len(list(before)) - 4, "two segments of two files are left"
    assert everything(run.parents[1]) == before
    assert RunReader(run).verify() == [] and RunReader(run).contents().end == 51
    with RunWriter.open(run) as writer:
        for sim_ns, kind, payload, wall in history():
            writer.append(sim_ns, kind, payload, wall=wall)
        assert writer.finish(totals(), sim_ns=3600 * 10**9)[0] == digest


def test_a_missing_segment_takes_what_follows_it_along(run: Path) -> None:
    sorted(run.glob("*.parquet"))[1].unlink()
    quarantine(run)
    assert RunReader(run).verify() == [] and RunReader(run).contents().end == 1


def test_a_damaged_compacted_run_goes_whole(run: Path) -> None:
    compact(run, piece_events=120)
    piece = max(run.glob("*.parquet"))
    piece.write_bytes(piece.read_bytes()[:-1])
    before = everything(run.parents[1])
    moved = quarantine(run)
    assert {finding.file for finding in moved.files} == set(before)
    assert everything(run.parents[1]) == before


def test_who_writes_is_not_disturbed(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "runs" / "a") as writer:
        writer.append(*next(history())[:3])
        with pytest.raises(LockedError):
            quarantine(tmp_path / "runs" / "a")
    with pytest.raises(NotFoundError):
        quarantine(tmp_path / "runs" / "b")


def invoke(store: Path, *words: str) -> tuple[int, dict[str, object]]:
    result = CliRunner().invoke(twin, [*words, "--store", str(store), "--json"], obj=Output())
    return result.exit_code, json.loads(result.stdout.splitlines()[0])


def test_the_commands(run: Path) -> None:
    store = run.parents[1]
    code, report = invoke(store, "audit", "a", "--since", "200")
    assert (code, report["ok"], report["events"]) == (0, True, 84)
    assert invoke(store, "audit", "a", "--quarantine") == (
        0, {"schema": "twin.quarantine/1", "run": "a", "folder": None, "files": []}
    )  # fmt: skip
    first = min(run.glob("*.parquet"))
    whole = first.read_bytes()
    first.write_bytes(whole[:-1] + b"x")
    assert invoke(store, "audit", "a", "--since", "200")[0] == 0, "earlier events are not read"
    assert invoke(store, "audit", "a", "--since", "0")[0] == 3
    first.write_bytes(whole)
    code, done = invoke(store, "compact", "a")
    assert (code, done["files_before"], done["files"]) == (0, 7, 1)
    (run / "x").write_text("")
    assert len(invoke(store, "audit", "a", "--quarantine")[1]["files"]) == 1  # type: ignore[arg-type]
