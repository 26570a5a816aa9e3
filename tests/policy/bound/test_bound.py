from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest

from ingest.core.errors import InfeasibleError
from ingest.core.units import NS_PER_S
from policy.bound.best_fixed_plan import best_fixed, every_plan
from policy.bound.bound import PRICED, Bound, clairvoyant
from policy.bound.candidate_plans import CandidatePool
from policy.bound.time_grid import grid, transfer_times
from policy.control.knobs import free_variants
from policy.core.protocol import Context
from policy.core.registry import create, names
from policy.hippo.agent.agent import shipped_checkpoint
from policy.search.plan_search import best_plans
from tests.support.bound_worlds import RESTART_S, restless, tiny
from tests.support.enumerated_paths import enumerated
from tests.support.plays import of_type, plan_over, play, progress_tokens
from tests.support.worlds import toy_setup, toy_wan
from twin.core.facts import Trigger
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario
from twin.traces.wan_trace import LinkSeries, WanTrace, trace


def latencies(size: int, rng: np.random.Generator, seconds: float) -> WanTrace:
    """Constant bandwidths, so that a transfer always takes the same; latencies that change."""
    base = toy_wan(size, seconds=seconds, bps=3e9)
    series = {}
    for pair in base.series:
        times = np.concatenate([[0], np.sort(rng.integers(1, int(seconds * NS_PER_S), 3))])
        series[pair] = LinkSeries(times, np.full(4, 3e9), rng.uniform(0.001, 0.6, 4))
    return trace(base.names, series, base.end_ns)


def test_equals_the_enumeration_of_every_sequence_of_every_plan() -> None:
    for seed in range(4):
        estimator, rng = tiny(), np.random.default_rng(seed)
        wan = latencies(2, rng, 150.0)
        bound = clairvoyant(estimator, wan, [0], restart_s=RESTART_S)
        assert bound.exact
        plans = every_plan(estimator, 400)
        made = grid(wan, [0], RESTART_S)
        costs = transfer_times(estimator, plans, made)
        seconds = [costs.table[0, costs.entry[a:b]].max(initial=0.0) for a, b in pairwise(costs.start)]
        pause = np.array(seconds).reshape(len(plans), len(plans))
        rate = np.stack([made.rate(estimator, plan) for plan in plans], axis=1)
        changes = np.unique(
            np.append(np.searchsorted(made.edges_s, wan.breakpoints() / NS_PER_S), made.slots)
        )
        merged = np.add.reduceat(rate * made.lengths_s[:, None], changes[:-1], axis=0)
        edges = made.edges_s[changes]
        expected = enumerated(edges, merged / np.diff(edges)[:, None], pause, RESTART_S, moves=2)
        assert bound.iterations == pytest.approx(expected, rel=1e-9)


def test_static_bound_equals_the_best_of_all_plans_evaluated_one_by_one() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        estimator = tiny(size=3, blocks=4, batch=8)
        made = grid(restless(3, rng, 300.0), [], RESTART_S)
        plans = every_plan(estimator, 100_000)
        assert plans
        each = [float(made.lengths_s @ made.rate(estimator, plan)) for plan in plans]
        worst = plans[int(np.argmin(each))]
        for known in (worst, plans[0], plans[int(np.argmax(each))]):
            fixed = best_fixed(estimator, made, known)
            assert fixed.exact
            assert fixed.iterations == max(each)


