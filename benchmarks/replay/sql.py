"""The ten worked queries of docs/reference/sql.md on a store of many events: python -m benchmarks.replay.sql
--events 10000000

The store is made up: two finished runs of the same world under two policies, with telemetry every 30 s and a
decision every 300 s, written through the log itself and compacted; the rows of their views are kept, as at
the end of every large run. Each query is asked in a fresh connection, as `twin sql` does, twice; two threads.
Without the kept rows (`rm -r STORE/cache`) the first question for a view makes them.

`--start TREE` measures instead, as whole processes, `twin sql "select count(*) from runs"` of this tree and
of another checkout in turn, on a store of two small runs.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from replay.log.compaction import compact
from replay.log.run_log import RunWriter
from replay.sql import query
from tests.support.histories import history, totals

ROOT = Path(__file__).resolve().parents[2]
EVENTS_A_DECISION = 23
POLICIES = ("mpc", "static")
QUERIES = re.findall(
    r"### (\d+\. .*?)\n\n```sql\n(.*?)\n```",
    (ROOT / "docs" / "reference" / "sql.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


def write(store: Path, policy: str, events: int) -> int:
    """Write and compact a run; returns how many events are stored."""
    run_dir, decisions = store / "runs" / policy, events // EVENTS_A_DECISION
    with RunWriter.create(run_dir, flush_s=1e9) as writer:
        for sim_ns, kind, payload, wall in history(decisions, policy):
            stored = 1 + writer.append(sim_ns, kind, payload, wall=wall)
        writer.finish(totals(decisions), sim_ns=sim_ns)
    compact(run_dir)
    return stored + 1


def fill(store: Path, events: int) -> None:
    """Write the runs, and make what is made when a run ends."""
    began = time.perf_counter()
    stored = sum(write(store, policy, events // len(POLICIES)) for policy in POLICIES)
    written = time.perf_counter()
    for policy in POLICIES:
        query.keep(store, policy)
    print(f"{stored:,} events written and compacted in {written - began:.0f} s, ", end="")
    print(f"rows of their views kept in {time.perf_counter() - written:.0f} s")


def size_mb(folder: Path) -> float:
    """Megabytes of the Parquet files below."""
    return sum(path.stat().st_size for path in folder.rglob("*.parquet")) / 1e6


def seconds(store: Path, text: str) -> float:
    """How long one question takes."""
    began = time.perf_counter()
    query.query(store, text)
    return time.perf_counter() - began


def start_s(tree: Path, store: Path) -> tuple[float, float]:
    """Seconds and processor seconds of one process of `twin sql` in a checkout."""
    line = [sys.executable, tree / "cli.py", "--store", store, "sql", "select count(*) from runs"]
    used, began = os.times(), time.perf_counter()
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(tree)})
    wall_s, now = time.perf_counter() - began, os.times()
    return wall_s, now.children_user + now.children_system - used.children_user - used.children_system


def compare_starts(other: Path, store: Path, rounds: int = 20) -> None:
    """Print medians of both trees and of the paired differences, with quartiles; the first pair warms up."""
    for policy in POLICIES:
        write(store, policy, 1000)
    pairs = [(start_s(other, store), start_s(ROOT, store)) for _ in range(rounds + 1)][1:]
    for clock, label in enumerate(("wall", "processor")):
        before, after = ([pair[tree][clock] for pair in pairs] for tree in (0, 1))
        more = [b - a for a, b in zip(before, after, strict=True)]
        for name, values in (("other", before), ("this", after), ("more", more)):
            low, middle, high = (1000 * value for value in statistics.quantiles(values, n=4))
            print(f"{label:10} {name:6}{middle:6.0f} ms (quartiles {low:.0f} to {high:.0f} of {rounds})")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--store", type=Path, help="Keep the store here, or use the one that is here.")
    parser.add_argument("--start", type=Path, metavar="TREE", help="Compare the start with another checkout.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if given.start:
            compare_starts(given.start, Path(temporary))
            return
        store = given.store or Path(temporary)
        if not (store / "runs").is_dir():
            fill(store, given.events)
        print(
            f"{size_mb(store / 'runs'):,.0f} MB of log, {size_mb(store / 'cache'):,.0f} MB of kept rows; ",
            end="",
        )
        print(
            f"first connection: {seconds(store, 'SELECT 1'):.2f} s, next: {seconds(store, 'SELECT 1'):.2f} s"
        )
        print(f"\n{'query':76}{'first':>8}{'again':>8}{'processor':>11}")
        for title, text in QUERIES:
            first_s = seconds(store, text)
            used = time.process_time()
            repeated_s = seconds(store, text)
            used = time.process_time() - used
            print(f"{title:76}{first_s:7.2f}s{repeated_s:7.2f}s{used:10.2f}s", flush=True)


if __name__ == "__main__":
    main()
