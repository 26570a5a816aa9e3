"""Every place where a user names an output, with a device, a FIFO or a folder there."""

import os
import threading
from pathlib import Path

import pytest

from tests.support.commands import STATIC, Call, caller
from tests.support.private_devices import FULL, NULL, device, kind

REPOSITORY = Path(__file__).resolve().parents[2]
FILES: dict[str, list[str]] = {
    "null.yaml": ["plan", "--top", "1", "--out", "{at}"],
    "plan.svg": ["plan", "--top", "1", "--plot", "{at}"],
    "null": ["init", "{at}", "--no-ask"],
    "page.html": ["report", STATIC, "--out", "{at}"],
    "pages.html": ["report", STATIC, "tri-7b-single", "--out", "{at}"],
    "trace.json": ["trace", STATIC, "--from", "60", "--to", "90", "--out", "{at}"],
    "tokens.svg": ["compare", STATIC, "tri-7b-single", "--plot", "{at}"],
    "links.svg": ["traces", "synthetic-tri", "--plot", "{at}"],
    "batch.svg": [
        "batch", "--model", "gpt2-1.5b", "--gpus", "8 x V100-32", "--batch", "32..64", "--noise-scale",
        "300", "--out", "{at}",
    ],
    "log": ["policies", "--log", "{at}"],
}  # fmt: skip
FOLDERS: list[list[str]] = [
    ["export", STATIC, "--to", "megatron", "--nearest", "--out", "{at}"], ["synth", "{at}"],
    ["profile", "{at}"], ["backup", "{at}"], ["bench", "-p", "static", "--no-bound", "--plots", "{at}"],
]  # fmt: skip


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(REPOSITORY)
    return caller(capsysbinary, monkeypatch)


def at(said: list[str], path: Path) -> list[str]:
    return [word.format(at=path) for word in said]


@pytest.mark.parametrize("name", FILES)
def test_a_device_is_written_and_stays(name: str, kept_store: Path, tmp_path: Path, call: Call) -> None:
    null = device(tmp_path / name, NULL)
    done = call(kept_store, *at(FILES[name], null), "--quiet")
    assert done.code == 0 and kind(null) == "c", done.err
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", [name for name in FILES if name != "log"])
def test_a_full_device_is_one_line_and_exit_code_1(
    name: str, kept_store: Path, tmp_path: Path, call: Call
) -> None:
    full = device(tmp_path / name, FULL)
    done = call(kept_store, *at(FILES[name], full), "--quiet")
    assert (done.code, kind(full)) == (1, "c")
    line = done.err.splitlines()[-1]
    assert line.startswith(f"twin: {full}: cannot be written (No space left on device)"), done.err


@pytest.mark.parametrize("where", ["--log", "TWIN_LOG"])
def test_a_log_at_a_full_device_is_told_and_changes_no_exit_code(
    where: str, kept_store: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = device(tmp_path / "full", FULL)
    if where == "TWIN_LOG":
        monkeypatch.setenv("TWIN_LOG", str(full))
    done = call(kept_store, "policies", *(["--log", str(full)] if where == "--log" else []))
    assert done.code == 0 and done.out and kind(full) == "c"
    assert "twin: --log: " in done.err and "No space left" in done.err


@pytest.mark.parametrize("name", ["log", "trace.json"])
def test_a_fifo_gets_what_a_file_would(name: str, kept_store: Path, tmp_path: Path, call: Call) -> None:
    fifo = tmp_path / name
    os.mkfifo(fifo)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_bytes()))
    reader.start()
    done = call(kept_store, *at(FILES[name], fifo))
    reader.join(10)
    assert done.code == 0 and kind(fifo) == "p" and received[0].startswith(b"{")


@pytest.mark.parametrize("said", FOLDERS, ids=lambda said: said[0])
def test_a_device_is_no_folder(said: list[str], kept_store: Path, tmp_path: Path, call: Call) -> None:
    null = device(tmp_path / "null", NULL)
    done = call(kept_store, *at(said, null))
    assert done.code in (1, 2) and kind(null) == "c" and "is a file" in done.err
    store = call(null, "status")
    assert store.code == 2 and "is a file" in store.err and kind(null) == "c"


def test_a_log_of_any_size_is_read_by_its_end_alone(tmp_path: Path, kept_store: Path, call: Call) -> None:
    log = tmp_path / "log"
    with log.open("wb") as sparse:
        sparse.write(b'{"schema": "twin.log/1"}\n')
        sparse.truncate(1 << 33)
        sparse.seek(1 << 33)
        sparse.write(b"\n")
    assert call(kept_store, "policies", "--log", str(log)).code == 0
    assert log.stat().st_size < 1 << 21
