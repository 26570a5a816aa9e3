"""Every system call of a commit is killed or failed in turn, each in a fresh process (Tessera's method).

Needs strace and the right to use it; skipped elsewhere. A sample of the calls, with more effort all.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import crash_workload as workload

EVENTS, PER_FLUSH = 3, 2
CALLS = ("mkdir", "openat", "write", "fsync", "link", "unlink")
FAULTS = ("signal=KILL", "error=EIO", "error=ENOSPC")
STRIDE = max(1, 13 // workload.EFFORT)

PROGRAM = """
import sys
from pathlib import Path
from tests.support import crash_workload as workload
from ingest.core.errors import TwinError
try:
    workload.write(Path(sys.argv[1]), {events}, {per_flush}, acknowledge=lambda seq: print(seq, flush=True))
except TwinError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def strace(run_dir: Path, log: Path, repository: Path, *options: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(events=EVENTS, per_flush=PER_FLUSH)
    folders = (repository, repository / "tests", repository / "tests" / "crash")
    return subprocess.run(
        ["strace", "-f", "-y", "-o", str(log), *options, sys.executable, "-B", "-c", program, str(run_dir)],
        env={"PYTHONPATH": ":".join(map(str, folders)), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> list[tuple[str, int]]:
    """(call, its number among the calls of that name) of all calls that touch the run's directory."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if (allowed := subprocess.run(["strace", "true"], capture_output=True, text=True)).returncode != 0:
        pytest.skip(f"strace may not trace here: {allowed.stderr[:100]}")
    folder = tmp_path_factory.mktemp("trace")
    result = strace(folder / "run", folder / "log", repository, "-e", f"trace={','.join(CALLS)}")
    assert result.returncode == 0, result.stderr
    counts, found, main = dict.fromkeys(CALLS, 0), [], None
    for line in (folder / "log").read_text(errors="replace").splitlines():
        parsed = re.match(r"(\d+) +(\w+)\((.*)", line)
        if parsed is None or parsed[2] not in CALLS or (main or parsed[1]) != parsed[1]:
            continue
        main = parsed[1]
        counts[parsed[2]] += 1
        if str(folder / "run") in parsed[3]:
            found.append((parsed[2], counts[parsed[2]]))
    return found


def test_no_system_call_can_break_the_log(
    tmp_path: Path, repository: Path, targets: list[tuple[str, int]]
) -> None:
    whole = workload.write(tmp_path / "whole", EVENTS, PER_FLUSH)[0]
    assert {call for call, _ in targets} == set(CALLS)
    cases = [(call, number, fault) for call, number in targets for fault in FAULTS]
    for index, (call, number, fault) in list(enumerate(cases))[::STRIDE]:
        run_dir = tmp_path / str(index)
        inject = f"inject={call}:{fault}:when={number}"
        result = strace(run_dir, tmp_path / "log", repository, "-e", f"trace={call}", "-e", inject)
        durable = max([-1, *map(int, result.stdout.split())])
        assert result.returncode != 0, (inject, result.stderr)
        assert fault == FAULTS[0] or "Traceback" not in result.stderr, (inject, result.stderr)
        if run_dir.exists():
            assert workload.stored(run_dir) >= durable, inject
        assert workload.write(run_dir, EVENTS, PER_FLUSH)[0] == whole, inject
    workload.tally("faults", len(cases[::STRIDE]))
    assert len(cases) > 80
