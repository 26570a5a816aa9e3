"""What every registered policy has to do; a new one is covered by its line in the registry."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import InfeasibleError, NotFoundError, UsageError
from policy.core import registry
from policy.core.protocol import Context, Decision, Policy
from tests.support.worlds import toy_setup
from twin.core.domain import LinkState
from twin.core.facts import Trigger
from twin.core.plan import Schedule
from twin.core.schedules import default_chunks
from twin.core.seeds import generator
from twin.core.view import Forecast, View
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario
from twin.world.world import World

NAMES = registry.names()


def checkpoint() -> Path:
    from policy.hippo.agent.agent import shipped_checkpoint

    return shipped_checkpoint()


def created(name: str, setup: PreparedScenario, seed: int = 0) -> Policy:
    policy = registry.create(name, checkpoint=checkpoint() if registry.POLICIES[name].learned else None)
    policy.reset(context(setup, seed))
    return policy


def context(setup: PreparedScenario, seed: int = 0) -> Context:
    estimator = Estimator(setup.cluster, setup.job, restart_s=11.35)
    return Context(estimator, 60.0, 11.35, (0.6, 0.2, 0.2), generator(seed, "policy"))


def frozen(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def first_view(setup: PreparedScenario, seed: int = 0) -> View:
    """The view of the first decision, its arrays read-only."""
    for fact in World(setup, seed=seed):
        if isinstance(fact, Trigger):
            assert fact.view is not None
            return read_only(fact.view)
    raise AssertionError("a world asks at its start")


def read_only(view: View) -> View:
    seen = view.forecast
    arrays = (seen.horizons_s, seen.bandwidth_bps, seen.sd_log, seen.latency_s)
    return replace(view, forecast=Forecast(*map(frozen, arrays)), slowdown=frozen(view.slowdown))


def decisions(policy: Policy, setup: PreparedScenario, seed: int = 0) -> list[tuple[int, Decision]]:
    """Every decision of a run with its time; a plan that is not legal makes the world raise."""
    world, made = World(setup, seed=seed), []
    for fact in world:
        if isinstance(fact, Trigger):
            assert fact.view is not None
            decision = policy.decide(read_only(fact.view))
            assert decision.plan is not None or fact.view.plan is not None
            made.append((fact.sim_ns, decision))
            world.apply(decision.plan)
    return made


def summary(made: list[tuple[int, Decision]]) -> list[tuple[object, ...]]:
    return [(ns, d.plan, d.reason, d.candidates, d.predicted_iter_s, d.mask, d.fallback) for ns, d in made]


def restless(seed: int, until_s: float = 1200.0, size: int = 3, **scenario: object) -> PreparedScenario:
    """Links that jump every 40 s or so, the same for the same seed."""
    rng = np.random.default_rng(seed)
    times = np.arange(20.0, until_s, 40.0)
    steps = {
        (i, j): [(float(t), float(rng.uniform(3e8, 8e9))) for t in times]
        for i in range(size)
        for j in range(size)
        if i != j
    }
    return toy_setup(size, seconds=until_s, steps=steps, **scenario)


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Made = list[tuple[int, Decision]]


@pytest.fixture(scope="module")
def played(name: str) -> tuple[Policy, PreparedScenario, Made]:
    """A policy that has played through a restless world, the world, and its decisions."""
    setup = restless(1, 330.0)
    policy = created(name, setup)
    return policy, setup, decisions(policy, setup)


def test_the_first_answer_is_a_legal_plan_within_memory(name: str) -> None:
    setup = toy_setup(3)
    policy = created(name, setup)
    plan = policy.decide(first_view(setup)).plan
    estimator = Estimator(setup.cluster, setup.job)
    assert policy.name == name
    assert plan is not None and estimator.problems(plan) == ()
    assert max(estimator.peak_mem_bytes(plan)) <= setup.cluster.domains[0].gpu.memory_bytes


def test_equal_runs_make_equal_decisions_and_reset_forgets(
    played: tuple[Policy, PreparedScenario, Made],
) -> None:
    policy, setup, made = played
    policy.reset(context(setup))
    assert summary(decisions(policy, setup)) == summary(made)
    assert len(made) > 3


def test_a_decision_explains_itself_in_finite_numbers(played: tuple[Policy, PreparedScenario, Made]) -> None:
    for _, decision in played[2]:
        assert decision.reason
        assert decision.predicted_iter_s is None or 0 < decision.predicted_iter_s < 1e6
        assert all(candidate.iter_s > 0 for candidate in decision.candidates)


def test_the_future_decides_nothing(name: str, played: tuple[Policy, PreparedScenario, Made]) -> None:
    """Another policy object in a world whose later links are others: equal until then."""
    _, past, made = played
    until_s, other = 200.0, restless(4, 330.0)
    series = {}
    for pair, link in past.wan.series.items():
        later = other.wan.series[pair]
        old, new = link.times_ns < until_s * 1e9, later.times_ns >= until_s * 1e9
        columns = zip(
            (link.times_ns, link.bandwidth_bps, link.latency_s),
            (later.times_ns, later.bandwidth_bps, later.latency_s),
            strict=True,
        )
        series[pair] = type(link)(*(np.concatenate([a[old], b[new]]) for a, b in columns))
    changed = replace(past, wan=past.wan.with_series(series, "another future"))
    runs = summary(made), summary(decisions(created(name, changed), changed))
    before = [[entry for entry in run if int(str(entry[0])) < until_s * 1e9] for run in runs]
    assert len(before[0]) > 2
    assert before[0] == before[1]


def test_survives_outages_lost_gpus_and_slow_domains(name: str) -> None:
    setup = restless(
        5,
        375.0,
        outages=[{"src": "d0", "dst": "d1", "at_s": 100, "for_s": 100}],
        gpu_faults=[
            {"domain": "d2", "gpus": 4, "at_s": 50, "for_s": 150},
            {"domain": "d0", "gpus": 2, "at_s": 250, "for_s": 100},
        ],
        slowdowns=[{"domain": "d1", "factor": 2.0, "at_s": 150, "for_s": 150}],
    )
    made = decisions(created(name, setup), setup)
    assert len(made) > 3


@pytest.mark.parametrize("size", [2, 4, 8])
def test_any_number_of_domains(name: str, size: int) -> None:
    setup = toy_setup(size, bps=4e9)
    plan = created(name, setup).decide(first_view(setup)).plan
    assert plan is not None
    assert Estimator(setup.cluster, setup.job).problems(plan) == ()


def test_a_model_that_fits_nowhere_is_said_with_its_name(name: str) -> None:
    setup = toy_setup(2, model="llama3-405b")
    policy = registry.create(name, checkpoint=checkpoint() if registry.POLICIES[name].learned else None)
    with pytest.raises(InfeasibleError, match="llama3-405b"):
        policy.reset(context(setup))
        policy.decide(first_view(setup))


@pytest.mark.parametrize("schedule", registry.SCHEDULES)
def test_a_schedule_is_planned_or_refused_in_words(name: str, schedule: Schedule) -> None:
    job = toy_setup(2).scenario.job.model_copy(
        update={"schedule": schedule, "chunks": default_chunks(schedule)}
    )
    setup = toy_setup(2, job=job.model_dump())
    try:
        registry.check_schedule(name, schedule)
        plan = created(name, setup).decide(first_view(setup)).plan
    except InfeasibleError as refused:
        assert schedule in ("interleaved", "crosspipe", "zb-h1", "zb-v") and schedule in str(refused)
    else:
        assert plan is not None and Estimator(setup.cluster, setup.job).problems(plan) == ()


def test_a_dead_world_is_held_in(name: str) -> None:
    setup = toy_setup(2)
    policy, view = created(name, setup), first_view(setup)
    plan = policy.decide(view).plan
    assert plan is not None
    gone = replace(view, now_ns=10**9, trigger="failure", plan=plan, free_gpus=(0, 0))
    assert policy.decide(gone).plan is None


def test_holding_keeps_the_plan_when_nothing_changes(name: str) -> None:
    setup = toy_setup(3, seconds=600.0)
    made = decisions(created(name, setup), setup)
    if name != "greedy":  # telemetry noise alone may move it: that is its definition
        assert all(d.plan is None for _, d in made[1:])


def test_unknown_names_are_met_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="'greedy'"):
        registry.create("gredy")


def test_a_learned_policy_without_a_checkpoint_says_what_to_do() -> None:
    with pytest.raises(NotFoundError, match="twin train"):
        registry.create("hippo")


def test_links_of_the_view_are_what_it_says() -> None:
    view = first_view(toy_setup(2))
    assert isinstance(view.forecast.links(), LinkState)
