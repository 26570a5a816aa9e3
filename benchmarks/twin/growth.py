"""How the cost of a replay grows: python -m benchmarks.twin.growth [--engine kernel|des] [--hours H] [--plot
FILE]

One size at a time: domains K (all in the plan), stages S, micro-batches m, changes of the links, jobs that
share the links. Wall seconds for H simulated hours, and per iteration or change where that is what should be
constant; `--plot docs/measured/growth.svg` draws it. `--memory` replays 1, 7 and 30 days, each in a process
of its own, and prints what a replay needs: it should not grow.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace as changed
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.twin.world import run
from ingest.core.durable import replace
from ingest.core.units import to_ns
from tests.support.worlds import toy_setup
from twin.core.facts import Trigger
from twin.core.plan import Plan
from twin.engines.engine import EngineName
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario
from twin.traces.wan_trace import LinkSeries, trace
from twin.world.world import World

DAYS = (1, 7, 30)


def world(
    hours: float, *, domains: int = 8, pp: int = 1, sequences: int = 16, every_s: float = 60.0, jobs: int = 1
) -> tuple[PreparedScenario, Plan]:
    """K domains in a pipeline of K * `pp` stages, `sequences` micro-batches, all links new each `every_s`."""
    base = toy_setup(domains)
    cluster = base.scenario.cluster.model_dump()
    cluster["domains"] = [d | {"gpus": 4 * pp * jobs} for d in cluster["domains"]]
    setup = toy_setup(
        domains,
        seconds=hours * 3600,
        cluster=cluster,
        latency_s=0.02,
        control={"period_s": 300, "horizons_s": [0, 60, 300, 600, 1800]},
        telemetry={"period_s": 60},
        job={"global_batch": sequences, "micro_batches": [1], "zero": 1},
        jobs=[{"name": f"job{n}"} for n in range(jobs)] if jobs > 1 else [],
    )
    setup = changed(setup, wan=_wandering(setup, every_s))
    estimator = Estimator(setup.cluster, setup.job)
    layers = [len(part) for part in np.array_split(np.arange(estimator.n_layers), domains)]
    return setup, estimator.make(range(domains), layers, 1, [(4, pp)] * domains, 1)


def _wandering(setup: PreparedScenario, every_s: float) -> Any:
    """Every link takes log-normal values around 8 Gb/s, each at its own times."""
    rng, end = np.random.default_rng(0), setup.wan.end_ns
    series = {}
    for pair in setup.wan.series:
        times = np.append(0, np.arange(to_ns(rng.uniform(1e-3, every_s)), end, to_ns(every_s)))
        rates = 8e9 * np.exp(0.3 * rng.standard_normal(len(times)))
        series[pair] = LinkSeries(times, rates, np.full(len(times), 0.02))
    return trace(setup.wan.names, series, end)


def play(setup: PreparedScenario, plan: Plan, engine: EngineName) -> dict[str, Any]:
    """The totals of a run in which every job keeps `plan`."""
    instance = World(setup, engine)
    for fact in instance:
        if isinstance(fact, Trigger):
            instance.apply(plan)
    return dict(fact.payload["totals"])


def sizes(hours: float) -> Iterator[tuple[str, int, tuple[PreparedScenario, Plan]]]:
    """(what grows, its size, the world)."""
    for domains in (2, 4, 8, 16):
        yield "domains", domains, world(hours, domains=domains)
    for pp in (1, 2, 4):
        yield "stages", 4 * pp, world(hours, domains=4, pp=pp)
    for sequences in (8, 16, 32, 64, 128):
        yield "micro-batches", sequences, world(hours, sequences=sequences)
    for every_s in (240.0, 60.0, 15.0, 4.0):
        yield "changes an hour and link", round(3600 / every_s), world(hours, every_s=every_s)
    for jobs in (1, 2, 4, 8):
        yield "jobs", jobs, world(hours, domains=4, jobs=jobs)


Growth = dict[str, list[tuple[int, float, int]]]
"""What grows -> (size, wall seconds, iterations), ascending."""


def growth(hours: float, engine: EngineName) -> Growth:
    """Measure every size; prints one line each."""
    run(*world(0.1), engine)
    print(f"{engine} engine, {hours:g} simulated hours\n{'':>24}  size  wall s  iterations  us/iteration")
    found: Growth = {}
    for what, size, (setup, plan) in sizes(hours):
        start = perf_counter()
        done = play(setup, plan, engine)
        wall_s, count = perf_counter() - start, done["iterations"]
        found.setdefault(what, []).append((size, wall_s, count))
        print(f"{what:>24}  {size:4}  {wall_s:6.3f}  {count:10,}  {1e6 * wall_s / max(count, 1):12.1f}")
    return found


def plotted(found: Growth, path: Path, title: str) -> None:
    """One panel for each thing that grows: wall seconds against its size, both logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(3 * len(found), 3), sharey=True)
    for panel, (what, rows) in zip(panels, found.items(), strict=True):
        size, wall_s, _ = zip(*rows, strict=True)
        panel.loglog(size, wall_s, "o-", label="measured")
        panel.loglog(size, [wall_s[0] * n / size[0] for n in size], ":", color="grey", label="linear")
        panel.set_xlabel(what)
        panel.set_xticks(size, [str(n) for n in size])
        panel.minorticks_off()
    panels[0].set_ylabel("wall seconds")
    panels[0].legend()
    figure.suptitle(title)
    drawn = BytesIO()
    figure.savefig(drawn, format=path.suffix[1:] or "png", bbox_inches="tight", metadata={"Date": None})
    replace(path, drawn.getvalue())


def memory(days: int) -> None:
    """Print what one replay of `days` needs, in MB."""
    setup, plan = world(24.0 * days)
    samples = sum(len(link.times_ns) for link in setup.wan.series.values())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = perf_counter()
    run(setup, plan, "kernel")
    wall_s = perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{days:3} days  trace {24 * samples / 1e6:6.1f} MB  peak before the run {before:6.0f} MB  "
        f"more during it {after - before:5.1f} MB  {wall_s:6.2f} s  {wall_s / days:5.2f} s a day"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["kernel", "des"], default="kernel")
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the growth, too")
    parser.add_argument("--days", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.days is not None:
        memory(chosen.days)
    elif chosen.memory:
        for days in DAYS:
            subprocess.run([sys.executable, "-m", "benchmarks.twin.growth", "--days", str(days)], check=True)
    else:
        found = growth(chosen.hours, chosen.engine)
        if chosen.plot:
            plotted(found, chosen.plot, f"{chosen.engine} engine, {chosen.hours:g} simulated hours")


if __name__ == "__main__":
    main()