def test_static_bound_of_a_larger_space_has_nothing_above_it() -> None:
    rng = np.random.default_rng(5)
    setup = toy_setup(3)
    estimator = Estimator(setup.cluster, setup.job)
    made = grid(restless(3, rng, 200.0, changes=5), [], RESTART_S)
    state = made.states
    found: dict[Plan, None] = {}
    for n in range(0, len(state), 5):
        links = replace(toy_wan(3).at(0), bandwidth_bps=state.bandwidth_bps[n], latency_s=state.latency_s[n])
        found |= dict.fromkeys(plan for plan, _ in best_plans(estimator, links, free_gpus=(4, 4, 4), top=50))
    each = {plan: float(made.lengths_s @ made.rate(estimator, plan)) for plan in found}
    middling = sorted(each, key=lambda plan: each[plan])[len(each) // 2]  # the worst lets little be pruned
    fixed = best_fixed(estimator, made, middling)
    assert fixed.exact and each[middling] < max(each.values())
    assert fixed.iterations >= max(each.values())


def run(setup: PreparedScenario, name: str, seed: int = 0) -> tuple[float, list[Plan]]:
    """Tokens of a policy in a world, with the iteration under way at the end, and the plans that it used."""
    policy = create(name, checkpoint=shipped_checkpoint())
    estimator = Estimator(setup.cluster, setup.job)
    policy.reset(Context(estimator, 60.0, RESTART_S, (1.0, 0.0, 0.0), generator(seed, "policy")))
    used: list[Plan] = []

    def answer(trigger: Trigger) -> Plan | None:
        assert trigger.view is not None
        decision = policy.decide(trigger.view)
        used.extend([] if decision.plan is None else [decision.plan])
        return decision.plan

    facts = play(setup, answer, seed=seed)
    return progress_tokens(facts), used


def restless_setup(size: int, seed: int, seconds: float = 900.0) -> PreparedScenario:
    setup = toy_setup(size, seconds=seconds)
    return replace(setup, wan=restless(size, np.random.default_rng(seed), seconds))


def bound_of(setup: PreparedScenario, used: list[Plan], *, priced: int = 0) -> Bound:
    """The bound with decisions every minute; of spaces that are not priced, it is the lower."""
    estimator = Estimator(setup.cluster, setup.job)
    return clairvoyant(
        estimator, setup.wan, range(0, setup.wan.end_ns, 60 * NS_PER_S), restart_s=RESTART_S,
        used_plans=used, priced=priced,
    )  # fmt: skip


CORE = ("static", "single", "greedy", "mpc", "hippo")
NAMES = names()  # now: other tests may install a plugin with a policy
OTHERS = tuple(name for name in NAMES if name not in CORE)


SEEDS = 20


def others(seed: int) -> set[str]:
    """Two more policies, in the two worlds of equal `seed // 2`: one of two domains, one of three."""
    first = seed // 2 * 2
    return {OTHERS[number % len(OTHERS)] for number in (first, first + 1)}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_policy_is_above_it(seed: int) -> None:
    setup = restless_setup(2 + seed % 2, seed, 600.0 if seed % 5 == 0 else 300.0)
    taking_part = (*(CORE if seed % 5 == 0 else ()), *sorted(others(seed)))
    runs = [run(setup, name, seed) for name in taking_part]
    bound = bound_of(setup, [plan for _, used in runs for plan in used], priced=PRICED if seed < 2 else 0)
    assert (bound.ceiling_tokens is not None) == (seed < 2)
    assert (bound.ceiling_tokens or inf) >= bound.synchronous_tokens
    assert bound.static_tokens * (1 - 1e-12) <= bound.tokens < bound.capacity_tokens
    assert bound.kept_tokens <= bound.tokens * (1 + 1e-12)
    for tokens, used in runs:
        assert tokens <= bound.tokens
        if all(plan.sync is None or plan.sync.inner_steps == 1 for plan in used):
            assert tokens <= bound.synchronous_tokens


def test_every_policy_took_part() -> None:
    for first in (0, 1):  # worlds of two domains, and of three
        assert set().union(*(others(seed) for seed in range(first, SEEDS, 2))) | set(CORE) == set(NAMES)


def test_local_sgd_has_a_bound_of_its_own() -> None:
    """Replicas over slow links: local SGD is above everything synchronous, and only the first bound knows."""
    setup = toy_setup(2, bps=3e8)
    local, used = run(setup, "diloco")
    (sync,) = {plan.sync for plan in used}
    assert sync is not None and sync.inner_steps > 1
    bound = bound_of(setup, used)
    assert bound.synchronous_tokens < local <= bound.tokens
    alone = bound_of(setup, [])
    assert alone.synchronous_tokens == alone.tokens == bound.synchronous_tokens


@pytest.mark.parametrize("seed", range(5))
def test_no_random_walk_is_above_it(seed: int) -> None:
    setup = restless_setup(2, seed + 100)
    rng = np.random.default_rng(seed)
    estimator = Estimator(setup.cluster, setup.job)
    choices = [plan for plan, _ in best_plans(estimator, setup.wan.at(0), free_gpus=(4, 4), top=30)]
    used: list[Plan] = []

    def answer(trigger: Trigger) -> Plan | None:
        if used and rng.random() < 0.7:
            return None
        used.append(choices[int(rng.integers(len(choices)))])
        return used[-1]

    facts = play(setup, answer)
    assert of_type(facts, "plan_applied")
    assert progress_tokens(facts) <= bound_of(setup, used).tokens


def test_moves_when_a_link_dies_for_good_and_says_when() -> None:
    # Links that make spanning both domains best by far, until they die half-way.
    steps = {(0, 1): [(3000.0, 0.0)], (1, 0): [(3000.0, 0.0)]}
    setup = toy_setup(2, bps=5e10, latency_s=0.001, seconds=6000.0, steps=steps)
    bound = bound_of(setup, [])
    assert [len(plan.shares) for _, plan in bound.timeline] == [2, 1]
    (start, _), (moved, _) = bound.timeline
    assert start == 0 and 2000 * NS_PER_S < moved < 3100 * NS_PER_S
    assert bound.tokens > 1.05 * bound.static_tokens
    assert 0 < bound.utilisation < 1 and bound.egress_usd > 0


def test_free_knobs_are_one_family() -> None:
    setup = toy_setup(2)
    estimator = Estimator(setup.cluster, setup.job)
    (plan, _), *_ = best_plans(estimator, setup.wan.at(0), free_gpus=(4, 4), top=1)
    pool = CandidatePool(estimator, grid(setup.wan, [], RESTART_S))
    assert pool.add([plan, replace(plan, schedule="gpipe"), plan]) == 1
    assert len(pool.families[0].plans) == 2


def test_whoever_knows_the_future_drives_around_dead_links() -> None:
    """A link that is dead from the first second on: the bound has plans over it nevertheless, by a relay."""
    setup = toy_setup(3, bps=2e10, latency_s=0.002, steps={(1, 2): [(1.0, 0.0)], (2, 1): [(1.0, 0.0)]})
    estimator = Estimator(setup.cluster, setup.job)
    made = grid(setup.wan, [], RESTART_S)
    plan = plan_over(setup, (0, 1, 2), (12, 11, 11))
    pool = CandidatePool(estimator, made)
    pool.add([plan])
    (family,) = pool.families
    assert not made.rate(estimator, plan)[-1] and family.rate[-1] > 0
    tokens, used = run(setup, "mpc")
    assert any(plan.routes for plan in used)
    assert tokens <= bound_of(setup, used).tokens


def test_every_depth_counts_where_a_family_is_deepened() -> None:
    setup = toy_setup(3, bps=3e9, latency_s=0.05)
    estimator = Estimator(setup.cluster, setup.job)
    made = grid(setup.wan, [], RESTART_S)
    plan = plan_over(setup, (0, 1, 2), (12, 11, 11))
    pool = CandidatePool(estimator, made)
    pool.add([plan])
    (deep,) = pool.deepen(pool.families)
    every = [plan, *free_variants(estimator, plan)]
    best = np.maximum.reduce([made.rate(estimator, one) for one in every])
    assert deep.deep and len(every) > 2
    assert (deep.rate >= best).all() and deep.rate[0] > pool.window.rate(estimator, plan)[0]
    assert pool.families == [deep] and pool.deepen([deep]) == [deep]


def test_a_move_takes_relays_where_they_are_wider() -> None:
    """All layers of domain 0 go to domain 1 over a link that is a hundredth of the way around."""
    steps = {(0, 1): [(1.0, 1e8)]}
    setup = toy_setup(3, bps=1e10, latency_s=0.01, steps=steps)
    estimator = Estimator(setup.cluster, setup.job)
    made = grid(setup.wan, [], RESTART_S)
    one, other = plan_over(setup, (0, 2), (17, 17)), plan_over(setup, (1, 2), (17, 17))
    costs = transfer_times(estimator, [one, other], made)
    first, last = costs.start[1], costs.start[2]  # from plan 0 to plan 1
    seconds = costs.table[10, costs.entry[first:last]].max()
    size = sum(layer.parameters for layer in setup.job.model.layers()[:17]) * 14
    assert seconds == pytest.approx(size * 8 / 1e10 + 0.01, rel=0.02)


def test_more_domains_than_can_be_enumerated() -> None:
    setup = restless_setup(6, 1, 300.0)
    tokens, used = run(setup, "static")
    bound = bound_of(setup, used)
    assert not bound.exact and not bound.static_exact and bound.enumerated == 0
    assert tokens <= bound.static_tokens <= bound.tokens * (1 + 1e-12)


def test_interleaved_stages_that_do_not_divide_micro_batches_are_no_candidates() -> None:
    made = toy_setup(3, bps=5e10, latency_s=0.005, seconds=240.0)
    setup = replace(made, job=replace(made.job, schedule="interleaved", chunks=2))
    tokens, used = run(setup, "mpc")
    bound = bound_of(setup, used)
    assert not bound.static_exact and bound.enumerated == 0
    assert 0 < tokens <= bound.tokens * (1 + 1e-12)
    stages = sum(share.pp for share in bound.static_plan.shares)
    assert stages > 1 and bound.static_plan.micro_batches % stages == 0


def test_a_domain_alone_in_its_plans_needs_no_links() -> None:
    setup = toy_setup(2, bps=1e6)
    bound = bound_of(setup, [])
    assert len(bound.timeline) == 1 and len(bound.static_plan.shares) == 1
    assert bound.egress_usd == 0


def test_a_model_that_fits_nowhere_has_no_bound() -> None:
    setup = toy_setup(2, model="llama3-405b")
    with pytest.raises(InfeasibleError, match="405b"):
        bound_of(setup, [])


def test_copies_ahead_cost_a_move_its_restart_alone() -> None:
    estimator, wan = tiny(), restless(2, np.random.default_rng(3), 300.0)
    stopped, ahead = (
        clairvoyant(estimator, wan, [0], restart_s=RESTART_S, copied_ahead=copied) for copied in (False, True)
    )
    assert ahead.tokens >= stopped.tokens > 0
    free = clairvoyant(estimator, wan, [0], restart_s=0.0, copied_ahead=True)
    best_always = np.max(
        [grid(wan, [0], 0.0).rate(estimator, plan) for plan in every_plan(estimator, 400)], axis=0
    )
    assert free.iterations == pytest.approx(float(best_always @ grid(wan, [0], 0.0).lengths_s), rel=1e-3)


def test_the_plan_that_is_never_left_is_sought_by_the_links_themselves() -> None:
    """A relay makes one plan fast that is slow over its link; the other is faster without one."""
    setup = toy_setup(3, bps=np.array([[0, 3e7, 5e9], [3e7, 0, 5e9], [5e9, 5e9, 0.0]]), seconds=300.0)
    estimator = Estimator(setup.cluster, setup.job)
    relayed, direct = plan_over(setup, (0, 1), (17, 17)), plan_over(setup, (0, 2), (30, 4))
    pool = CandidatePool(estimator, grid(setup.wan, [0], RESTART_S))
    pool.add([relayed, direct])
    assert int(np.argmax(pool.work())) == 0 and pool.best() == direct
