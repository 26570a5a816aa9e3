"""Runs the reliability tests with their figures for every change and writes docs/reliability.md.

python benchmarks/reliability.py [--effort 5] [--out docs/reliability.md] [--parts FILE]; `make reliability`
does this, `make soak` the figures of a night. Each group is one pytest run with TWIN_CRASH_EFFORT. With
`--parts` what is finished is kept, and an interrupted run goes on.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import log as rates
import numpy as np
import upgrade

from ingest.durable import replace
from replay.log import FLUSH_EVENTS, RunReader, RunWriter, recover

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Group:
    """A row of the matrix: what is tried, which promise it is about, where the tests are."""

    name: str
    promises: str
    what: str
    tests: str
    aim: str  # figure for every change in the matrix


CRASH, REPLAY = "tests/crash/test_", "tests/replay/test_"
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
        "T10 concurrency", "P6", "one writer, four readers, second writers", f"{CRASH}concurrency.py", "20 s"
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
    Group("T14 rebuild", "P8", "derived files deleted and damaged", f"{REPLAY}sql.py", "120"),
    Group(
        "T15 codec",
        "P9",
        "events that are and are not valid",
        f"{REPLAY}codec.py {REPLAY}events.py {REPLAY}screening.py",
        "10,000",
    ),
    Group("T16 old versions", "P9", "golden logs", "tests/golden", "all"),
    Group(
        "T17 T18 readers",
        "ingest",
        "malformed rows, archives, twice in any order",
        "tests/contract",
        "5,000 a reader",
    ),
    Group(
        "T19 promotion",
        "P1",
        "retrainings and rollbacks killed, flipped checkpoints",
        f"{REPLAY}service.py -k killed or flipped",
        "40 + 200",
    ),
    Group("T20 scheduler", "P1", "misfires, overlaps, clocks, restarts", f"{REPLAY}schedule.py", "30"),
    Group(
        "T21 CLI contract",
        "-",
        "commands done, mistaken, damaged, locked, interrupted",
        "tests/test_cli_contract.py",
        "60",
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
        environment = {**os.environ, "TWIN_CRASH_EFFORT": str(effort), "TWIN_TALLY": str(tally)}
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
    cells = (f"[{group.name}](../{group.tests.split()[0]})", group.promises, group.what, group.aim)
    return f"| {' | '.join(cells)} | {done.tried:,} | {bad} | {tests} | {done.seconds:.0f} |"


HEAD = """| test | promises | what is tried | aim | tried | lost or undetected | tests | s |
|---|---|---|---:|---:|---:|---:|---:|"""


class Parts:
    """Finished parts of the page, kept in a file so that an interrupted run goes on where it was."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._made = json.loads(path.read_text()) if path and path.exists() else {}

    def part(self, name: str, make: Callable[[], str]) -> str:
        """The part `name`, made now if it is not there yet."""
        if name not in self._made:
            self._made[name] = make()
            print(self._made[name], flush=True)
            if self._path:
                replace(self._path, json.dumps(self._made, indent=1).encode())
        return str(self._made[name])


def in_folder(make: Callable[[Path], str]) -> str:
    """What `make` says of a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        return make(Path(folder))


def speed(folder: Path) -> str:
    """Events a second, tail of a commit and bytes, beside SQLite; what a commit takes its time for."""
    load = f"Load average when this was measured: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    lines = [
        "| events a commit | log, events/s | p99 | B/event | SQLite, events/s | p99 | B/event |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for per_commit in (1, 100, 1000):
        count = min(200_000, 500 * per_commit)
        cells = [f"{per_commit:,}"]
        for name, write in (("log", rates.ours), ("sqlite", rates.sqlite)):
            place = folder / f"{name}-{per_commit}"
            seconds, each = write(place, count, per_commit)
            p99_ms = 1e3 * float(np.quantile(each, 0.99))
            cells += [f"{count / seconds:,.0f}", f"{p99_ms:.1f} ms", f"{rates.size(place) / count:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for per_commit in (1, 100, 1000):
        lines.append(f"* {per_commit:,} events {rates.spent(folder / f'clocked-{per_commit}', per_commit)}")
    return "\n".join([*lines, "", load])


def soak(folder: Path, events: int) -> str:
    """T22: memory and commits while a long run is written, then how long recovery and verification take."""
    seen: list[float] = []
    with RunWriter.create(folder / "long", flush_events=10**9, flush_s=1e9) as writer:
        writer.append(0, "run_started", rates.HEADER)

        def add(number: int) -> None:
            writer.append(number * 1000, "link_observed", rates.payload(number))
            if number % (events // 10) == 0:
                seen.append(resident_mb())

        seconds, each = rates.commits(events, FLUSH_EVENTS, add, writer.flush)
    times = []
    for act in (recover, lambda run: RunReader(run).verify()):
        began = time.perf_counter()
        assert not act(folder / "long")
        times.append(1e6 * (time.perf_counter() - began) / events)
    cells = (
        ("events, segments", f"{events:,}, {len(each):,}", "10,000,000, 2,000 a night"),
        ("events/s", f"{events / seconds:,.0f}", "-"),
        ("p99 of a commit, ms", f"{1e3 * float(np.quantile(each, 0.99)):.1f}", "< 50"),
        ("resident MB at each tenth", ", ".join(f"{mb:.0f}" for mb in seen), "< 1,000, flat"),
        ("recovery, s a million events", f"{times[0]:.2f}", "2"),
        ("verification, s a million events", f"{times[1]:.2f}", "-"),
    )
    rows = "\n".join(f"| {' | '.join(cell)} |" for cell in cells)
    load = f"Load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    return f"| T22 soak | measured | aim |\n|---|---:|---:|\n{rows}\n\n{load}"


def resident_mb() -> float:
    """Resident memory of this process now."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


