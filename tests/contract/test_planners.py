"""The search against every planner, in the state in which each scenario starts."""

from pathlib import Path

import pytest

from ingest.core import resources
from ingest.core.errors import InfeasibleError
from ingest.pipeline.ingest import ingest
from policy.control.knobs import default_knobs
from policy.core import registry
from policy.search.plan_search import best_plans
from tests.support.views import context, view
from twin.core.domain import LinkState
from twin.estimation.estimator import DEAD, Estimator
from twin.scenario import prepare
from twin.settings.window import split
from twin.traces import measured_links

MEASURED = ("cloudpilot-iperf3", "wanify-aws8", "skyplane-grids", "geant-traffic-matrices")
SCENARIOS = ("tri-7b", "quad-70b", "geant-70b", "storm")
"""`benchmarks/policy/planners.py` has octo-175b and planet-405b too, half a minute."""
PLANNERS = tuple(
    name for name, entry in registry.POLICIES.items() if not entry.learned and name not in ("mpc", "joint")
)
"""`mpc`, which `joint` is for a job alone, climbs from the plans of two such searches, and so may find a
little more than one."""


@pytest.fixture(scope="session")
def store(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    ingest([resources.traces(), *(shared / "traces/wan" / name for name in MEASURED)], folder)
    return folder


def start(store: Path, name: str) -> tuple[Estimator, LinkState]:
    """A scenario's estimator and the links that its test window begins with; filters would take longer."""
    scenario = prepare.load(name)
    whole = measured_links.load(store, scenario.wan, scenario.domains)
    return prepare.cost_models(scenario, store), whole.at(split(whole.end_ns, "test")[0])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_planner_starts_with_a_faster_synchronous_plan(store: Path, scenario: str) -> None:
    estimator, links = start(store, scenario)
    seen = view(estimator, links)
    (best, ns), *_ = best_plans(estimator, links, free_gpus=seen.free_gpus, top=1)
    assert not estimator.problems(best) and estimator.iter_ns(best, links) == ns < DEAD
    answered = 0
    for name in PLANNERS:
        policy = registry.create(name)
        policy.reset(context(estimator))
        try:
            plan = policy.decide(seen).plan
        except InfeasibleError:
            continue
        assert plan is not None and not estimator.problems(plan), name
        answered += 1
        if plan.sync is None:
            assert estimator.iter_ns(default_knobs(estimator.job, plan), links) >= ns, (
                f"{name}: {plan} beats {best}"
            )
    assert answered >= 6
