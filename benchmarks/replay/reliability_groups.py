"""The groups of the reliability matrix: what is tried, which promise it is about, where the tests are.

Each group is one pytest run with TWIN_CRASH_EFFORT and TWIN_FUZZ, and a row of docs/measured/reliability.md.
"""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Group:
    """A row of the matrix: what is tried, which promise it is about, where the tests are."""

    name: str
    promises: str
    what: str
    tests: str
    aim: str  # figure for every change in the matrix


CRASH, LOG, TRAINING = "tests/crash/test_", "tests/replay/log/test_", "tests/replay/training/test_"
GROUPS = (
    Group("T1 kill", "P1 P2 P3", "kill -9 at a random moment", f"{CRASH}kill.py", "200"),
    Group(
        "T2 system calls",
        "P1 P10",
        "each call of every commit killed, EIO, ENOSPC",
        f"{CRASH}syscalls.py",
        "all",
    ),
    Group(
        "T3 I/O errors", "P1 P10", "each call to the disk fails, seven ways", f"{CRASH}io_errors.py", "720"
    ),
    Group(
        "T4 power cut", "P1 P2", "states that a power cut can leave", f"{CRASH}power_cut.py", "141 + 5,000"
    ),
    Group("T5 truncation", "P4", "files cut short", f"{CRASH}damage.py -k cut", "5,500"),
    Group("T6 bit flips", "P4", "flipped bits", f"{CRASH}damage.py -k flipped", "13,200"),
    Group(
        "T7 zeros, garbage", "P4", "zeroed, appended, replaced bytes", f"{CRASH}damage.py -k zeros", "1,000"
    ),
    Group("T8 directory states", "P3 P4 P5", "hands in the directory", f"{CRASH}directory_states.py", "105"),
    Group("T9 disk full", "P1 P10", "limits on file size", f"{CRASH}disk_full.py", "20"),
    Group(
        "T10 concurrency",
        "P6",
        "writers, queries, readings beside a writer",
        f"{CRASH}concurrency.py",
        "20 s",
    ),
    Group("growing", "P4 P6", "audits and readings while a run changes", f"{CRASH}growing.py", "-"),
    Group(
        "compaction",
        "P1-P6",
        "failed calls and power cuts while files are merged",
        f"{CRASH}compaction.py",
        "-",
    ),
    Group(
        "T11 determinism",
        "P7",
        "hash seeds, threads, processes, policies",
        f"{CRASH}determinism.py -k process",
        "24",
    ),
    Group("T12 resume", "P7", "killed anywhere and resumed", f"{CRASH}determinism.py -k killed", "20"),
    Group(
        "T13 replay = log",
        "P7",
        "altered numbers that the re-execution must name",
        f"{CRASH}determinism.py -k altered",
        "50",
    ),
    Group("T14 rebuild", "P8", "derived files deleted and damaged", "tests/replay/sql/test_query.py", "120"),
    Group(
        "T15 codec",
        "P9",
        "events that are and are not valid",
        f"{LOG}payloads.py {LOG}events.py {LOG}event_validation.py",
        "10,000",
    ),
    Group("T16 old versions", "P9", "golden logs", "tests/golden", "all"),
    Group(
        "T17 readers",
        "ingest",
        "files damaged by hand and at random",
        "tests/contract/test_malformed.py tests/contract/test_readers.py",
        "5,000 a reader",
    ),
    Group("T18 ingest", "P3", "ingests killed", "tests/ingest/pipeline/test_ingest.py -k killed", "30"),
    Group(
        "T19 promotion",
        "P1",
        "retrainings and rollbacks killed, flipped checkpoints",
        f"{TRAINING}scheduled_retraining.py -k killed or flipped",
        "40 + 200",
    ),
    Group(
        "T20 scheduler",
        "P1",
        "misfires, overlaps, clocks, restarts",
        f"{TRAINING}schedule.py {TRAINING}following.py",
        "30",
    ),
    Group(
        "T21 CLI contract",
        "-",
        "commands done, mistaken, damaged, locked, interrupted",
        "tests/contract/test_commands.py",
        "60",
    ),
    Group(
        "T26 rot",
        "P4 P8",
        "every kind of stored file flipped, cut, emptied, deleted, replaced",
        "tests/hostile/test_rot.py",
        "100 a kind",
    ),
    Group(
        "T27 rot on a disk",
        "P4",
        "bits of an ext4 image flipped, size and times as they were",
        "benchmarks/replay/bit_rot.py",
        "200",
    ),
    Group(
        "T28 deletion",
        "P4 P8",
        "files that went away: named, or made again",
        f"{LOG}chain_heads.py tests/ingest/lake/test_lake.py tests/hostile/test_verify.py "
        "tests/replay/store/test_checkpoint_registry.py",
        "13 kinds",
    ),
    Group(
        "T29 SQL",
        "P4",
        "statements that write, read or fetch elsewhere; generated ones",
        "tests/hostile/test_sql.py tests/hostile/test_sql_fuzz.py",
        "2,000",
    ),
    Group(
        "T30 received files",
        "P4",
        "scenarios, data sets, cases, plans, checkpoints, schedules, names made to harm",
        "tests/hostile/test_documents.py tests/hostile/test_pickles.py tests/hostile/test_names.py "
        f"{TRAINING}schedule.py",
        "20,000",
    ),
    Group(
        "T31 terminal, page",
        "-",
        "names with control characters, bidirectional marks and markup",
        "tests/hostile/test_terminal.py tests/replay/report/test_page.py -k acts or hostile or escaped",
        "both",
    ),
    Group(
        "T32 kills in training",
        "P1",
        "train, retrain, rollback killed at random times",
        "benchmarks/replay/kill_training.py",
        "30 each",
    ),
)


@dataclass(frozen=True)
class Outcome:
    """What one group did."""

    passed: int
    failed: int
    skipped: int
    tried: int
    seconds: float


def run(group: Group, effort: int) -> Outcome:
    """One pytest run; `tried` is what its tests counted, else how many passed."""
    with tempfile.TemporaryDirectory() as folder:
        tally, report = Path(folder) / "tally", Path(folder) / "report.xml"
        where, _, chosen = group.tests.partition(" -k ")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += [*where.split(), *(["-k", chosen] if chosen else [])]
        tries = {"TWIN_CRASH_EFFORT": str(effort), "TWIN_FUZZ": str(1000 * effort)}
        environment = {**os.environ, **tries, "TWIN_TALLY": str(tally)}
        began = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        seconds = time.perf_counter() - began
        if done.returncode:
            print(done.stdout[-3000:], file=sys.stderr)
        suite = ElementTree.parse(report).getroot().find("testsuite")
        assert suite is not None
        count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
        failed = count["failures"] + count["errors"]
        passed = count["tests"] - failed - count["skipped"]
        counted = [int(line.split()[-1]) for line in tally.read_text().splitlines()] if tally.exists() else []
        return Outcome(passed, failed, count["skipped"], sum(counted) or passed, seconds)


def row(group: Group, effort: int) -> str:
    """The line of one group, after running it."""
    done = run(group, effort)
    bad = f"{done.failed} tests failed" if done.failed else "0"
    tests = f"{done.passed}" + (f" ({done.skipped} skipped)" if done.skipped else "")
    cells = (f"[{group.name}](../../{group.tests.split()[0]})", group.promises, group.what, group.aim)
    return f"| {' | '.join(cells)} | {done.tried:,} | {bad} | {tests} | {done.seconds:.0f} |"


HEAD = """| test | promises | what is tried | aim | tried | lost or undetected | tests | s |
|---|---|---|---:|---:|---:|---:|---:|"""
