"""Speed of `twin ingest` as ratios in one run: python -m benchmarks.ingest.speed [--rows N] [--repeat N]

1. A CSV of link samples, 1,000 of its rows bad, beside the barest thing DuckDB can do with the same file:
   `COPY (SELECT * FROM read_csv(...)) TO ... (FORMAT parquet, COMPRESSION zstd)`. Ours hashes the file,
   checks every value, keeps rejects with their reasons, sorts by time and is durable; DuckDB drops what it
   cannot parse (`ignore_errors`) and keeps negative and infinite values.
2. The iperf3 files of cloudpilot-iperf3, unpacked, beside a loop of `json.load` that appends a dict a row.

Each side runs in a process of its own, the sides take turns, and the best of `--repeat` counts. Seconds are
those of the work without imports, CPU of all threads; peak memory is that of the whole process.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[2]
REAL = HERE.parent / "shared/traces/wan/cloudpilot-iperf3"
BAD = 1000
BLOCK = 250_000
COLUMNS = "ts,src,dst,bandwidth_bps,rtt_s,loss,retransmits,streams,kind,duration_s"


def write_csv(path: Path, rows: int) -> None:
    """Samples of 56 links a second apart, log-normal rates; bad rows are of four kinds."""
    rng = np.random.default_rng(0)
    sites = [f"region-{n}" for n in range(8)]
    links = [(a, b) for a in sites for b in sites if a != b]
    bad = set(rng.choice(rows, min(BAD, rows), replace=False).tolist())
    with path.open("w") as stream:
        stream.write(COLUMNS + "\n")
        for start in range(0, rows, BLOCK):
            stream.writelines(_block(rng, links, start, min(BLOCK, rows - start), bad))


def _block(
    rng: np.random.Generator, links: list[tuple[str, str]], start: int, count: int, bad: set[int]
) -> list[str]:
    rates = rng.lognormal(np.log(2e8), 0.5, count)
    rtts = rng.lognormal(np.log(0.15), 0.1, count)
    retransmits = rng.poisson(3, count)
    lines = []
    for at in range(count):
        number = start + at
        second, link = divmod(number, len(links))
        rate = f"{rates[at]:.1f}"
        if number in bad:
            rate = ("-5", "inf", "n/a", "1e999")[number % 4]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(1_700_000_000 + second))
        src, dst = links[link]
        lines.append(f"{stamp}Z,{src},{dst},{rate},{rtts[at]:.6f},0.001,{retransmits[at]},1,tcp,1.0\n")
    return lines


def unpack(folder: Path) -> int:
    """The iperf3 files of both archives as loose files; how many."""
    for archive in sorted(REAL.glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    return sum(1 for _ in folder.rglob("*.res"))


def ours(source: Path, store: Path) -> dict[str, Any]:
    """`twin ingest`."""
    from ingest.pipeline.ingest import ingest

    report = ingest([source], store)
    return {"rows": sum(report.rows.values()), "rejected": report.rejected}


def bare_copy(source: Path, target: Path) -> dict[str, Any]:
    """DuckDB from CSV to Parquet, nothing else."""
    import duckdb

    target.mkdir()
    sql = f"COPY (SELECT * FROM read_csv('{source}', ignore_errors = true)) TO '{target}/rows.parquet'"
    row = duckdb.connect().execute(f"{sql} (FORMAT parquet, COMPRESSION zstd)").fetchone()
    return {"rows": row[0] if row else 0}


def naive_json(source: Path, target: Path) -> dict[str, Any]:
    """What a script would do: parse each file, append a dict a row, write one Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    for path in sorted(source.rglob("*.res")):
        try:
            with path.open() as stream:
                document = json.load(stream)
            whole = document["end"]["sum_received"]
        except (ValueError, KeyError):
            continue
        began = document["start"]["timestamp"]["timesecs"]
        rows.append({"ts": float(began), "bps": whole["bits_per_second"], "seconds": whole["seconds"]})
        for step in document["intervals"]:
            if not step["sum"]["omitted"]:
                at, bps = began + step["sum"]["start"], step["sum"]["bits_per_second"]
                rows.append({"ts": float(at), "bps": bps, "seconds": step["sum"]["seconds"]})
    target.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), target / "rows.parquet", compression="zstd")
    return {"rows": len(rows)}


SIDES: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "twin ingest": ours,
    "duckdb copy": bare_copy,
    "json loop": naive_json,
}


def child(side: str, source: str, target: str) -> None:
    """One side, in this process; prints what it cost."""
    import resource

    import duckdb  # noqa: F401  # imports are not the work, whichever side they belong to
    import pyarrow.parquet  # noqa: F401

    import ingest.pipeline.ingest  # noqa: F401

    began, cpu = time.perf_counter(), time.process_time()
    result = SIDES[side](Path(source), Path(target))
    cost = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
    cost["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result | cost))


def measure(sides: tuple[str, ...], source: Path, work: Path, repeat: int) -> dict[str, dict[str, Any]]:
    """The sides in turn; for each, the run with the least wall time, with its largest peak memory."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(repeat):
        for side in sides:
            target = work / "target"
            command = [sys.executable, __file__, "--child", side, str(source), str(target)]
            environment = {**os.environ, "PYTHONPATH": str(HERE)}
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            runs[side].append(json.loads(done.stdout))
            shutil.rmtree(target)
    best = {side: min(found, key=lambda run: run["wall_s"]) for side, found in runs.items()}
    return {side: run | {"peak_mb": max(r["peak_mb"] for r in runs[side])} for side, run in best.items()}


def show(title: str, things: int, unit: str, found: dict[str, dict[str, Any]]) -> None:
    print(f"\n{title}")
    for side, run in found.items():
        speed = f"{things / run['wall_s']:,.0f} {unit}/s, {things / run['cpu_s']:,.0f} a CPU second"
        cost = f"{run['wall_s']:.2f} s wall, {run['cpu_s']:.2f} s CPU, {run['peak_mb']:.0f} MB"
        print(f"  {side:12} {cost:42} {speed}; {run['rows']:,} rows")
    mine, other = found.values()
    wall, cpu = other["wall_s"] / mine["wall_s"], other["cpu_s"] / mine["cpu_s"]
    print(f"  ratio (1 = as fast): {wall:.2f} x wall, {cpu:.2f} x CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--child", nargs=3)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "links").mkdir()
        write_csv(work / "links/links.csv", options.rows)
        size = (work / "links/links.csv").stat().st_size / 1e6
        found = measure(("twin ingest", "duckdb copy"), work / "links/links.csv", work, options.repeat)
        show(f"CSV, {options.rows:,} rows, {size:,.0f} MB", options.rows, "rows", found)
        print(f"  rejected with a reason: {found['twin ingest']['rejected']:,}")
        if not REAL.is_dir():
            print("\ncloudpilot-iperf3 is not beside the repository: the JSON files are left out")
            return
        files = unpack(work / "iperf3")
        found = measure(("twin ingest", "json loop"), work / "iperf3", work, options.repeat)
        show(f"iperf3 JSON, {files:,} files", files, "files", found)


if __name__ == "__main__":
    main()
