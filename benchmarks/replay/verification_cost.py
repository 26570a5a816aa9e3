"""Cost of hashing every file before it is read: python -m benchmarks.replay.verification_cost [--events N]

Pairs of new processes, one that checks content and one that only looks at sizes, in turns: SQL over a log
that is parsed, over cached rows and over the lake, and the world of a run from the lake. Of each the whole
process as `twin sql` has it, the first answer, and the same question once more. Ratios are of the least
times, which other load on the machine changes least.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ingest.core import integrity

QUESTIONS = {
    "log": "SELECT type, count(*), max(length(payload)) FROM events GROUP BY type",
    "cached rows": "SELECT src, dst, avg(bandwidth_bps), max(latency_s) FROM links GROUP BY ALL",
    "lake": "SELECT src, dst, avg(bandwidth_bps), max(ts) FROM link_samples GROUP BY ALL",
    "world": "",
}
HEAD = "ts,src,dst,bandwidth_bps,rtt_s\n"


def fill(store: Path, events: int) -> None:
    """Writes two runs of half as many events each, compacted, and a data set of as many samples."""
    from benchmarks.replay import sql
    from ingest.pipeline.ingest import ingest

    sql.fill(store, events)
    source = store.parent / "samples" / "links.csv"
    source.parent.mkdir()
    with source.open("w") as out:
        out.write(HEAD)
        for number in range(events):
            at = f"2024-{1 + number // 44640 % 12:02d}-{1 + number // 1440 % 28:02d}T{number // 60 % 24:02d}"
            out.write(f"{at}:{number % 60:02d}:00Z,a{number % 7},b,{1e9 + number * 7919 % 1e8},0.1\n")
    ingest([source.parent, Path(__file__).parents[2] / "traces"], store)


def answer(store: Path, question: str) -> None:
    """Asks one question in this process, twice, and prints the seconds of both."""
    from replay.sql.query import query
    from twin.scenario.prepare import load, prepare

    def ask() -> object:
        text = QUESTIONS[question]
        return query(store, text) if text else prepare(load("tri-7b"), store)

    times = []
    for _ in range(2):
        began = time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
    print(json.dumps(times))


def unchecked(path: Path, size_bytes: int, sha256: str) -> str | None:
    """Stands for `integrity.fault`: looks at the size alone."""
    return None if path.lstat().st_size == size_bytes else "cut"


def process(store: Path, question: str, checked: bool) -> list[float]:
    """Returns the seconds of a process: whole, first answer, second answer."""
    command = [sys.executable, "-m", "benchmarks.replay.verification_cost", "--store", str(store)]
    command += ["--ask", question, *([] if checked else ["--unchecked"])]
    began = time.perf_counter()
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [time.perf_counter() - began, *json.loads(said.splitlines()[-1])]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--ask", choices=list(QUESTIONS))
    parser.add_argument("--unchecked", action="store_true")
    given = parser.parse_args()
    if given.unchecked:
        integrity.fault = unchecked
    if given.ask:
        answer(given.store, given.ask)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        fill(store, given.events)
        _report(store, given.pairs, lambda question, checked: process(store, question, checked))


def _report(store: Path, pairs: int, ask: Callable[[str, bool], list[float]]) -> None:
    size = sum(path.stat().st_size for path in store.rglob("*.parquet")) / 1e6
    print(f"\n{size:.0f} MB of Parquet; seconds with and without hashing, least of {pairs} pairs\n")
    print("| question | whole process | first answer | second answer |\n|---|---|---|---|")
    for question in QUESTIONS:
        ask(question, True)  # pages of the disk in memory, code compiled
        measured = [(ask(question, True), ask(question, False)) for _ in range(pairs)]
        cells = []
        for k in range(3):
            on, off = (min(pair[side][k] for pair in measured) for side in (0, 1))
            cells.append(f"{on:.3f} / {off:.3f} = {on / off:.2f}")
        print(f"| {question} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
