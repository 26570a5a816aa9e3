"""Every registered command with a standard output that is full, closed, or whose reader has gone."""

import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cli
from replay.inventory.backup import back_up
from replay.inventory.places import Folder
from replay.training.retrain import RetrainResult
from replay.training.train import TrainingResult
from tests.contract.test_commands import words
from tests.support.command_cases import COMMANDS
from tests.support.private_devices import FULL, device

CASES = {case.split()[0]: case for case in reversed(COMMANDS)}
"""The first case of each command that has any."""
OTHERS = {
    "profile": ["profile", "{tmp}/measured"],
    "restore": ["restore", "{tmp}/copy"],
    "serve": ["serve", "-s", "tri-7b", "-p", "static", "--port", "0"],
    "completion": ["completion", "bash"],
    "lab": ["lab", "--json"],
    "train": ["train"],
    "retrain": ["retrain", "--once"],
}
"""Commands whose work takes minutes, a network or a second store: it is replaced by its result."""


@pytest.fixture
def store(kept_store: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept_store, tmp_path / "store")
    return tmp_path / "store"


def said(name: str, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a command that prints something; its long work is replaced."""
    if name in CASES:
        return ["--store", str(store), *words(CASES[name], tmp_path)]
    trained = TrainingResult("run-1", "ab" * 32, Path("x.pt"), -1.5, 2.0, 3, True, True)
    retrained = RetrainResult("run-1", None, "ab" * 32, False, "because", (), "cd" * 32)
    lab = SimpleNamespace(to_json=lambda: {"schema": "twin.lab/1"})
    for target, result in (
        ("replay.training.train.train", trained), ("replay.training.retrain.retrain", retrained),
        ("twin.calibration.layer_profiler.profile", []), ("lab.emulated_wan.missing", None),
        ("lab.miniature.Miniature", None), ("lab.comparison.compare", lab),
    ):  # fmt: skip
        monkeypatch.setattr(target, lambda *_, result=result, **__: result)
    if name == "serve":
        pytest.importorskip("uvicorn")
        monkeypatch.setattr("service.api.server.run", served)
    place = store
    if name == "restore":
        back_up(store, Folder(tmp_path / "copy"))
        place = tmp_path / "restored"
    return ["--store", str(place), *(word.format(tmp=tmp_path) for word in OTHERS[name])]


def served(app: Any, address: Any, listener: Any, ready: Callable[[str], None]) -> None:
    """Say that the service is ready, as its server does, and end."""
    listener.close()
    ready("http://127.0.0.1")


def ended(
    stdout: Any, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Exit code and standard error of a command that prints to `stdout`."""
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["twin", "--quiet", *arguments])
        patch.setattr(sys, "stdout", stdout)
        code: Any = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
    return code, capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_full_output_is_one_line_and_exit_code_1(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    full = device(tmp_path / "full", FULL)
    arguments = said(name, tmp_path, store, monkeypatch)
    with io.TextIOWrapper(io.BufferedWriter(io.FileIO(full, "w")), "utf-8") as stream:
        code, err = ended(stream, arguments, monkeypatch, capsys)
    assert code == 1, err
    line = next(line for line in err.splitlines() if line.startswith("twin: "))
    assert "standard output: cannot be written (No space left on device)" in line
    assert "Traceback" not in err and err.count("standard output") == 1


QUICK = ("policies", "runs", "completion", "config", "sql")


@pytest.mark.parametrize("name", QUICK)
def test_a_closed_output_is_one_line_and_exit_code_1(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    code, err = ended(None, said(name, tmp_path, store, monkeypatch), monkeypatch, capsys)
    assert (code, err) == (1, "twin: standard output is closed; direct it to a file or a program\n")


@pytest.mark.parametrize("name", QUICK)
def test_a_reader_that_has_gone_ends_a_command_quietly(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    reader, writer = os.pipe()
    os.close(reader)
    arguments = said(name, tmp_path, store, monkeypatch)
    with io.TextIOWrapper(io.BufferedWriter(io.FileIO(writer, "w")), "utf-8") as stream:
        assert ended(stream, arguments, monkeypatch, capsys) == (0, "")
