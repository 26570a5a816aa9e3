"""Many small commits of a lake, joined and as they are: python -m benchmarks.ingest.scraped_commits

Commits as a scrape of ten hosts makes them once a minute; pages are made up. CPU seconds of this process; the
wall time of a query is the median of five.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from ingest.lake import duckdb_views, lake, merging
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import Source, from_bytes
from ingest.pipeline.ingest import ingest_sources

OPTIONS = DatasetOptions(name="scraped", reader="prometheus-text")
SELECT = "SELECT host, avg(power_w) FROM host_samples GROUP BY ALL ORDER BY ALL"


def page(number: int) -> Source:
    """The pages of a minute."""
    at_ms = 1_795_687_200_000 + 60_000 * number
    text = "".join(
        f'ipmi_dcmi_power_consumption_watts{{instance="n{host}"}} {number + host} {at_ms}\n'
        for host in range(10)
    )
    return from_bytes(f"page@{number}-{number + 1}", "page", text.encode())


def measured(store: Path, commits: int, *, joining: bool) -> str:
    """A row of the table."""
    began_s, joined = time.process_time(), 0
    for number in range(commits):
        ingest_sources(OPTIONS, [page(number)], store)
        joined += merging.merge_small(store, OPTIONS.name) if joining else 0
    took_s = time.process_time() - began_s
    times = []
    for _ in range(5):
        at_s = time.perf_counter()
        rows = duckdb_views.connect(store).execute(SELECT).fetchall()
        times.append(time.perf_counter() - at_s)
    assert len(rows) == 10
    name = "joined" if joining else "as they are"
    return (
        f"| {name} | {commits:,} | {len(lake.live(store)):,} | {1e3 * took_s / commits:.0f} | "
        f"{1e3 * statistics.median(times):.0f} |"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=256)
    given = parser.parse_args()
    print("| commits | made | left | CPU ms a commit | query ms |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        for joining in (False, True):
            print(measured(Path(name) / str(joining), given.commits, joining=joining), flush=True)


if __name__ == "__main__":
    main()
