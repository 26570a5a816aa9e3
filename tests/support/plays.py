"""Play a world through with scripted answers, and look things up in what happened."""

from collections.abc import Callable, Sequence
from typing import Any

from twin.core.facts import Fact, Trigger
from twin.core.plan import Plan
from twin.engines.engine import EngineName
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario
from twin.world.world import World

Answer = Callable[[Trigger], Plan | None]


def plan_over(
    setup: PreparedScenario, order: Sequence[int], counts: Sequence[int], *, dp: int = 2, tp: int = 2
) -> Plan:
    """`counts[n]` layers in domain `order[n]`, dp x tp GPUs each, micro-batches of one sequence."""
    estimator = Estimator(setup.cluster, setup.job)
    plan = estimator.make(order, counts, dp, [(tp, 1)] * len(order), 1)
    assert estimator.problems(plan) == ()
    return plan


def play(
    setup: PreparedScenario, answer: Answer, *, engine: EngineName = "kernel", seed: int = 0
) -> list[Fact]:
    """Every fact of the run."""
    world, facts = World(setup, engine, seed), []
    for fact in world:
        facts.append(fact)
        if isinstance(fact, Trigger):
            world.apply(answer(fact))
    return facts


def hold(plan: Plan) -> Answer:
    """Start with `plan` and keep it."""
    return lambda trigger: plan if trigger.payload["trigger"] == "start" else None


def script(*plans: Plan | None) -> Answer:
    """The n-th trigger gets the n-th plan, later ones None."""
    return lambda trigger: dict(enumerate(plans)).get(trigger.payload["number"])


def of_type(facts: Sequence[Fact], *types: str) -> list[Fact]:
    """Facts of these types, in order."""
    return [fact for fact in facts if fact.type in types]


def totals(facts: Sequence[Fact]) -> dict[str, Any]:
    """The sums that the run itself reported."""
    assert facts[-1].type == "run_finished"
    return dict(facts[-1].payload["totals"])


def progress_tokens(facts: Sequence[Fact]) -> float:
    """Tokens of complete iterations and of the share done of the one under way at the end."""
    parts = [fact.payload.get("part_tokens", 0.0) for fact in of_type(facts, "time_lost")]
    return float(totals(facts)["tokens"]) + sum(parts)


def durations(facts: Sequence[Fact]) -> list[int]:
    """Nanoseconds of every complete iteration, in order."""
    runs = [run for fact in of_type(facts, "iteration_done") for run in fact.payload["durations"]]
    return [ns for count, ns in runs for _ in range(count)]
