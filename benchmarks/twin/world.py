"""Seconds to replay a simulated day: python -m benchmarks.twin.world [--hours H] [--engine kernel|des|both]

K = 8 domains, one 7B job, one fixed plan with iterations of some seconds, all 56 links changing every
minute: at the same times (as in a snapshot series) or each at its own times (the worst case). Telemetry
every minute, a decision every five minutes and on every change of 25 %. Target (2 cores): 24 h in
under 1 s with the kernel engine, under 60 s with the event engine.
"""

import argparse
from collections.abc import Mapping, Sequence
from time import perf_counter, process_time
from typing import Any

import numpy as np

from tests.support.worlds import toy_setup
from twin.core.facts import Trigger
from twin.core.plan import Plan
from twin.engines.engine import EngineName
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario
from twin.world.world import World

K = 8
Steps = Mapping[tuple[int, int], Sequence[tuple[float, float]]]


def wandering(seconds: float, together: bool, every_s: float = 60.0) -> Steps:
    """Log-normal links around 8 Gb/s, correlated over 20 minutes."""
    rng = np.random.default_rng(0)
    steps = {}
    for pair in ((i, j) for i in range(K) for j in range(K) if i != j):
        at = np.arange(1, int(seconds / every_s)) * every_s + (0 if together else rng.uniform(0, every_s))
        level = np.zeros(len(at))
        for k in range(1, len(at)):
            level[k] = 0.95 * level[k - 1] + 0.1 * rng.standard_normal()
        rates = 8e9 * np.exp(level)
        steps[pair] = [(float(a), float(r)) for a, r in zip(at, rates, strict=True) if a < seconds]
    return steps


def world(seconds: float, together: bool) -> tuple[PreparedScenario, Plan]:
    """The world and the plan that is kept all day."""
    setup = toy_setup(
        K,
        seconds=seconds,
        steps=wandering(seconds, together),
        latency_s=0.03,
        control={"period_s": 300, "horizons_s": [0, 60, 300, 600, 1800]},
        telemetry={"period_s": 60},
        job={"global_batch": 32, "micro_batches": [1], "zero": 1},
    )
    plan = Estimator(setup.cluster, setup.job).make(range(K), (5, 4, 4, 4, 4, 4, 4, 5), 2, [(2, 1)] * K, 1)
    return setup, plan


def run(setup: PreparedScenario, plan: Plan, engine: EngineName) -> tuple[int, dict[str, Any]]:
    """Play the world through without keeping its facts, as a replay does; how many there were, and totals."""
    instance, count = World(setup, engine), 0
    for fact in instance:
        count += 1
        if isinstance(fact, Trigger):
            instance.apply(plan)
    return count, fact.payload["totals"]


def main() -> None:
    """Print one line per world and engine: seconds on the wall, and of the processor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--engine", choices=["kernel", "des", "both"], default="both")
    chosen = parser.parse_args()
    engines: tuple[EngineName, ...] = ("kernel", "des") if chosen.engine == "both" else (chosen.engine,)
    run(*world(300.0, together=True), "kernel")
    for together in (True, False):
        setup, plan = world(chosen.hours * 3600, together)
        for engine in engines:
            start, start_cpu = perf_counter(), process_time()
            count, done = run(setup, plan, engine)
            wall_s, cpu_s = perf_counter() - start, process_time() - start_cpu
            mean_s = done["iteration_ns"] / done["iterations"] / 1e9
            links = "together" if together else "apart   "
            print(
                f"{engine:6}  links change {links}  {chosen.hours:g} h in {wall_s:5.2f} s, CPU {cpu_s:5.2f}, "
                f"{done['iterations']} iterations of {mean_s:.1f} s, {count} facts"
            )


if __name__ == "__main__":
    main()
