"""A bank of up to a million link filters, whole and in shards, in one process and over Ray:

    python -m benchmarks.twin.scale [--links 1000,10000,100000,1000000] [--shard 131072] [--ray 2]

Every link is a synthetic OU process that is observed at 20 ticks of 30 s, and forecast at six horizons after
each. CPU seconds are those of the filters, without making the samples. Links come in blocks of 1,000, each
from a seed of its own, so that a bank of all links and banks of shards see the same; the SHA-256 of the state
and of the last forecast of every block must be equal in all ways. Peak memory is the largest of the processes
that did the work.
"""

import argparse
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from replay.bench.worker_pool import WorkerPool, over
from twin.core.seeds import generator
from twin.filters.kalman_bank import FilterBank
from twin.filters.ou_process import Array, OuParameters

LINKS = (1_000, 10_000, 100_000, 1_000_000)
BLOCK, TICKS, PERIOD_S = 1_000, 20, 30
HORIZONS_S = np.array([0.0, 10.0, 30.0, 60.0, 120.0, 300.0])

Shard = tuple[int, int]
"""First block and number of blocks."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """What a shard of the bank came to: the digest of each block, CPU seconds, peak memory of its process."""

    digests: tuple[str, ...]
    observe_s: float
    forecast_s: float
    peak_mb: float


def filtered(_: Path, shard: Shard) -> Filtered:
    """Runs the filters of a shard over all ticks."""
    rngs = [generator(0, f"block/{number}") for number in range(shard[0], sum(shard))]
    bank = FilterBank(_parameters(rngs))
    index = np.arange(len(rngs) * BLOCK)
    spent, mean, var = np.zeros(2), np.zeros((6, 0)), np.zeros((6, 0))
    for tick in range(1, TICKS + 1):
        seen = bank.parameters.mu + 0.2 * _normal(rngs)
        begin = process_time()
        bank.observe(tick * PERIOD_S * NS_PER_S, index, seen)
        observed = process_time()
        mean, var = bank.forecast(tick * PERIOD_S * NS_PER_S, HORIZONS_S)
        spent += observed - begin, process_time() - observed
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = np.split(np.vstack([mean, var, bank.mean, bank.var]), len(rngs), axis=1)
    digests = (sha256(np.ascontiguousarray(block)).hexdigest() for block in found)
    return Filtered(tuple(digests), *spent.tolist(), peak_mb)


def _normal(rngs: Sequence[np.random.Generator]) -> Array:
    """(L,) standard normal values, each block from its generator."""
    return np.concatenate([rng.standard_normal(BLOCK) for rng in rngs])


def _parameters(rngs: Sequence[np.random.Generator]) -> OuParameters:
    """Links of 1 Gb/s that vary by 20 %, correlated over 1 to 30 minutes."""
    uniform = np.concatenate([rng.random(BLOCK) for rng in rngs])
    theta = 1 / (60 + 1740 * uniform)
    return OuParameters(
        20.7 + 0.5 * _normal(rngs), theta, 0.2 * np.sqrt(2 * theta), np.full(len(theta), 1e-3)
    )


def shards(links: int, size: int) -> list[Shard]:
    """All blocks of so many links, in shards of up to `size` links."""
    blocks, most = links // BLOCK, max(1, size // BLOCK)
    return [(first, min(most, blocks - first)) for first in range(0, blocks, most)]


def measured(how: str, links: int, pool: WorkerPool, parts: Sequence[Shard]) -> tuple[str, list[str], float]:
    """Returns a row, the digests of all blocks, and CPU seconds of a tick with its forecasts."""
    begin = perf_counter()
    done = pool.each(filtered, parts, how)
    wall_s = perf_counter() - begin
    observe_s, forecast_s = (sum(getattr(one, name) for one in done) for name in ("observe_s", "forecast_s"))
    peak_mb = max(one.peak_mb for one in done)
    observe_ns, forecast_ns = (1e9 * spent / TICKS / links for spent in (observe_s, forecast_s))
    row = (
        f"{links:>9,}  {how:<22} {len(parts):6}  {wall_s:7.2f}  {observe_s + forecast_s:7.3f}"
        f"  {observe_ns:10.0f}  {forecast_ns:11.0f}  {peak_mb:7.0f}"
    )
    return row, [digest for one in done for digest in one.digests], (observe_s + forecast_s) / TICKS


def main() -> None:
    """Prints a row for every size and way, and how the CPU time of a tick grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--links", default=",".join(map(str, LINKS)))
    parser.add_argument("--shard", type=int, default=131_072)
    parser.add_argument("--ray", type=int, default=0, help="tasks at a time")
    chosen = parser.parse_args()
    sizes = sorted(int(text) for text in chosen.links.split(","))
    if any(size % BLOCK or size < BLOCK for size in sizes):
        raise SystemExit(f"--links: give multiples of {BLOCK:,}")
    here = Path()
    alone = WorkerPool(here)
    filtered(here, (0, 1))  # compiles the kernels
    print(
        f"{'links':>9}  {'how':<22} {'shards':>6}  {'wall s':>7}  {'CPU s':>7}  {'observe ns':>10}  "
        f"{'forecast ns':>11}  {'peak MB':>7}"
    )
    tick_s, found = [], {}
    for links in sizes:
        row, found[links], spent = measured("shards, one process", links, alone, shards(links, chosen.shard))
        tick_s.append(spent)
        print(row, flush=True)
    for links in sizes:  # ascending, behind the shards: peaks of a process never fall
        row, whole, _ = measured("whole, one process", links, alone, [(0, links // BLOCK)])
        print(row, flush=True)
        assert whole == found[links], "shards changed a result"
    if chosen.ray:
        print("\n".join(over_ray(here, chosen.ray, sizes, chosen.shard, found)))
    print("digests of all blocks are equal in every way that was run")
    if len(sizes) > 1:
        print(f"CPU time of a tick grows as links^{np.polyfit(np.log(sizes), np.log(tick_s), 1)[0]:.2f}")


def over_ray(
    here: Path, count: int, sizes: Sequence[int], shard: int, found: dict[int, list[str]]
) -> list[str]:
    """Returns the rows of Ray, which has stdout while it runs; holds the digests to those `found`."""
    rows = []
    try:
        with over(here, None, count) as pool:
            pool.each(filtered, [(0, 1)] * count, "first")  # starts the workers, which load the kernels
            for links in sizes:
                parts = shards(links, min(shard, links // count))
                row, digests, _ = measured(f"shards, {count} over Ray", links, pool, parts)
                assert digests == found[links], "Ray changed a result"
                rows.append(row)
    except UsageError as refused:
        raise SystemExit(str(refused)) from refused
    return rows


if __name__ == "__main__":
    main()
