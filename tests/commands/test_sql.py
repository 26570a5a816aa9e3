"""`twin sql` as a process: Ctrl-C, limits, and a standard output that is closed, full, or no longer read."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cli
from ingest.core.scratch import PREFIX
from tests.support.commands import caller
from tests.support.histories import write
from tests.support.processes import environment

REPOSITORY = Path(__file__).resolve().parents[2]
ENDLESS = "select count(*) from range(1000000000000) a(i), range(1000000) b(j)"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("store")
    write(folder / "runs" / "a")
    yield folder
    assert {path.name for path in folder.iterdir()} <= {"cache", "heads", "runs"}, "nothing is left behind"


def sql(store: Path, *words: str, shell: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the command; `shell` follows it on a line of the shell."""
    line = ["sh", "-c", f'"$@" {shell}', "sh", sys.executable, REPOSITORY / "cli.py", "sql", *words]
    return subprocess.run(
        line, capture_output=True, text=True, env=environment(REPOSITORY, store), timeout=60, check=False
    )


def test_ctrl_c_ends_a_query_at_once(store: Path) -> None:
    with subprocess.Popen(
        [sys.executable, REPOSITORY / "cli.py", "sql", ENDLESS],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(REPOSITORY, store),
    ) as process:  # fmt: skip
        end = time.monotonic() + 30
        while not list(store.glob(f"{PREFIX}*")) and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.5)
        assert process.poll() is None, "it runs"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)
    assert time.monotonic() - began < 3
    assert process.returncode == 130 and said[0] == ""
    assert said[1].strip().startswith("twin: interrupted") and "Traceback" not in said[1]


def test_ctrl_c_while_duckdb_reads_a_log_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a connection is prepared in the main thread, DuckDB tells it by an error of its own."""

    def raised(*_: object, **__: object) -> None:
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr(cli.twin, "main", raised)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 130 and "twin: interrupted" in capsys.readouterr().err


def test_limits_are_options(
    store: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = caller(capsysbinary, monkeypatch)
    done = call(store, "sql", ENDLESS, "--timeout", "0.2", "--json")
    assert done.code == 2 and "stopped after 0.2 s" in done.err
    assert done.json["error"] == "UsageError"
    done = call(store, "sql", "select 1", "--memory", "lots")
    assert done.code == 2 and "4GB" in done.err


def test_a_reader_that_has_gone_ends_it_quietly(store: Path) -> None:
    with subprocess.Popen(
        [sys.executable, REPOSITORY / "cli.py", "sql", "from range(100000)", "--format", "csv"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(REPOSITORY, store),
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"range\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("form", [["--format", "parquet"], ["--json"]])
def test_a_full_or_closed_output_is_told(store: Path, form: list[str]) -> None:
    for shell, why in ((">/dev/full", "No space left"), (">&-", "closed")):
        done = sql(store, "select 1", *form, shell=shell)
        assert done.returncode == 1 and why in done.stderr, shell
        assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_closed_errors_change_no_answer(store: Path) -> None:
    done = sql(store, "select 1 as x", "--format", "csv", shell="2>&- <&-")
    assert (done.returncode, done.stdout) == (0, "x\n1\n")
