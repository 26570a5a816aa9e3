"""The answer of `twin plan` against the world: predicted and replayed speed, and the plans of planners.

    python -m benchmarks.policy.plan_answer --store STORE quad-70b octo-175b
    python -m benchmarks.policy.plan_answer --store STORE --model llama2-70b --links wanify-aws8 \
        --sites "us-east-1: 32 x H100, eu-west-1: 64 x A100-80, us-west-1: 32 x A100-40"

The second form is that of sites with different GPUs.

Each plan is kept over the whole record (`policy.baselines.kept`), so that its knobs are turned by what
telemetry tells. A row for the best plan of the answer, and one for the plan of each quick planner that the
answer has among its candidates.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.played import played
from policy.baselines.kept import Kept
from replay.planning.answer import answer
from replay.planning.candidates import QUICK, planned
from replay.planning.figures import PlanFigures, figures
from twin.core.plan import Plan
from twin.scenario.prepare import PreparedScenario, load, prepare
from twin.scenario.question import Question, question


def replayed(setup: PreparedScenario, plan: Plan) -> tuple[float, float]:
    """Tokens per second of a plan that is kept over the window of `setup`: over the window, and the rate that
    iterations exceed in half of its time."""
    estimator, run = setup.estimator(), played(setup, Kept(plan))
    tokens = estimator.tokens(plan)
    each_ns = np.repeat([ns for _, ns in run.lasted], [count for count, _ in run.lasted])
    slowest_first = np.sort(each_ns)[::-1]
    elapsed = np.cumsum(slowest_first)
    median_ns = slowest_first[np.searchsorted(elapsed, elapsed[-1] / 2)]
    return run.iterations * tokens / (setup.wan.end_ns / 1e9), tokens / (median_ns / 1e9)


def row(name: str, one: PlanFigures, reached: tuple[float, float]) -> str:
    p50, mean = one.tokens_per_s[1], one.mean_tokens_per_s
    return (
        f"{name:<12} {mean:>10,.0f} {reached[0]:>10,.0f} {100 * (mean / reached[0] - 1):>+8.1f} "
        f"{p50:>10,.0f} {reached[1]:>12,.0f} {100 * (p50 / reached[1] - 1):>+8.1f}"
    )


def compare(store: Path, asked: Question, planners: list[str]) -> None:
    """Prints the table of one scenario."""
    scenario = asked.scenario
    began, cpu = time.perf_counter(), time.process_time()
    found = answer(store, asked)
    print(f"\n{scenario.name}: {time.perf_counter() - began:.1f} s, {time.process_time() - cpu:.1f} s of CPU")
    heading = f"{'p50':>10} {'replayed p50':>12} {'off %':>8}"
    print(f"{'plan':<12} {'mean':>10} {'replayed':>10} {'off %':>8} {heading}")
    setup, best = prepare(scenario, store, window="all"), found.plans[0]
    reached = replayed(setup, best.plan)
    print(row("answer", best, reached))
    ahead = 0
    for planner, plan in planned(found.record, planners).items():
        one = None if isinstance(plan, str) else figures(found.record, plan, planner)
        if one is not None:
            other = replayed(setup, one.plan)
            ahead += other[0] > reached[0]
            print(row(planner, one, other), flush=True)
    print(f"planners whose plan is faster under the referee than that of the answer: {ahead}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--planners", default=",".join(QUICK), help="comma-separated; '' for none")
    for word in ("model", "sites", "links"):
        parser.add_argument(f"--{word}", help="as in twin plan")
    options = parser.parse_args()
    asked = [Question(load(name)) for name in options.scenarios]
    if options.sites:
        asked.append(question(options.store, options.model, options.sites, options.links))
    for one in asked:
        compare(options.store, one, [name for name in options.planners.split(",") if name])


if __name__ == "__main__":
    main()
