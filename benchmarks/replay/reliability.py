"""Runs the reliability tests with their figures for every change and writes docs/measured/reliability.md.

python -m benchmarks.replay.reliability [--effort 5] [--out docs/measured/reliability.md] [--parts FILE]
[--tried FILE]; `make reliability` does this, `make soak` the figures of a night. Speed is measured first and
alone; then each group is one pytest run, as many at a time as there are cores. With `--parts` what is
finished is kept, and an interrupted run of the same code goes on; `--finished` writes the page of what is
there.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock

import numpy as np

from benchmarks.replay import log as rates
from benchmarks.replay import upgrade
from benchmarks.replay.reliability_groups import GROUPS, HEAD, Group, row
from ingest.core.durable import replace
from replay.bench.worker_pool import cores
from replay.log.run_log import FLUSH_EVENTS, RunReader, RunWriter, recover
from replay.store.run_header import code_version

ROOT = Path(__file__).resolve().parents[2]
Makers = dict[str, Callable[[], str]]


class Parts:
    """Finished parts of the page, kept in a file so that an interrupted run of the same code goes on."""

    def __init__(self, path: Path | None, made_by: str, total: int) -> None:
        self._path, self._made_by, self._total = path, made_by, total
        self._kept: dict[str, dict[str, str]] = json.loads(path.read_text()) if path and path.exists() else {}
        self._turn = Lock()

    def part(self, name: str, make: Callable[[], str]) -> str:
        """The part `name`, made now if it is not there yet or is of other code."""
        kept = self._kept.get(name)
        if kept and kept["made_by"] == self._made_by:
            return kept["text"]
        print(f"{name}: begins", flush=True)
        began = time.perf_counter()
        text = make()
        with self._turn:
            self._kept[name] = {"made_by": self._made_by, "text": text}
            made = sum(part["made_by"] == self._made_by for part in self._kept.values())
            print(f"{text}\n{name}: {time.perf_counter() - began:.0f} s, ", end="")
            print(f"{made} of {self._total} parts done", flush=True)
            if self._path:
                replace(self._path, json.dumps(self._kept, indent=1).encode())
        return text

    def finished(self, name: str) -> str:
        """The part `name`, whatever code it is of."""
        if name not in self._kept:
            raise SystemExit(f"{name} was never run; --only {name!r} runs it")
        return self._kept[name]["text"]

    def of_other_code(self) -> str:
        """Which parts are of other code, or of other figures to try, and of which."""
        names: dict[str, list[str]] = {}
        for name, part in self._kept.items():
            names.setdefault(part["made_by"], []).append(name)
        names.pop(self._made_by, None)
        lines = [f"* of {made_by}: {', '.join(there)}" for made_by, there in sorted(names.items())]
        return "\n".join(["Of other code:", "", *lines] if lines else ["All is of that one code."])


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
TESTS = (
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "replay").glob("test_*.py")),
    *(f"tests/crash/test_{name}.py" for name in ("directory_states", "compaction", "growing", "io_errors")),
    *("tests/golden", "tests/commands/test_cli.py", "tests/contract/test_commands.py"),
)
PIECES = 8
"""In so many runs of pytest, so that an interrupted one costs little."""
RUNS: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
    *((TESTS[k::PIECES], {}) for k in range(PIECES)),
    (("tests/replay/log/test_event_validation.py",), {"NUMBA_DISABLE_JIT": "1"}),
)


def coverage(folder: Path) -> str:
    """T24: branch coverage of replay/ by its tests, the golden logs, the CLI contract, and crash tests.

    The compiled loop of the screening is counted where it is interpreted. Finished runs stay in `folder`.
    """
    rules, said = folder / "rules", []
    replace(rules, COVERAGE.encode())
    base = [sys.executable, "-m", "coverage"]
    with_rules = f"--rcfile={rules}"
    for number, (tests, more) in enumerate(RUNS):
        kept, data = folder / f"said-{number}", {**os.environ, "COVERAGE_FILE": str(folder / f"run-{number}")}
        if not kept.exists():
            pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
            command = [*base, "run", with_rules, *pytest]
            done = subprocess.run(command, cwd=ROOT, env=data | more, capture_output=True, text=True)
            replace(kept, done.stdout.encode())
        said += kept.read_text().splitlines()
    failed = [line for line in said if line.startswith(("FAILED", "ERROR"))]
    data = {**os.environ, "COVERAGE_FILE": str(folder / "all")}
    combine = [*base, "combine", with_rules, "--keep", *map(str, folder.glob("run-*"))]
    subprocess.run(combine, cwd=ROOT, env=data, capture_output=True, check=True)
    report = [*base, "report", with_rules]
    text = subprocess.run(report, cwd=ROOT, env=data, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines() if line.startswith("replay/")]
    total = next(line.split()[-1] for line in text.splitlines() if line.startswith("TOTAL"))
    below = ", ".join(f"`{row[0]}` {row[-1]}" for row in rows if row[-1] != "100%") or "none"
    broken = f" {len(failed)} tests failed, so that less was counted: {'; '.join(failed)}." if failed else ""
    return f"Branch coverage of `replay/`: {total} (aim: 100 %). Below 100 %: {below}.{broken}"


def mutation(sample: int, tried: Path | None) -> str:
    """T23: how many of so many small faults the tests notice; of all, going on from the file `tried`."""
    which = ["--tried", str(tried)] if tried else ["--sample", str(sample)]
    command = [sys.executable, "-m", "benchmarks.replay.mutation", *which]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


PAGE = """# Reliability: what was tried

