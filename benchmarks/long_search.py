"""What minutes of search find beyond the milliseconds of one.

    nice python -m benchmarks.long_search --store .twin/results [--scenario planet-405b] [--minutes 10]

The links are those at the start of the scenario's test window. The long search repeats the short one under
links with random factors (each of a log-normal distribution, wider and narrower by turns), which leads it to
other paths, times what it came across under the true links, and climbs from the best. A line for each better
plan, and at the end how far the first one was from the last, and the plans of `hippo` and `mpc` at the start.
"""

import argparse
import time
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.planners import first_view, microseconds, timed
from policy.search import Pool, best_plans, build, explore
from twin import scenario as scenarios
from twin.domain import LinkState
from twin.seeds import generator

SPREADS = (0.05, 0.1, 0.2, 0.4)
TAKEN = 40
"""Plans of every search that are timed under the true links."""


def main() -> None:
    """Print what is found when."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True, help="one in which the scenario's links are")
    parser.add_argument("--scenario", default="planet-405b")
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    setup = scenarios.prepare(scenarios.load(given.scenario), given.store, window="test", seed=0)
    view, estimator, rng = first_view(setup), setup.estimator(), generator(0, "long search")
    links, free, slowdown = view.forecast.links(), view.free_gpus, view.slowdown
    best_plans(estimator, links, free_gpus=free, slowdown=slowdown)  # compiles, and makes the tables
    began = time.perf_counter()
    (best, least), *_ = best_plans(estimator, links, free_gpus=free, slowdown=slowdown, top=1)
    first, short_s = least, time.perf_counter() - began

    def told(seconds: float) -> None:
        pace_us = microseconds(estimator, view, best)
        print(f"{seconds:8.2f} s  {pace_us:9.3f} us/token  {best}", flush=True)

    told(short_s)
    began = time.perf_counter()
    for number in count():
        if time.perf_counter() - began > 60 * given.minutes:
            break
        sd_log = SPREADS[number % len(SPREADS)]
        factors = np.exp(sd_log * rng.standard_normal(links.bandwidth_bps.shape))
        other = LinkState(links.bandwidth_bps * factors, links.latency_s)
        found = explore(estimator, other, free_gpus=free, slowdown=slowdown).fastest(TAKEN)
        true = Pool(estimator, links, free, slowdown)
        true.add(found)
        true.climb(true.finalists())
        (ns, shape, cuts), *_ = true.ranked(1)
        if ns < least:
            least, best = ns, build(estimator, shape, cuts)
            seconds = time.perf_counter() - began
            print(
                f"{seconds:8.2f} s  {microseconds(estimator, view, best):9.3f} us/token  {best}", flush=True
            )
    print(f"{number} searches; the first plan takes {100 * (first / least - 1):.2f} % longer than the last")
    for name in ("hippo", "mpc"):
        timed(name, setup, estimator, view)
        seconds, plan = timed(name, setup, estimator, view)
        assert not isinstance(plan, str), plan
        over = estimator.iter_ns(plan, links, slowdown) / least - 1
        print(
            f"{name} starts after {seconds:.2f} s with a plan {100 * over:+.2f} % from it under these links"
        )


if __name__ == "__main__":
    main()
