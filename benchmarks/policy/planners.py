"""How long the search for the best plan takes, and every policy's first decision: when, and what it is worth.

    python -m benchmarks.policy.planners [--states 20] [--store .twin/results] [--only planet] [--policies
    sailor]

The search runs on the clusters of four shipped scenarios, of 3, 4, 8 and 60 domains, under random links: a
line with the seconds that its tables take once, and milliseconds for each of `states` link states.

With a store that `make results` has filled there is a line a policy for each shipped scenario: wall seconds
of its first decision (compiling and tables included) and of the same decision again by a new policy in the
same process, microseconds a token under the links of that moment, the distance to the best plan of
`policy.search.plan_search`, and the plan; or why there is none.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from ingest.core.errors import InfeasibleError
from policy.core import registry
from policy.core.protocol import Context, Policy
from policy.hippo.agent.agent import shipped_checkpoint
from policy.hippo.env.training_task import random_links
from policy.search.plan_search import best_plans
from twin.core.facts import Trigger
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.core.view import View
from twin.estimation.estimator import Estimator
from twin.scenario import prepare
from twin.scenario.prepare import PreparedScenario, assemble
from twin.world.world import World

SEARCHED = ("tri-7b", "quad-70b", "octo-175b", "planet-405b")


def searched(name: str, states: int) -> str:
    """One row of the table of search times."""
    scenario, period_s = prepare.load(name), 300.0
    size = len(scenario.cluster.domains)
    wan, filters = random_links(generator(0, "planners"), size, 3 * states * period_s)
    setup = assemble(scenario, wan, window="all", seed=0, filters=filters)
    estimator, free = setup.estimator(), tuple(domain.gpus for domain in setup.cluster.domains)
    times = []
    for number in range(states + 1):  # the first one compiles and makes the tables
        links, began = wan.at(round(3 * number * period_s * 1e9)), time.perf_counter()
        assert best_plans(estimator, links, free_gpus=free, top=1), "random links are never dead"
        times.append(1e3 * (time.perf_counter() - began))
    p50, most = np.median(times[1:]), max(times[1:])
    return f"{name:12s} K = {size:2d}  tables {times[0] / 1e3:6.2f} s  p50 {p50:7.1f} ms  max {most:7.1f} ms"


def first_view(setup: PreparedScenario) -> View:
    """What a policy sees at the start."""
    for fact in World(setup, seed=0):
        if isinstance(fact, Trigger):
            assert fact.view is not None
            return fact.view
    raise AssertionError("a world asks at its start")


def started(name: str, setup: PreparedScenario, estimator: Estimator) -> Policy:
    """A policy that is ready to decide."""
    learned = registry.entry(name).learned
    policy = registry.create(name, checkpoint=shipped_checkpoint() if learned else None)
    scenario = setup.scenario
    restart_s, weights = scenario.moving.restart_s, scenario.weights.vector
    policy.reset(Context(estimator, scenario.control.period_s, restart_s, weights, generator(0, "policy")))
    return policy


def timed(name: str, setup: PreparedScenario, estimator: Estimator, view: View) -> tuple[float, Plan | str]:
    """Wall seconds of a decision, and its plan or why there is none."""
    policy, began = started(name, setup, estimator), time.perf_counter()
    try:
        plan = policy.decide(view).plan
    except InfeasibleError as error:
        return time.perf_counter() - began, str(error)
    assert plan is not None
    return time.perf_counter() - began, plan


def line(name: str, setup: PreparedScenario, view: View, best_us: float) -> str:
    """One row of the table."""
    estimator = setup.estimator()
    (first_s, plan), (again_s, _) = (timed(name, setup, estimator, view) for _ in range(2))
    head = f"{setup.scenario.name:12s} {name:14s} {first_s:8.3f} {again_s:8.3f} s"
    if isinstance(plan, str):
        return f"{head}  no plan: {plan[:120]}"
    assert not estimator.problems(plan, view.free_gpus), f"{name}: {plan} is not legal"
    us = microseconds(estimator, view, plan)
    return f"{head} {us:9.2f} us/token {100 * (us / best_us - 1):+7.1f} %  {plan}"


def microseconds(estimator: Estimator, view: View, plan: Plan) -> float:
    """Time per token of synchronous training under the links of the view."""
    ns = estimator.iter_ns(plan, view.forecast.links(), view.slowdown)
    return ns / 1e3 / estimator.tokens(plan)


def first_decisions(store: Path, only: str, policies: str) -> None:
    """Print a line a policy for every scenario with `only` in its name."""
    for scenario in map(prepare.load, prepare.names()):
        if only not in scenario.name or scenario.several_jobs:
            continue
        setup = prepare.prepare(scenario, store, window="test", seed=0)
        view, estimator = first_view(setup), setup.estimator()
        (best, _), *_ = best_plans(
            estimator, view.forecast.links(), free_gpus=view.free_gpus, slowdown=view.slowdown, top=1
        )
        best_us = microseconds(estimator, view, best)
        print(f"{scenario.name:12s} {'(search)':14s} {'':19s} {best_us:9.2f} us/token")
        for name in policies.split(","):
            print(line(name, setup, view, best_us), flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--states", type=int, default=20, help="link states that are searched")
    parser.add_argument("--store", type=Path, help="a filled one: first decisions, too")
    parser.add_argument("--only", default="", help="scenarios with this in their names")
    parser.add_argument("--policies", default=",".join(registry.names()))
    given = parser.parse_args()
    for name in SEARCHED:
        print(searched(name, given.states), flush=True)
    if given.store:
        first_decisions(given.store, given.only, given.policies)


if __name__ == "__main__":
    main()
