"""Scratch folders: deleted at the end, and after a kill by the next process, but never while in use."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.core.scratch import PREFIX, Scratch
from tests.support.processes import environment

HOLD = """
import sys, time
from pathlib import Path
from ingest.core.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]))
(scratch.path / "spilled").write_bytes(b"x" * 1000)
print(scratch.path, flush=True)
time.sleep(60)
"""


def test_a_folder_and_what_is_in_it_go_at_the_end(tmp_path: Path) -> None:
    with Scratch(tmp_path) as scratch:
        assert scratch.path is not None and scratch.path.parent == tmp_path
        assert scratch.path.stat().st_mode & 0o077 == 0, "others cannot look into it"
        (scratch.path / "deep").mkdir()
        (scratch.path / "deep" / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []
    scratch.close()


def test_left_overs_of_a_killed_process_go_and_those_of_a_living_one_stay(
    tmp_path: Path, repository: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True,
        env=environment(repository, tmp_path),
    ) as other:  # fmt: skip
        assert other.stdout is not None
        held = Path(other.stdout.readline().strip())
        with Scratch(tmp_path) as scratch:
            assert scratch.path != held and (held / "spilled").exists()
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert held.exists()
    with Scratch(tmp_path):
        assert not held.exists()


def test_only_its_own_folders_are_swept(tmp_path: Path) -> None:
    for name in ("runs", "scratch-x", f"x{PREFIX}"):
        (tmp_path / name).mkdir()
    (tmp_path / f"{PREFIX}file").write_text("a file")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "runs")
    before = sorted(tmp_path.iterdir())
    Scratch(tmp_path).close()
    assert sorted(tmp_path.iterdir()) == before


def test_there_is_none_where_there_is_no_folder(tmp_path: Path) -> None:
    with Scratch(tmp_path / "missing") as scratch:
        assert scratch.path is None
    assert not (tmp_path / "missing").exists()


def test_without_a_folder_named_it_lies_with_the_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.core.scratch.tempfile.tempdir", str(tmp_path))
    with Scratch() as scratch:
        assert scratch.path is not None and scratch.path.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_there_is_none_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr("ingest.core.scratch.tempfile.mkdtemp", refuse)
    with Scratch(tmp_path) as scratch:
        assert scratch.path is None