COVERAGE = """[run]
branch = true
source = replay
patch = subprocess
parallel = true
"""
TESTS = ("tests/replay", "tests/crash", "tests/golden", "tests/test_cli.py", "tests/test_cli_contract.py")


def coverage() -> str:
    """T24: branch coverage of replay/ by its tests, the crash tests, the golden logs and the CLI contract.

    The compiled loop of the screening is counted where it is interpreted.
    """
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules"
        replace(rules, COVERAGE.encode())
        data = {**os.environ, "COVERAGE_FILE": str(Path(folder) / "data")}
        base = [sys.executable, "-m", "coverage"]
        pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
        for tests, more in ((TESTS, {}), (("tests/replay/test_screening.py",), {"NUMBA_DISABLE_JIT": "1"})):
            command = [*base, "run", f"--rcfile={rules}", *pytest, *tests]
            subprocess.run(command, cwd=ROOT, env=data | more, capture_output=True)
        subprocess.run([*base, "combine", f"--rcfile={rules}"], cwd=ROOT, env=data, capture_output=True)
        report = [*base, "report", f"--rcfile={rules}"]
        text = subprocess.run(report, cwd=ROOT, env=data, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines() if line.startswith("replay/")]
    total = next(line.split()[-1] for line in text.splitlines() if line.startswith("TOTAL"))
    below = ", ".join(f"`{row[0]}` {row[-1]}" for row in rows if row[-1] != "100%") or "none"
    return f"Branch coverage of `replay/`: {total} (aim: 100 %). Below 100 %: {below}."


def mutation(sample: int) -> str:
    """T23: how many of so many small faults the tests notice."""
    command = [sys.executable, "benchmarks/mutation.py", "--sample", str(sample)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True
    )
    return done.stdout.strip() or done.stderr.strip()[-500:]


PAGE = """# Reliability: what was tried

Generated by `make reliability` (`benchmarks/reliability.py`, effort {effort}) on {machine}. The figures
called aim are those of the test matrix for every change; where fewer were tried the row shows it. A group
alone: `TWIN_CRASH_EFFORT=5 python -m pytest tests/crash/test_kill.py`.

{table}

{coverage}

Faults put into `replay/segment.py`, `recovery.py`, `log.py` and `verification.py` one at a time (T23,
`benchmarks/mutation.py`): those that no test noticed are listed.

```text
{mutation}
```

{upgrade}

## Speed

Both write the same payload texts, made by the same function, to the same disk and are durable when a commit
returns; the log checks every payload's type, keeps two digests and a chain of manifests, SQLite (WAL,
synchronous FULL) does neither. A commit of the log waits for the disk four times (data, its name, manifest,
its name; each guard test above that leaves one out loses something), one of SQLite once: with small commits
SQLite is faster whatever the program does. Runs commit 5,000 events or a second at a time. p99: of a commit.

{throughput}

{soak}
"""


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effort", type=int, default=5)
    parser.add_argument("--events", type=int, default=1_000_000, help="Events of the long run.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "reliability.md")
    parser.add_argument("--parts", type=Path, help="Keep finished parts in this file, and use those in it.")
    parser.add_argument("--only", help="Make only the parts with this in their names, and no page.")
    given = parser.parse_args()
    parts = Parts(given.parts)
    makers: dict[str, Callable[[], str]] = {
        "speed": lambda: in_folder(speed),
        "T22 soak": lambda: in_folder(lambda folder: soak(folder, given.events)),
        **{group.name: partial(row, group, given.effort) for group in GROUPS},
        "T23 mutation": lambda: mutation(8 * given.effort),
        "T25 upgrade": upgrade.table,
        "T24 coverage": coverage,
    }
    chosen = {name: make for name, make in makers.items() if (given.only or "") in name}
    made = {name: parts.part(name, make) for name, make in chosen.items()}
    if given.only:
        return
    page = PAGE.format(
        effort=given.effort,
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        table="\n".join([HEAD, *(made[group.name] for group in GROUPS)]),
        mutation=made["T23 mutation"],
        upgrade=made["T25 upgrade"],
        coverage=made["T24 coverage"],
        throughput=made["speed"],
        soak=made["T22 soak"],
    )
    replace(given.out, page.encode())


if __name__ == "__main__":
    main()
