"""Low limits of the machine: a message or the right answer, never damage that is not there."""

import subprocess
import sys
from pathlib import Path

import pytest

from replay.store import run_index
from tests.support.histories import write

COUNT = "select count(*) as n from events"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run in many segments."""
    store = tmp_path_factory.mktemp("limits") / "store"
    write(store / run_index.RUNS / "made-up", flush_events=4)
    return store


def limited(repository: Path, limit: str, store: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f'ulimit {limit}; exec "$@"', "twin", sys.executable, "cli.py"]
    return subprocess.run(
        [*command, "--store", str(store), *arguments], cwd=repository, capture_output=True, text=True
    )


def test_few_file_descriptors_are_enough_or_named(repository: Path, store: Path) -> None:
    done = limited(repository, "-n 128", store, "sql", COUNT, "--format", "csv")
    assert (done.returncode, done.stdout) == (0, "n\n284\n"), done.stderr
    done = limited(repository, "-n 24", store, "sql", COUNT)
    assert done.returncode == 1 and "Too many open files; allow more open files (`ulimit -n`)" in done.stderr


@pytest.mark.parametrize("kilobytes", [350_000, 1_000_000])
def test_little_memory_is_named_as_such_and_not_as_damage(
    repository: Path, store: Path, kilobytes: int
) -> None:
    done = limited(repository, f"-v {kilobytes}", store, "sql", COUNT)
    assert done.returncode == 1 and done.stderr.startswith("twin: not enough memory: "), done.stderr
    assert len(done.stderr.splitlines()) == 1
