"""The running world: order, decisions, moves, accounts."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.core.units import to_ns
from tests.support.plays import durations, hold, of_type, plan_over, play, progress_tokens, script, totals
from tests.support.restless_world import (
    narrow_plan,
    restless,
    shape,
    until,
    wandering,
    wide_plan,
    with_other_future,
)
from tests.support.worlds import toy_setup
from twin.core.domain import LinkState
from twin.core.facts import Trigger
from twin.costs.migration import move_bytes
from twin.estimation.estimator import Estimator
from twin.world.totals import Totals
from twin.world.world import World

RESTART_NS = to_ns(11.35)


# -- order and determinism


def test_facts_come_in_the_order_of_time_and_end_with_the_totals() -> None:
    setup = restless()
    facts = play(setup, wandering(setup))
    times = [fact.sim_ns for fact in facts]
    assert times == sorted(times)
    assert facts[-1].type == "run_finished" and facts[-1].sim_ns == setup.wan.end_ns
    assert len(of_type(facts, "plan_applied")) > 3 and len(of_type(facts, "link_failed")) > 3


@pytest.mark.parametrize("engine", ["kernel", "des"])
def test_the_same_seed_gives_the_same_facts_and_another_one_other_noise(engine: str) -> None:
    setup = restless(seconds=600)
    runs = [shape(play(setup, wandering(setup), engine=engine, seed=s)) for s in (1, 1, 2)]  # type: ignore[arg-type]
    assert runs[0] == runs[1] != runs[2]


def test_hash_order_has_no_influence() -> None:
    code = (
        "from tests.support.restless_world import restless, shape, wandering; "
        "from tests.support.plays import play; "
        "s = restless(300.0); a = wandering(s); print(shape(play(s, a)), shape(play(s, a, engine='des')))"
    )
    root = Path(__file__).parents[3]
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    }
    assert len(runs) == 1


# -- no look-ahead


@pytest.mark.parametrize("engine", ["kernel", "des"])
def test_the_future_of_the_trace_changes_nothing_before_it(engine: str) -> None:
    setup, cut = restless(seconds=900), to_ns(450)
    answer = wandering(setup)
    here = until(play(setup, answer, engine=engine), cut)  # type: ignore[arg-type]
    there = play(with_other_future(setup, cut), answer, engine=engine)  # type: ignore[arg-type]
    assert here == until(there, cut)
    assert [f.payload for f in there] != [f.payload for f in play(setup, answer, engine=engine)]  # type: ignore[arg-type]


def test_a_longer_trace_changes_nothing_before_its_end() -> None:
    setup = restless(seconds=900)
    shorter = replace(setup, wan=setup.wan.window(0, to_ns(500)))
    answer = wandering(setup)
    end = to_ns(500) - 1
    assert until(play(setup, answer), end) == until(play(shorter, answer), end)


def test_the_links_are_measured_once_before_the_first_decision() -> None:
    setup = toy_setup()
    facts = play(setup, hold(wide_plan(setup)))
    assert [(f.sim_ns, f.type) for f in facts[:3]] == [
        (0, "link_observed"),
        (0, "state_estimated"),
        (0, "triggered"),
    ]


@pytest.mark.parametrize("engine", ["kernel", "des"])
def test_progress_is_the_time_over_that_of_an_iteration_whole_or_not(engine: str) -> None:
    setup = toy_setup(2, seconds=100.0)
    plan = plan_over(setup, (0, 1), (17, 17))
    facts = play(setup, script(plan), engine=engine)  # type: ignore[arg-type]
    each, tokens = durations(facts)[-1], Estimator(setup.cluster, setup.job).tokens_per_iteration
    assert totals(facts)["tokens"] == len(durations(facts)) * tokens
    exact = pytest.approx if engine == "des" else lambda x, rel: pytest.approx(x, rel=1e-9)
    assert progress_tokens(facts) == exact(setup.wan.end_ns / each * tokens, rel=1 / len(durations(facts)))


def test_batches_of_iterations_join_without_gaps() -> None:
    setup = toy_setup(seconds=600, steps={(0, 1): [(100.0, 1e9), (333.0, 3e9)]})
    end = number = 0
    for fact in of_type(play(setup, hold(wide_plan(setup))), "iteration_done"):
        assert (fact.payload["start_ns"], fact.payload["first"]) == (end, number)
        end += sum(count * ns for count, ns in fact.payload["durations"])
        number += fact.payload["count"]
    assert number > 30


def test_no_batch_grows_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = restless()
    whole = totals(play(setup, hold(wide_plan(setup))))
    monkeypatch.setattr("twin.world.ledger.MAX_RUNS", 2)
    facts = play(setup, hold(wide_plan(setup)))
    assert max(len(f.payload["durations"]) for f in of_type(facts, "iteration_done")) == 2
    assert totals(facts)["iteration_ns"] == whole["iteration_ns"]
    assert totals(facts)["tokens"] == whole["tokens"]


def test_a_view_follows_from_the_facts_before_it() -> None:
    setup = restless()
    tokens = 0
    for fact in play(setup, wandering(setup)):
        if fact.type == "iteration_done":
            tokens += fact.payload["tokens"]
        if isinstance(fact, Trigger):
            assert fact.view is not None and fact.view.tokens == tokens
            assert fact.view.now_ns == fact.sim_ns


# -- answering


def test_a_trigger_must_be_answered() -> None:
    world = iter(World(toy_setup()))
    with pytest.raises(RuntimeError, match="must be answered"):
        for _ in world:
            pass


def test_an_answer_needs_a_trigger() -> None:
    with pytest.raises(RuntimeError, match="none is open"):
        World(toy_setup()).apply(None)


def test_the_first_answer_must_be_a_plan() -> None:
    with pytest.raises(ValueError, match="none to hold"):
        play(toy_setup(), lambda _: None)


def test_an_illegal_plan_is_refused_with_its_problems() -> None:
    setup = toy_setup()
    illegal = replace(narrow_plan(setup), micro_batches=7)
    with pytest.raises(ValueError, match="global batch"):
        play(setup, hold(illegal))


def test_the_present_plan_is_a_hold() -> None:
    setup = toy_setup(seconds=300)
    plan = narrow_plan(setup)
    assert shape(play(setup, lambda _: plan)) == shape(play(setup, hold(plan)))


# -- moves


def test_the_first_plan_is_free() -> None:
    setup = toy_setup()
    (first,) = of_type(play(setup, hold(wide_plan(setup))), "plan_applied")
    assert (first.sim_ns, first.payload["pause_ns"], first.payload["moved_bytes"]) == (0, 0, [])


def test_a_move_begins_after_the_iteration_and_pauses_for_bytes_latency_and_restart() -> None:
    setup = toy_setup(seconds=600, control={"period_s": 50})
    wide, narrow = wide_plan(setup), narrow_plan(setup)
    facts = play(setup, script(wide, narrow))
    move = of_type(facts, "plan_applied")[1]
    one = Estimator(setup.cluster, setup.job).iter_ns(wide, setup.wan.at(0))
    sizes = move_bytes(setup.job, wide, narrow, 3)
    slowest = max(sizes[1, 0], sizes[2, 1])
    assert move.payload["started_ns"] == -(-to_ns(50) // one) * one
    assert move.payload["pause_ns"] == to_ns(slowest * 8 / 2e9) + to_ns(0.05) + RESTART_NS
    assert move.sim_ns == move.payload["started_ns"] + move.payload["pause_ns"]
    assert {(i, j): n for i, j, n in move.payload["moved_bytes"]} == {
        (1, 0): round(sizes[1, 0]),
        (2, 1): round(sizes[2, 1]),
    }


def test_a_rate_change_during_a_move_is_integrated() -> None:
    control = {"period_s": 50}
    base = toy_setup(seconds=900, control=control)
    wide, narrow = wide_plan(base), narrow_plan(base)
    size = round(move_bytes(base.job, wide, narrow, 3)[2, 1])
    steps = {(2, 1): [(80.0, 5e8), (90.0, 0.0), (100.0, 2e9)]}
    facts = play(toy_setup(seconds=900, steps=steps, control=control), script(wide, narrow))
    move = of_type(facts, "plan_applied")[1]
    begun_s = move.payload["started_ns"] / 1e9
    carried = (80 - begun_s) * 2e9 + 10 * 5e8
    expected_s = 100 + (8 * size - carried) / 2e9 + 0.05 + 11.35
    assert begun_s < 80 and abs(move.sim_ns / 1e9 - expected_s) < 1e-6


def test_knobs_that_place_nothing_elsewhere_turn_without_a_pause() -> None:
    setup = toy_setup(seconds=300, control={"period_s": 50})
    plan = narrow_plan(setup)
    turned = of_type(play(setup, script(plan, replace(plan, p2p="overlapped"))), "plan_applied")[1]
    assert turned.payload["pause_ns"] == 0 and turned.sim_ns > to_ns(50)


def test_a_change_inside_a_domain_costs_the_restart_and_no_wide_area_bytes() -> None:
    setup = toy_setup(seconds=300, control={"period_s": 50})
    facts = play(setup, script(narrow_plan(setup), plan_over(setup, (0, 1), (17, 17), dp=1, tp=4)))
    move = of_type(facts, "plan_applied")[1].payload
    assert move["moved_bytes"] == [] and move["egress_usd"] == 0.0
    assert RESTART_NS < move["pause_ns"] < RESTART_NS + to_ns(1)


def test_decisions_wait_for_the_end_of_a_move() -> None:
    setup = toy_setup(seconds=600, control={"period_s": 50})
    facts = play(setup, script(wide_plan(setup), narrow_plan(setup)))
    move = of_type(facts, "plan_applied")[1]
    inside = [f for f in of_type(facts, "triggered") if to_ns(50) < f.sim_ns < move.sim_ns]
    after = next(f for f in of_type(facts, "triggered") if f.sim_ns >= move.sim_ns)
    assert inside == [] and after.sim_ns == move.sim_ns


def test_a_run_that_ends_in_a_move_reports_what_was_sent() -> None:
    setup = toy_setup(seconds=80, control={"period_s": 50})
    facts = play(setup, script(wide_plan(setup), narrow_plan(setup)))
    (lost,) = of_type(facts, "time_lost")
    moving_s = lost.payload["lost_ns"] / 1e9
    assert lost.payload["reason"] == "moving"
    assert [2, 1, int(moving_s * 2e9 / 8)] in lost.payload["moved_bytes"]


# -- outages


def test_an_outage_triggers_at_once_and_is_shown_as_a_dead_link() -> None:
    setup = toy_setup(seconds=300, steps={(0, 1): [(70.0, 0.0), (130.0, 2e9)]})
    facts = play(setup, hold(wide_plan(setup)))
    failure = next(f for f in facts if isinstance(f, Trigger) and f.payload["trigger"] == "failure")
    repair = next(f for f in facts if isinstance(f, Trigger) and f.payload["trigger"] == "repair")
    assert (failure.sim_ns, repair.sim_ns) == (to_ns(70), to_ns(130))
    assert failure.view is not None and repair.view is not None
    assert failure.view.forecast.bandwidth_bps[:, 0, 1].tolist() == [0, 0, 0]
    assert failure.view.forecast.bandwidth_bps[0, 1, 0] > 0
    assert repair.view.forecast.bandwidth_bps[0, 0, 1] > 0


def test_a_stalled_iteration_is_given_up_for_a_move() -> None:
    setup = toy_setup(seconds=600, steps={(1, 2): [(70.0, 0.0)]})
    facts = play(
        setup,
        lambda t: {"start": wide_plan(setup), "period": None}.get(t.payload["trigger"], narrow_plan(setup)),
    )
    (lost, *_) = of_type(facts, "time_lost")
    one = Estimator(setup.cluster, setup.job).iter_ns(wide_plan(setup), setup.wan.at(0))
    move = of_type(facts, "plan_applied")[1].payload
    assert lost.payload["reason"] == "abandoned" and lost.payload["lost_ns"] == to_ns(70) % one
    assert move["started_ns"] == to_ns(70)


def test_an_outage_while_the_last_iteration_runs_out_gives_it_up_too() -> None:
    setup = toy_setup(seconds=600, steps={(1, 2): [(65.0, 0.0)]}, control={"period_s": 60})
    facts = play(setup, script(wide_plan(setup), narrow_plan(setup)))
    move = of_type(facts, "plan_applied")[1].payload
    assert move["started_ns"] == to_ns(65)


# -- change triggers


def test_a_change_beyond_the_threshold_triggers_one_below_it_does_not() -> None:
    control = {"period_s": 10_000, "change_threshold": 0.25}
    seen = {}
    for factor in (0.85, 0.5):
        setup = toy_setup(seconds=600, steps={(0, 1): [(100.0, factor * 2e9)]}, control=control)
        facts = play(setup, hold(narrow_plan(setup)))
        seen[factor] = [f for f in of_type(facts, "triggered") if f.payload["trigger"] != "start"]
    assert seen[0.85] == []
    assert seen[0.5][0].sim_ns == to_ns(121)  # sampled at 120 s, known a second later
    assert [[0, 1]] in seen[0.5][0].payload["reasons"]["change"]


# -- accounts


def test_changing_knobs_stops_nothing_and_is_counted_as_turns() -> None:
    setup = toy_setup(3, seconds=600.0)
    plan = plan_over(setup, (0, 1), (17, 17))
    relayed, deeper = replace(plan, routes=((0, 2, 1),)), replace(plan, extra_warmup=2)
    other = plan_over(setup, (1, 0), (17, 17))
    facts = play(setup, script(plan, relayed, deeper, other))
    applied = of_type(facts, "plan_applied")
    assert [fact.payload["pause_ns"] > 0 for fact in applied] == [False, False, False, True]
    done = totals(facts)
    assert (done["plans"], done["turns"]) == (4, 2)
    asked = [fact for fact in facts if isinstance(fact, Trigger)]
    since_s = [fact.view.since_move_s for fact in asked if fact.view is not None]
    assert since_s[:4] == [fact.sim_ns / 1e9 for fact in asked[:4]]  # turns do not count
    assert since_s[4] < since_s[3]


@pytest.mark.parametrize("engine", ["kernel", "des"])
def test_the_accounts_of_a_run_add_up_exactly(engine: str) -> None:
    setup = restless()
    facts = play(setup, wandering(setup), engine=engine)  # type: ignore[arg-type]
    recomputed = Totals(3)
    for fact in facts:
        recomputed.add(fact.type, fact.payload)
    total = totals(facts)
    assert recomputed.payload() == total
    assert total["iteration_ns"] + total["pause_ns"] + total["lost_ns"] == setup.wan.end_ns
    assert total["iteration_ns"] == sum(durations(facts))
    assert total["tokens"] == len(durations(facts)) * setup.job.tokens_per_iteration


@pytest.mark.parametrize("engine", ["kernel", "des"])
def test_what_a_hold_uses_up_is_what_the_estimator_says(engine: str) -> None:
    setup = toy_setup(seconds=400)
    plan = wide_plan(setup)
    facts = play(setup, hold(plan), engine=engine)  # type: ignore[arg-type]
    batches = of_type(facts, "iteration_done")
    count = sum(batch.payload["count"] for batch in batches)
    one = Estimator(setup.cluster, setup.job).iteration(plan, setup.wan.at(0))
    for name, value in (("egress_usd", one.usd), ("gpu_usd", one.gpu_usd), ("energy_j", one.energy_j)):
        assert sum(batch.payload[name] for batch in batches) == pytest.approx(count * value, rel=1e-12)
    busy = sum(batch.payload["compute_ns"][1] for batch in batches)
    wall = sum(batch.payload["active_ns"][1] for batch in batches)
    assert busy / wall == pytest.approx(one.utilisation_by_domain[1], rel=1e-9)
    assert totals(facts)["gpu_ns"] == 12 * setup.wan.end_ns


def test_energy_of_waiting_for_slow_links_follows_the_estimator() -> None:
    setup = toy_setup(seconds=400, bps=3e8)
    plan = wide_plan(setup)
    batch = of_type(play(setup, hold(plan)), "iteration_done")[0].payload
    links = LinkState(setup.wan.at(0).bandwidth_bps, setup.wan.at(0).latency_s)
    one = Estimator(setup.cluster, setup.job).iteration(plan, links)
    assert batch["energy_j"] == pytest.approx(batch["count"] * one.energy_j, rel=1e-12)
