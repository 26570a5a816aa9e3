"""Commands run twice, mistaken, on damaged data; and what only a process has: signals, pipes, streams.

What each command tells is in tests/contract/test_commands.py.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import cli
from replay.store import run_index
from tests.support.commands import STATIC, Call, caller

REPOSITORY = Path(__file__).resolve().parents[2]
TWIN = [sys.executable, str(REPOSITORY / "cli.py")]


def twin(store: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TWIN, "--store", str(store), *arguments], capture_output=True, text=True, cwd=REPOSITORY, **options
    )


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(REPOSITORY)
    return caller(capsysbinary, monkeypatch)


@pytest.fixture(scope="module")
def store(kept_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the store with the shipped traces and two runs, for commands that write."""
    return Path(shutil.copytree(kept_store, tmp_path_factory.mktemp("cli") / "store"))


def test_ingest_twice_adds_nothing(tmp_path: Path, call: Call) -> None:
    first = call(tmp_path, "--json", "ingest", "traces").json
    again = call(tmp_path, "--json", "ingest", "traces").json
    assert first["schema"] == again["schema"] == "twin.ingest/1"
    assert all(f["rows_in"] == sum(f["stored"].values()) + f["rejected"] for f in first["files"])
    assert sum(first["rows"].values()) > 0 and sum(again["rows"].values()) == 0


def test_replay_says_its_digest_and_the_same_run_has_the_same(store: Path, call: Call) -> None:
    one = call(store, "--json", "replay", "-p", "single", "-s", "tri-7b").json
    two = call(store, "--json", "replay", "-p", "single", "-s", "tri-7b").json
    assert one["schema"] == "twin.replay/1"
    assert one["run"] != two["run"] and one["digest"] == two["digest"]
    assert one["kpis"]["tokens"] == two["kpis"]["tokens"] > 0


MISTAKES = {
    "unknown command": (["frobnicate"], 2, "frobnicate"),
    "unknown option": (["status", "--bad"], 2, "--bad"),
    "no such file": (["ingest", "no/such/file"], 2, "no/such/file"),
    "unknown policy": (["replay", "-p", "nobody", "-s", "tri-7b"], 2, "nobody"),
    "unknown scenario": (["replay", "-p", "static", "-s", "nowhere"], 1, "tri-7b"),
    "unknown data set": (["replay", "-p", "static", "-s", "tri-7b", "--dataset", "none"], 1, "twin ingest"),
    "unknown run": (["audit", "nothing"], 1, "nothing"),
    "bad statement": (["sql", "selec 1"], 2, "selec"),
    "writing statement": (["sql", "create table x (i int)"], 2, ""),
    "two ways to retrain": (["retrain", "--once", "--every", "6h"], 2, "--once"),
    "bad interval": (["retrain", "--every", "soon"], 2, "6h"),
    "no such checkpoint": (["replay", "-s", "tri-7b", "--checkpoint", "01234567"], 1, "01234567"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_a_message_an_exit_code_and_leaves_the_store(
    store: Path, call: Call, mistake: str
) -> None:
    arguments, code, named = MISTAKES[mistake]
    before = snapshot(store)
    done = call(store, *arguments, "--json")
    assert done.code == code, done.err
    assert named in done.err
    assert done.json["schema"] == "twin.error/1"
    assert snapshot(store) == before


def snapshot(store: Path) -> list[tuple[str, int, int]]:
    files = (path for path in sorted(store.rglob("*")) if path.is_file() and path.suffix != ".lock")
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]


UNREADABLE = {
    "an empty folder": {},
    "a cut gzip": {"a.tar.gz": b"\x1f\x8b\x08\x00abc"},
    "JSON of another kind": {"a.json": b'{"hello": 1}'},
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_nothing_readable_leaves_no_store(tmp_path: Path, call: Call, kind: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, content in UNREADABLE[kind].items():
        (folder / name).write_bytes(content)
    done = call(tmp_path / "store", "ingest", str(folder))
    assert done.code == 1
    assert str(folder) in done.err
    assert not (tmp_path / "store" / "lake").exists()


def test_a_flipped_byte_is_found_and_named(kept_store: Path, tmp_path: Path, call: Call) -> None:
    store = Path(shutil.copytree(kept_store, tmp_path / "store"))
    run = run_index.find(store, STATIC)
    segment = next((store / "runs" / run).glob("*.parquet"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(bytes(content))
    done = call(store, "--json", "audit", run)
    assert done.code == 3
    found = done.json
    assert found["ok"] is False and any(segment.name in f["problem"] for f in found["findings"])


def test_a_process_says_what_this_one_says(store: Path, call: Call) -> None:
    """In text and JSON, well and badly ended; the other two pairs are told by the same code."""
    for words, code in ((["sql", "select policy, tokens from runs order by run"], 0),
                        (["audit", "nothing", "--json"], 1)):  # fmt: skip
        process, here = twin(store, *words), call(store, *words)
        assert process.returncode == here.code == code, process.stderr
        assert (process.stdout.encode(), process.stderr) == (here.out, here.err)


def test_store_comes_from_the_environment(store: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWIN_STORE", str(store))
    assert call(None, "status", "--json").json["store"] == str(store)


def test_interrupt_exits_with_130(store: Path) -> None:
    long_run = ["replay", "-p", "mpc", "-s", "tri-7b", "--window", "all"]
    process = subprocess.Popen(
        [*TWIN, "--store", str(store), *long_run],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not list(store.glob("runs/tri-7b-mpc-*")) and time.monotonic() < end:
        time.sleep(0.05)  # until it is under way: what comes while Python starts is Python's matter
    errors = ""
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        # An interrupt inside a callback of a native library is lost: a user presses Ctrl-C again.
        with suppress(subprocess.TimeoutExpired):
            _, errors = process.communicate(timeout=3)
            break
    assert process.returncode == 130
    assert "interrupted" in errors and "Traceback" not in errors


def test_a_reader_that_goes_away_is_no_error(store: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} {TWIN[1]} --store {store} sql 'select * from events' | head -1",
        shell=True, capture_output=True, text=True, cwd=REPOSITORY,
    )  # fmt: skip
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_every_command_has_help_that_ends_in_an_example() -> None:
    for name, command in cli.twin.loaded().items():
        assert command.help and "Example" in command.help, name


@pytest.mark.parametrize(("words", "code"), [(["nosuch"], 2), (["config"], 0)])
def test_what_libraries_do_at_the_end_does_not_change_the_exit_code(
    store: Path, words: list[str], code: int
) -> None:
    abort = "import atexit, os, sys, cli; atexit.register(os.abort); sys.argv[0] = 'twin'; cli.process()"
    done = subprocess.run(
        [sys.executable, "-c", abort, "--store", str(store), "--json", *words],
        capture_output=True, text=True, cwd=REPOSITORY,
    )  # fmt: skip
    assert done.returncode == code
    assert json.loads(done.stdout)["schema"].startswith("twin.error/" if code else "twin.settings/")
