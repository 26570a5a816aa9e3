"""The ten worked queries of docs/sql.md on a store of many events: python benchmarks/sql.py --events 10000000

The store is made up: two finished runs of the same world under two policies, with telemetry every 30 s and a
decision every 300 s, written through the log itself and compacted. Each query is asked in a fresh connection,
as `twin sql` does, first with nothing cached and then again; two threads.
"""

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from histories import history, totals  # noqa: E402 - beside this file, in no package

from replay import sql  # noqa: E402
from replay.compaction import compact  # noqa: E402
from replay.log import RunWriter  # noqa: E402

EVENTS_A_DECISION = 23
QUERIES = re.findall(
    r"### (\d+\. .*?)\n\n```sql\n(.*?)\n```",
    (ROOT / "docs" / "sql.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


def fill(store: Path, events: int) -> int:
    """Write the runs; returns how many events are stored."""
    stored = 0
    for policy in ("mpc", "static"):
        run_dir = store / "runs" / policy
        with RunWriter.create(run_dir, flush_s=1e9) as writer:
            for sim_ns, kind, payload, wall in history(events // 2 // EVENTS_A_DECISION, policy):
                stored = 1 + writer.append(sim_ns, kind, payload, wall=wall)
            writer.finish(totals(events // 2 // EVENTS_A_DECISION), sim_ns=sim_ns)
        compact(run_dir)
    return 2 * (stored + 1)


def seconds(store: Path, text: str) -> float:
    """How long one question takes."""
    began = time.perf_counter()
    sql.query(store, text)
    return time.perf_counter() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--store", type=Path, help="Keep the store here, or use the one that is here.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        store = given.store or Path(temporary)
        if not (store / "runs").is_dir():
            began = time.perf_counter()
            stored = fill(store, given.events)
            print(f"{stored:,} events written and compacted in {time.perf_counter() - began:.0f} s")
        size = sum(path.stat().st_size for path in (store / "runs").rglob("*.parquet"))
        print(f"{size / 1e6:,.0f} MB; first connection: {seconds(store, 'SELECT 1'):.2f} s, next: ", end="")
        print(f"{seconds(store, 'SELECT 1'):.2f} s\n\n{'query':60}{'first':>8}{'again':>8}")
        for title, text in QUERIES:
            print(f"{title:60}{seconds(store, text):7.2f}s{seconds(store, text):7.2f}s", flush=True)


if __name__ == "__main__":
    main()
