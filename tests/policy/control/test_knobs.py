from dataclasses import replace

import numpy as np
import pytest

from ingest.core.errors import UsageError
from policy.control.horizon import Outages, make_horizon
from policy.control.knobs import WARMUP_DEPTHS, KnobTuner, default_knobs, free_variants
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Candidate, Context, Decision
from tests.support.plays import plan_over
from tests.support.views import flat, view
from tests.support.worlds import toy_setup
from twin.core.domain import LinkState
from twin.core.plan import Plan, Schedule, Sync
from twin.estimation.estimator import Estimator

SPEED = (1.0, 0.0, 0.0)


def case() -> tuple[Estimator, LinkState, Plan]:
    setup = toy_setup(3, bps=5e9)
    estimator = Estimator(setup.cluster, setup.job)
    return estimator, flat(3, 5e9), plan_over(setup, (0, 1, 2), (12, 11, 11))


def knobs(estimator: Estimator, weights: tuple[float, float, float] = SPEED) -> KnobTuner:
    return KnobTuner(Context(estimator, 60.0, 10.0, weights, np.random.default_rng(0)))


def asked(
    estimator: Estimator,
    links: LinkState,
    decision: Decision,
    *,
    plan: Plan | None,
    weights: tuple[float, float, float] = SPEED,
    horizon_s: float = 600.0,
) -> Decision:
    seen = view(estimator, links, plan=plan, trigger="period")
    none = np.zeros_like(links.latency_s)
    horizon = make_horizon(seen.forecast, horizon_s, Outages(none, none))
    objective = Objective(weights, PlanOutcome(10.0, 0.5, 1.0))
    return knobs(estimator, weights).tune(decision, seen, horizon, objective)


def test_turns_to_a_relay_when_a_link_dies_and_back() -> None:
    estimator, links, plan = case()
    dead = replace(links, bandwidth_bps=links.bandwidth_bps.copy())
    dead.bandwidth_bps[0, 1] = dead.bandwidth_bps[1, 0] = 0.0
    held = Candidate(default_knobs(estimator.job, plan), 1.0, 2.0, 0.5, 0.0)
    turned = asked(estimator, dead, Decision(None, "held", (held,)), plan=plan)
    assert turned.plan is not None and set(turned.plan.routes) == {(0, 2, 1), (1, 2, 0)}
    assert "turns to routes" in turned.reason and "0-2-1" in turned.reason
    assert turned.candidates[0].plan == turned.plan and turned.candidates[0].score == 1.0
    back = asked(estimator, links, Decision(None, "held"), plan=turned.plan)
    assert back.plan is not None and not back.plan.routes and "direct routes" in back.reason


def test_holds_what_is_best_already() -> None:
    estimator, links, plan = case()
    once = asked(estimator, links, Decision(None, "held"), plan=plan).plan or plan
    repeated = asked(estimator, links, Decision(None, "held"), plan=once)
    expected = estimator.iter_ns(once, links) / 1e9
    assert repeated.plan is None and repeated.predicted_iter_s == pytest.approx(
        expected, rel=0.01
    )  # links waver


def test_knobs_are_set_for_the_links_of_now_whatever_comes() -> None:
    """They can be turned again at the next decision."""
    estimator, links, plan = case()
    slow = between(links, (0, 1), 1e6)
    for now, later, relayed in ((slow, links, True), (links, slow, False)):
        seen = view(estimator, now, plan=plan, trigger="period")
        coming = np.stack([now.bandwidth_bps, *[later.bandwidth_bps] * 4])
        forecast = replace(
            seen.forecast, horizons_s=np.array([0.0, 20.0, 60.0, 300.0, 900.0]), bandwidth_bps=coming,
            sd_log=np.repeat(seen.forecast.sd_log[:1], 5, axis=0),
        )  # fmt: skip
        none = np.zeros_like(links.latency_s)
        horizon = make_horizon(forecast, 600.0, Outages(none, none))
        objective = Objective(SPEED, PlanOutcome(10.0, 0.5, 1.0))
        decision = knobs(estimator).tune(Decision(None, "held"), seen, horizon, objective)
        assert bool((decision.plan or plan).routes) == relayed


