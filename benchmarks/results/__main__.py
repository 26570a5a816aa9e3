"""Runs the policies over measured and synthetic links, test windows only; writes docs/measured/results.md.

    python -m benchmarks.results [--minutes 24] [--seeds 5] [--store .twin/results] [--out
    docs/measured/results.md]

Each seed runs a checkpoint of `hippo` from a training of its own: the first one is that which ships, the
others are trained first, a minute and a half each, and kept in the store for as long as the code stays.

Every policy x scenario x seed is a run of the store. What is there with the same code is used again, so that
an interrupted call, or one with more minutes or seeds, goes on where the last one stopped. Nothing new is
begun after `--minutes`; the page says how far it came. Measured links need the traces beside the repository.
What `python -m benchmarks.policy.long_search` found is read from the same store.
"""

import argparse
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.hippo import ship as ship_hippo
from benchmarks.policy import long_search
from benchmarks.results import page as results_page
from benchmarks.results import plots as results_plots
from benchmarks.results.runs import GROUPS, bench, key, planned
from benchmarks.results.tables import Result
from ingest.core import durable, resources
from ingest.pipeline.ingest import ingest
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import shipped
from replay.bench.cells import run_cell
from replay.bench.worker_pool import WorkerPool, cores
from replay.store.run_header import code_version

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "measured" / "results.md"
TRACES = ROOT.parent / "shared" / "traces"
MEASURED = (
    "wan/cloudpilot-iperf3",
    "wan/wanify-aws8",
    "wan/skyplane-grids",
    "wan/geant-traffic-matrices",
    "gpu/jobs-philly",
)


class Progress:
    """Prints a line on stderr for every finished run."""

    def __init__(self) -> None:
        self._began, self._total, self._what, self._done = time.monotonic(), 0, "", 0

    def start(self, total: int | None, what: str, unit: str = "") -> None:
        """Starts a new count."""
        self._total, self._what, self._done = total or 0, what, 0

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Prints the count."""
        self._done += steps
        seconds = time.monotonic() - self._began
        print(
            f"{seconds:6.0f} s  {self._what} {self._done}/{self._total} {note}", file=sys.stderr, flush=True
        )


def trained(store: Path, seeds: int, jobs: int) -> list[Path | None]:
    """Returns the shipped checkpoint (None) and those of other training seeds, trained if missing."""
    others = [seed for seed in range(seeds) if seed != shipped("shipped").seed][: seeds - 1]
    folders = [store / "trained" / f"{code_version()['sources'][:12]}-{seed}" for seed in others]
    missing = [pair for pair in zip(folders, others, strict=True) if not [*pair[0].glob("*.pt")]]
    if missing:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            list(pool.map(ship_hippo.made, *zip(*missing, strict=True)))
    return [None, *(checkpoint.locate(folder) for folder in folders)]


def main() -> None:
    """Runs what is missing while there is time, and writes the page and its plots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=24.0, help="no run is begun after them")
    parser.add_argument("--only", default="", help="groups with one of these, A,B, in their titles")
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--store", type=Path, default=ROOT / ".twin" / "results")
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    durable.make_directory(given.out.parent)
    at_hand = all((TRACES / name).is_dir() for name in MEASURED)
    ingest([resources.traces(), *(TRACES / name for name in MEASURED if at_hand)], given.store)
    chosen = [
        group
        for group in GROUPS
        if (at_hand or not group.measured) and any(part in group.title for part in given.only.split(","))
    ]
    pool = WorkerPool(given.store, given.jobs, Progress())
    cells = list(planned(chosen, trained(given.store, given.seeds, given.jobs)))
    outcomes = pool.within(60 * given.minutes, run_cell, cells, "runs")
    found = {key(cell): out for cell, out in zip(cells, outcomes, strict=True) if out is not None}
    results = []
    for group in chosen:
        made = bench(group, found, given.seeds, pool)
        if made is not None:
            results.append(Result(group.title, group.asked, group.measured, *made))
    missing = [group.title for group in chosen if group.title not in {result.title for result in results}]
    done = f"{len(found)} of {len(cells)} runs planned"
    done += f" (no time was left for {', '.join(missing)})" if missing else ""
    done += "" if at_hand else " (measured links were not at hand: synthetic ones only)"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    plots = results_plots.draw(given.store, results, given.out.parent)
    about = results_page.About(given.minutes, given.jobs, machine, code_version()["sources"][:12], done)
    searches = long_search.kept(given.store)
    durable.replace(given.out, results_page.page(results, about, plots, searches).encode())


if __name__ == "__main__":
    main()
