"""How much is said: quiet, verbose, debug, the log; and colours for terminals alone."""

import json
import sys
from pathlib import Path

import pytest
import rich.console

import cli
from commands import run_record
from commands.show.console import Console
from ingest.core.errors import UsageError
from ingest.core.progress import SILENT
from tests.support.histories import write


def twin(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["twin", *words])
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def store(tmp_path: Path) -> str:
    write(tmp_path / "runs" / "a", decisions=2)
    return str(tmp_path)


def test_a_log_has_a_line_a_command_with_its_error_in_full(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "twin.log"
    words = ["--store", store, "--log", str(log), "tag", "a", "paper"]
    assert twin(monkeypatch, *words) == 0
    monkeypatch.setenv("TWIN_LOG", str(log))
    assert twin(monkeypatch, "--store", store, "tag", "b") == 1
    done, failed = map(json.loads, log.read_text().splitlines())
    assert done["words"] == words and done["exit_code"] == 0 and done["error"] is None
    assert failed["exit_code"] == 1 and "NotFoundError" in failed["error"] and failed["seconds"] >= 0
    assert "Traceback" not in capsys.readouterr().err


def test_debug_shows_the_traceback_and_verbose_the_cost(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert twin(monkeypatch, "--store", store, "tag", "b", "--debug") == 1
    told = capsys.readouterr().err
    assert told.startswith("twin: b: no such run") and "Traceback" in told
    assert twin(monkeypatch, "--store", store, "tag", "a", "--verbose") == 0
    assert f"store {store}" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_changes_no_exit_code(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert twin(monkeypatch, "--store", store, "--log", str(tmp_path), "tag", "a") == 0
    assert "twin: --log: " in capsys.readouterr().err


def test_a_log_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_record, "MOST_BYTES", 200)
    for number in range(20):
        run_record.append(tmp_path / "log", {"schema": run_record.SCHEMA, "number": number})
    lines = (tmp_path / "log").read_text().splitlines()
    assert json.loads(lines[-1])["number"] == 19 and len(lines) < 10
    assert [json.loads(line)["number"] for line in lines] == list(range(20 - len(lines), 20))


def test_a_silent_console_says_nothing_on_stderr_and_keeps_the_notes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes: list[str] = []
    quiet = Console(silent=True, notes=notes)
    quiet._err = rich.console.Console(stderr=True, force_terminal=True)
    quiet.note("heard")
    with quiet.progress() as progress:
        assert progress is SILENT
    assert capsys.readouterr().err == "" and notes == ["heard"]


def test_colours_go_to_terminals_alone_and_to_none_with_no_color(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Console().note("plain")
    assert "\x1b" not in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    assert Console()._out.no_color and Console()._err.no_color


def test_another_file_is_not_taken_for_a_log(tmp_path: Path) -> None:
    other = tmp_path / "measurements.csv"
    other.write_text("ts,src,dst\n")
    with pytest.raises(UsageError, match="no log of twin"):
        run_record.append(other, {"schema": run_record.SCHEMA})
    assert other.read_text() == "ts,src,dst\n"
