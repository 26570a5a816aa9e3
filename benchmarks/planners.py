"""The first decision of every policy on every shipped scenario: how long it takes, and what it is worth.

    python benchmarks/planners.py [--store .twin/results] [--only planet] [--policies sailor,dtfm]

Prints a line a policy: wall seconds of its first decision (compiling and tables included) and of the same
decision again by a new policy in the same process, microseconds a token under the links of that moment, the
distance to the best plan of `policy.search`, and the plan; or why there is none. `make results` fills the
store.
"""

import argparse
import time
from pathlib import Path

from ingest.errors import InfeasibleError
from policy import registry
from policy.hippo.agent import shipped_checkpoint
from policy.protocol import Context, Policy
from policy.search import best_plans
from twin import scenario as scenarios
from twin.cluster import World
from twin.estimate import Estimator
from twin.facts import Trigger
from twin.plan import Plan
from twin.scenario import Setup
from twin.seeds import generator
from twin.view import View


def first_view(setup: Setup) -> View:
    """What a policy sees at the start."""
    for fact in World(setup, seed=0):
        if isinstance(fact, Trigger):
            assert fact.view is not None
            return fact.view
    raise AssertionError("a world asks at its start")


def started(name: str, setup: Setup, estimator: Estimator) -> Policy:
    """A policy that is ready to decide."""
    learned = registry.entry(name).learned
    policy = registry.create(name, checkpoint=shipped_checkpoint() if learned else None)
    scenario = setup.scenario
    restart_s, weights = scenario.moving.restart_s, scenario.weights.vector
    policy.reset(Context(estimator, scenario.control.period_s, restart_s, weights, generator(0, "policy")))
    return policy


def timed(name: str, setup: Setup, estimator: Estimator, view: View) -> tuple[float, Plan | str]:
    """Wall seconds of a decision, and its plan or why there is none."""
    policy, began = started(name, setup, estimator), time.perf_counter()
    try:
        plan = policy.decide(view).plan
    except InfeasibleError as error:
        return time.perf_counter() - began, str(error)
    assert plan is not None
    return time.perf_counter() - began, plan


def line(name: str, setup: Setup, view: View, best_us: float) -> str:
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, default=Path(".twin/results"))
    parser.add_argument("--only", default="", help="scenarios with this in their names")
    parser.add_argument("--policies", default=",".join(registry.names()))
    given = parser.parse_args()
    for scenario in map(scenarios.load, scenarios.names()):
        if given.only not in scenario.name or scenario.jobs:
            continue
        setup = scenarios.prepare(scenario, given.store, window="test", seed=0)
        view, estimator = first_view(setup), setup.estimator()
        for _ in range(2):
            began = time.perf_counter()
            (best, _), *_ = best_plans(
                estimator, view.forecast.links(), free_gpus=view.free_gpus, slowdown=view.slowdown, top=1
            )
            seconds = time.perf_counter() - began
        best_us = microseconds(estimator, view, best)
        print(f"{scenario.name:12s} {'(search)':14s} {'':8s} {seconds:8.3f} s {best_us:9.2f} us/token")
        for name in given.policies.split(","):
            print(line(name, setup, view, best_us), flush=True)


if __name__ == "__main__":
    main()