Generated by `make reliability` (`benchmarks/replay/reliability.py`, effort {effort}) on {machine}, of code
{code} (first digits of what a run's header says). The figures called aim are those of the test matrix for
every change; where fewer were tried the row shows it. A group alone: `TWIN_CRASH_EFFORT=5 TWIN_FUZZ=5000
python -m pytest tests/crash/test_kill.py`.

{older}

{table}

{coverage}

Faults put into `segment.py`, `tail.py`, `recovery.py`, `run_log.py` and `verification.py` of `replay/log` one
at a time (T23, `benchmarks/replay/mutation.py`): those that no test noticed are listed.

```text
{mutation}
```

{upgrade}

## Speed

Both write the same payload texts, made by the same function, to the same disk and are durable when a commit
returns; the log checks every payload's type, keeps two digests and a chain of manifests, SQLite (WAL,
synchronous FULL) does neither. A small commit of the log waits for the disk once: it is appended to
the tail, as one of SQLite is to its WAL. The first event and every 5,000 become a segment, which waits four
times (data, its name, manifest, its name; each guard test above that leaves one out loses something). Runs
commit 5,000 events or a second at a time. p99: of a commit.

{throughput}

{soak}
"""


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effort", type=int, default=5)
    parser.add_argument("--events", type=int, default=1_000_000, help="Events of the long run.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "measured" / "reliability.md")
    parser.add_argument("--parts", type=Path, help="Keep finished parts in this file, and use those in it.")
    parser.add_argument(
        "--finished", action="store_true", help="Run nothing: a page of PARTS, and which are of other code."
    )
    parser.add_argument("--only", help="Make only the parts with this in their names, and no page.")
    parser.add_argument("--tried", type=Path, help="All of T23 instead of a sample, going on from this file.")
    given = parser.parse_args()
    code = code_version()["sources"]
    kept: Path | None = given.parts and given.parts.with_suffix(".coverage")
    alone: Makers = {  # nothing else runs while speed is measured
        "speed": lambda: in_folder(speed),
        "T22 soak": lambda: in_folder(lambda folder: soak(folder, given.events)),
    }
    beside: Makers = {  # the longest first
        "T24 coverage": partial(coverage, kept / code[:12]) if kept else lambda: in_folder(coverage),
        "T23 mutation": lambda: mutation(8 * given.effort, given.tried),
        **{group.name: partial(row, group, given.effort) for group in sorted(GROUPS, key=_length)},
        "T25 upgrade": upgrade.table,
    }
    made_by = f"{code} effort {given.effort} events {given.events}"
    parts = Parts(given.parts, made_by, len(alone | beside))
    if given.finished:
        made = {name: parts.finished(name) for name in alone | beside}
    else:
        made = make_all(alone, beside, given.only or "", parts)
    if given.only:
        return
    page = PAGE.format(
        older=parts.of_other_code(),
        effort=given.effort,
        code=code[:12],
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        table="\n".join([HEAD, *(made[group.name] for group in GROUPS)]),
        mutation=made["T23 mutation"],
        upgrade=made["T25 upgrade"],
        coverage=made["T24 coverage"],
        throughput=made["speed"],
        soak=made["T22 soak"],
    )
    replace(given.out, page.encode())


LONG = ("T32", "T27", "T29", "T30", "T6 ", "T10 ", "T4 ", "T3 ", "T2 ", "T1 ", "T12 ", "T11 ", "T15 ", "T17 ")


def _length(group: Group) -> int:
    """Groups that take long come first, so that no core is idle at the end."""
    return next((k for k, name in enumerate(LONG) if group.name.startswith(name)), len(LONG))


def make_all(alone: Makers, beside: Makers, only: str, parts: Parts) -> dict[str, str]:
    """The parts with `only` in their names: first those that are measured, then the others on all cores."""
    made = {name: parts.part(name, make) for name, make in alone.items() if only in name}
    with ThreadPoolExecutor(cores()) as pool:
        under_way = {
            name: pool.submit(parts.part, name, make) for name, make in beside.items() if only in name
        }
    return made | {name: part.result() for name, part in under_way.items()}


if __name__ == "__main__":
    main()
