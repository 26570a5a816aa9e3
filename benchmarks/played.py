"""One policy's run over the window of a prepared scenario, without a log: what the benchmarks compare."""

import time
from dataclasses import dataclass
from typing import Any

from policy.core.protocol import Context, Policy
from twin.core.facts import Trigger
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.scenario.prepare import PreparedScenario
from twin.world.world import World

Weights = tuple[float, float, float]


@dataclass(frozen=True)
class Played:
    """What a policy reached: the iteration under way counts by its share."""

    iterations: float
    totals: dict[str, Any]
    """As a run's last event has them: nanoseconds of computing and of activity by domain, egress in USD."""
    seconds: float
    """CPU seconds of this process."""
    plans: tuple[Plan, ...]
    """Every plan that it chose, once, in order."""
    decided_ns: tuple[int, ...]
    lasted: tuple[tuple[int, int], ...]
    """Iterations that were done: how many in a row lasted the same, and nanoseconds of one."""


def played(setup: PreparedScenario, policy: Policy, weights: Weights | None = None) -> Played:
    """Returns what a policy reaches in the world of `setup`, under the scenario's weights or others.

    The policy knows the links' history that `setup` holds, and of the window only what it has seen.
    """
    began, scenario, estimator = time.process_time(), setup.scenario, setup.estimator()
    restart_s, rng = scenario.moving.restart_s, generator(setup.seed, "policy")
    aims = scenario.weights.vector if weights is None else weights
    policy.reset(Context(estimator, scenario.control.period_s, restart_s, aims, rng, setup.history))
    world, tokens, totals = World(setup, engine="kernel", seed=setup.seed), 0.0, {}
    plans: dict[Plan, None] = {}
    decided, lasted = [0], list[tuple[int, int]]()
    for fact in world:
        if fact.type == "iteration_done":
            tokens += fact.payload["tokens"]
            lasted += [(count, ns) for count, ns in fact.payload["durations"]]
        elif fact.type == "time_lost":
            tokens += fact.payload.get("part_tokens", 0.0)
        elif fact.type == "run_finished":
            totals = fact.payload["totals"]
        if isinstance(fact, Trigger):
            assert fact.view is not None
            decision = policy.decide(fact.view)
            decided.append(fact.sim_ns)
            if decision.plan is not None:
                plans[decision.plan] = None
            world.apply(decision.plan)
    iterations = tokens / estimator.tokens_per_iteration
    cpu_s = time.process_time() - began
    return Played(iterations, totals, cpu_s, tuple(plans), tuple(decided), tuple(lasted))