def between(links: LinkState, pair: tuple[int, int], bps: float) -> LinkState:
    """The same links, one pair of domains changed."""
    bandwidth = links.bandwidth_bps.copy()
    bandwidth[pair] = bandwidth[pair[::-1]] = bps
    return replace(links, bandwidth_bps=bandwidth)


def over_two(estimator: Estimator, plan: Plan, layers: tuple[int, int]) -> Plan:
    return estimator.make((1, 2), layers, plan.dp, [(2, 1)] * 2, plan.micro_batch, extra_warmup=0)


def test_a_plan_that_is_gone_over_to_is_turned_and_its_layers_take_relays() -> None:
    estimator, links, plan = case()
    slow, goal = between(between(links, (0, 1), 1e6), (0, 2), 3e8), over_two(estimator, plan, (17, 17))
    decision = asked(estimator, slow, Decision(goal, "gains"), plan=plan, horizon_s=7200.0)
    assert decision.plan is not None and default_knobs(estimator.job, decision.plan) == goal
    assert decision.plan.route(0, 1) == ((0, 2), (2, 1))
    assert estimator.move(plan, decision.plan, slow).seconds < 0.1 * estimator.move(plan, goal, slow).seconds
    cheap = asked(estimator, slow, Decision(goal, "gains"), plan=plan, weights=(0.5, 0.0, 0.5), horizon_s=1e7)
    assert cheap.plan is not None and cheap.plan.route(0, 1) == ((0, 1),)  # a relay would be paid for twice


def test_no_move_where_the_running_plan_is_worth_no_less_with_its_own_knobs_turned() -> None:
    """Searches compare plans without extra warm-up; a relay or a deeper warm-up may be all that is needed."""
    estimator, links, plan = case()
    slow, goal = between(links, (0, 1), 1e6), over_two(estimator, plan, (17, 17))
    decision = asked(estimator, slow, Decision(goal, "gains"), plan=plan, horizon_s=60.0)
    job = estimator.job
    assert decision.plan is not None and default_knobs(job, decision.plan) == default_knobs(job, plan)
    assert decision.plan.routes and decision.reason.startswith("the running plan is worth no less")
    assert decision.extra["gain"] is None


def test_a_move_is_priced_on_the_routes_that_it_takes() -> None:
    """Layers between neighbours take the relays of their messages, not the dead slow link between them."""
    estimator, links, plan = case()
    slow = between(links, (0, 1), 1e6)

    def over(layers: tuple[int, int]) -> Plan:
        return estimator.make((0, 1), layers, plan.dp, [(2, 1)] * 2, plan.micro_batch, extra_warmup=0)

    routes = ((0, 2, 1), (1, 2, 0))
    running, goal = replace(over((30, 4)), routes=routes), over((17, 17))
    assert (
        estimator.move(running, goal, slow).seconds
        > 7200
        > 720
        > estimator.move(running, replace(goal, routes=routes), slow).seconds
    )
    decision = asked(estimator, slow, Decision(goal, "gains"), plan=running, horizon_s=7200.0)
    assert (
        decision.plan is not None
        and default_knobs(estimator.job, decision.plan) == goal
        and decision.plan.routes
    )


def test_where_only_money_counts_nothing_is_relayed() -> None:
    estimator, links, plan = case()
    slow = replace(links, bandwidth_bps=links.bandwidth_bps.copy())
    slow.bandwidth_bps[0, 1] = slow.bandwidth_bps[1, 0] = 5e8
    fast = asked(estimator, slow, Decision(None, "held"), plan=plan)
    assert fast.plan is not None and fast.plan.routes
    cheap = asked(estimator, slow, Decision(None, "held"), plan=plan, weights=(0.0, 0.0, 1.0))
    assert cheap.plan is None or not cheap.plan.routes


