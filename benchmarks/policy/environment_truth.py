"""Whether the environment of training ranks plans as the world does: rank correlations of kept plans.

    nice python -m benchmarks.policy.environment_truth --store .twin/results [--scenario NAME ...] [--seed 0]

The plans are those of the past that `history` chooses from, of every quality, the static plan, the fastest
single domain, the best plans for the first links, and random legal ones. Each is kept for the test window:
in the world with the kernel engine, its relays and warm-up depth turned at every decision as policies do; and
in the twins of training over the same links, where its figure is the mean reward of a period under the
scenario's weights.
Spearman's rank correlation of both is printed over all plans and over those within 10 % of the best one in
the world, without penalties and with small multipliers on the imbalance of stages and on traffic over weak
links, as training may learn them.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.played import played
from benchmarks.policy.planners import first_view
from ingest.core.errors import InfeasibleError
from policy.baselines.mpc import TUNED
from policy.baselines.single import fastest_single
from policy.control.candidate_search import DeadLinkTracker
from policy.control.horizon import make_horizon
from policy.control.knobs import KnobTuner, default_knobs
from policy.control.long_run import PastPlans
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Context, Decision
from policy.hippo.decoding import action_encoding
from policy.hippo.env.practice_trace import PracticeTracePair, prepare_trace
from policy.hippo.env.training_task import prepare_task
from policy.hippo.env.vector_env import CONSTRAINTS
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.tables.planning_tables import Codes, PlanningTables, concatenate
from policy.search.plan_search import best_plans
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.core.view import View
from twin.estimation.link_state_times import States
from twin.scenario import prepare
from twin.scenario.prepare import PreparedScenario
from twin.settings.disturbances import Perturbation

Float = NDArray[np.float64]

SCENARIOS = ("quad-70b", "octo-175b", "storm")
FROM_PAST = 24
"""Plans taken from those of the past: the best half of them in a row, the others spread over the rest."""
RANDOM = 8
NEAR = 0.9
"""Share of the best plan's iterations from which a plan counts as near it."""
MULTIPLIERS = {"rewards alone": {}, "imbalance 0.1": {"imbalance": 0.1}, "weak links 0.1": {"weak_link": 0.1}}
SPEED = Objective((1.0, 0.0, 0.0), PlanOutcome(1.0, 0.0, 0.0))


@dataclass(frozen=True)
class Agreement:
    """Rank correlations of environment and world on one scenario."""

    scenario: str
    plans: int
    near: int
    penalties: str
    spearman: float
    spearman_near: float
    chosen_share: float  # iterations in the world of the environment's first plan, of the best one's


class Kept:
    """Keeps one plan, its free knobs turned."""

    name = "kept"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def reset(self, context: Context) -> None:
        """Starts a run."""
        self._knobs = KnobTuner(context)
        self._dead_links = DeadLinkTracker(context.cluster.size, TUNED.outage_s)

    def decide(self, view: View) -> Decision:
        """Returns the plan at the start, then holds."""
        decision = Decision(self._plan if view.plan is None else None, "kept")
        horizon = make_horizon(view.forecast, TUNED.horizon_s, self._dead_links.outages(view))
        return self._knobs.tune(decision, view, horizon, SPEED)


def world_iterations(setup: PreparedScenario, plan: Plan) -> float:
    """Returns the iterations of a kept plan over the window, the one under way by its share."""
    return played(setup, Kept(plan)).iterations


def kept_plans(setup: PreparedScenario, problem: PlanningTables, static: Codes) -> Iterator[Plan]:
    """Yields plans of every quality."""
    estimator, view = problem.estimator, first_view(setup)
    now = States.of([view.forecast.links()])
    past = PastPlans(estimator, setup.history).best(problem.free, now)
    half = FROM_PAST // 2
    spread = np.linspace(half, len(past) - 1, half).round().astype(int) if len(past) > half else []
    yield from (past[at].plan for at in dict.fromkeys([*range(min(half, len(past))), *spread]))
    yield problem.plan(static, 0)
    with suppress(InfeasibleError):  # some models fit in no single domain
        yield fastest_single(estimator, view)[0]
    yield from (
        plan for plan, _ in best_plans(estimator, view.forecast.links(), free_gpus=problem.free, top=2)
    )
    sizes = action_encoding.sizes(problem.masks)
    rows = (generator(0, "random plans").random((RANDOM, len(sizes))) * sizes).astype(np.int64)
    codes, _, _ = action_encoding.rows_to_plans(rows, problem.masks)
    yield from (problem.plan(codes, row) for row in range(RANDOM))


def measured(setup: PreparedScenario) -> tuple[Float, Float, Float]:
    """Returns for P plans iterations in the world (P,), mean reward of a period in the environment (P,), and
    mean values of its soft constraints (P, 3)."""
    config = HiPpoConfig()
    trace = prepare_trace(setup, config.rollout.samples_per_period, seed=0, conditions=(Perturbation(),))
    task = replace(prepare_task(setup, config), training=PracticeTracePair(trace, trace))  # forecasts aside
    plans = dict.fromkeys(
        default_knobs(task.problem.estimator.job, plan) for plan in kept_plans(setup, task.problem, task.base)
    )
    coded = {plan: codes for plan in plans if (codes := task.problem.encode(plan)) is not None}
    codes, go, twins = concatenate(list(coded.values())), np.ones(len(coded), np.bool_), task.twins(config)
    twins.begin(np.zeros(len(coded), np.int64), twins.weights)
    steps = [twins.step(codes, go) for _ in range(len(trace))]
    reward, limited = (np.mean([getattr(s, name) for s in steps], axis=0) for name in ("reward", "limited"))
    return np.array([world_iterations(setup, plan) for plan in coded]), reward, limited


def rank_correlation(one: Float, other: Float) -> float:
    """Returns Spearman's coefficient of two rows of numbers (P,)."""
    ranks = [np.argsort(np.argsort(row)) for row in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def agreements(name: str, setup: PreparedScenario) -> Iterator[Agreement]:
    """Yields a row for each set of multipliers."""
    world, reward, limited = measured(setup)
    near = world >= NEAR * world.max()
    for title, multipliers in MULTIPLIERS.items():
        found = reward - limited @ np.array([multipliers.get(one, 0.0) for one in CONSTRAINTS])
        all_plans, best = (rank_correlation(world[some], found[some]) for some in (near | True, near))
        share = float(world[found.argmax()] / world.max())
        yield Agreement(name, len(world), int(near.sum()), title, all_plans, best, share)


def main() -> None:
    """Print a row a scenario and set of multipliers, as a table or as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--scenario", action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not asked.json:
        print("scenario    plans  near  penalties        Spearman   near    chosen / best", flush=True)
    for name in asked.scenario or SCENARIOS:
        setup = prepare.prepare(prepare.load(name), asked.store, window="test", seed=asked.seed)
        for row in agreements(name, setup):
            text = f"{row.scenario:12s}{row.plans:5d}{row.near:6d}  {row.penalties:<16s}{row.spearman:9.3f}"
            text += f"{row.spearman_near:8.3f}{100 * row.chosen_share:11.1f} %"
            print(json.dumps(asdict(row)) if asked.json else text, flush=True)


if __name__ == "__main__":
    main()