def test_what_more_than_speed_counts_for_is_decided_by_the_links_themselves() -> None:
    estimator, links, plan = case()
    links.bandwidth_bps[0, 1] = 1e6
    seen = view(estimator, links, plan=replace(plan, extra_warmup=2))
    none = np.zeros((3, 3))
    horizon = make_horizon(seen.forecast, 600.0, Outages(none, none))
    relayed, longer = knobs(estimator).planning_inputs(seen, horizon)
    direct, same = knobs(estimator, (0.5, 0.0, 0.5)).planning_inputs(seen, horizon)
    assert relayed.plan == direct.plan == plan
    assert same is horizon and direct.forecast is seen.forecast
    assert relayed.forecast.bandwidth_bps[0, 0, 1] > 1e9
    assert (longer.states.bandwidth_bps[:, 0, 1] > 10 * horizon.states.bandwidth_bps[:, 0, 1]).all()


def test_depths_are_those_that_fit() -> None:
    estimator, _, plan = case()
    found = list(free_variants(estimator, replace(plan, extra_warmup=3)))
    assert [one.extra_warmup for one in found] == [depth for depth in WARMUP_DEPTHS if depth != 3]
    gpus = [
        replace(d, gpu=replace(d.gpu, memory_bytes=max(estimator.peak_mem_bytes(plan))))
        for d in estimator.cluster.domains
    ]
    tight = Estimator(replace(estimator.cluster, domains=tuple(gpus)), estimator.job)
    assert not list(free_variants(tight, plan))
    assert not list(free_variants(estimator, replace(plan, schedule="gpipe")))


def test_replicas_and_plans_that_cannot_run_are_left_alone() -> None:
    estimator, links, plan = case()
    assert asked(estimator, links, Decision(None, "held"), plan=None) == Decision(None, "held")
    copies = Plan(
        tuple(replace(s, layers=34) for s in plan.shares),
        plan.dp,
        1,
        plan.micro_batches,
        zero=1,
        sync=Sync(10),
    )
    assert asked(estimator, links, Decision(None, "held"), plan=copies).plan is None
    few = replace(view(estimator, links, plan=plan, trigger="failure"), free_gpus=(0, 4, 4))
    none = np.zeros((3, 3))
    horizon = make_horizon(few.forecast, 600.0, Outages(none, none))
    worth = Objective(SPEED, PlanOutcome(10.0, 0.5, 1.0))
    assert knobs(estimator).tune(Decision(None, "held"), few, horizon, worth) == Decision(None, "held")


def test_schedules_that_the_job_allows_are_free_knobs() -> None:
    estimator, links, plan = case()
    assert not [one for one in free_variants(estimator, plan) if one.schedule != "1f1b"]
    allowed = replace(estimator.job, schedules=("1f1b", "gpipe", "zb-h1"))
    free = Estimator(estimator.cluster, allowed)
    found = list(free_variants(free, plan))
    assert {one.schedule for one in found} == {"1f1b", "gpipe", "zb-h1"}
    assert [one.extra_warmup for one in found if one.schedule != "1f1b"] == [0, 0]
    best = min([plan, *found], key=lambda one: free.iter_ns(one, links))
    turned = asked(free, links, Decision(None, "held"), plan=plan).plan
    assert turned is not None and free.iter_ns(turned, links) <= free.iter_ns(best, links)
    assert free.iter_ns(turned, links) < free.iter_ns(plan, links)
    assert default_knobs(allowed, replace(turned, schedule="zb-h1")) == plan
    changed = asked(free, links, Decision(None, "held"), plan=replace(plan, schedule="gpipe"))
    assert changed.plan is not None and "turns" in changed.reason
    assert f"to schedule {changed.plan.schedule}" in changed.reason


@pytest.mark.parametrize(
    ("given", "said"),
    [(("1f1b", "zb-v"), "cannot switch to zb-v"), (("gpipe", "zb-h1"), "1f1b, which plans begin with")],
)
def test_what_plans_cannot_choose_is_refused(given: tuple[Schedule, ...], said: str) -> None:
    estimator, _, _ = case()
    with pytest.raises(UsageError, match=said):
        replace(estimator.job, schedules=given)
