"""Copying ahead of a move: what it costs, what it saves, and what a failure makes of it."""

from typing import Any

import pytest

from ingest.core.units import to_ns
from tests.support.accounts import problems
from tests.support.plays import durations, of_type, plan_over, play, script, totals
from tests.support.worlds import toy_setup
from twin.core.facts import Fact
from twin.core.plan import Plan
from twin.costs.migration import move_bytes
from twin.engines.engine import EngineName
from twin.scenario.prepare import PreparedScenario

ENGINES: tuple[EngineName, ...] = ("kernel", "des")
RESTART_NS = to_ns(11.35)


def _setup(mode: str = "pre_copy", seconds: float = 1_500, **changes: Any) -> PreparedScenario:
    moving = {"mode": mode, **changes.pop("moving", {})}
    return toy_setup(seconds=seconds, control={"period_s": 50}, moving=moving, **changes)


def _plans(setup: PreparedScenario) -> tuple[Plan, Plan]:
    """From domain 0 alone to domain 2 alone: training does not use the link that the layers take."""
    return plan_over(setup, (0,), (34,)), plan_over(setup, (2,), (34,))


def _moved(facts: list[Fact], kind: str) -> list[int]:
    return [sum(n for _, _, n in f.payload["moved_bytes"]) for f in of_type(facts, kind)]


@pytest.mark.parametrize("engine", ENGINES)
def test_rounds_send_what_went_stale_until_one_iteration_is_left(engine: EngineName) -> None:
    """An iteration of 9 s makes 1/100 stale, the first copy takes 385 s: 42 iterations or so, then 18, ..."""
    setup = _setup(moving={"stale_share": 0.01})
    here, there = _plans(setup)
    facts = play(setup, script(here, there), engine=engine)
    one = durations(facts)[0]
    whole = round(move_bytes(setup.job, here, there, 3)[0, 2])
    rounds = of_type(facts, "state_copied")
    expected, begin, done = whole, to_ns(50), to_ns(50) // one
    for one_round in rounds:
        assert (one_round.payload["start_ns"], _moved([one_round], "state_copied")) == (begin, [expected])
        took = to_ns(expected * 8 / 2e9) + to_ns(0.05)
        assert abs(one_round.payload["copied_ns"] - took) <= 1
        begin += one_round.payload["copied_ns"]
        missed, done = begin // one - done, begin // one
        expected = round(whole * 0.01 * missed)
    assert len(rounds) > 2 and missed <= 1
    move = of_type(facts, "plan_applied")[1].payload
    stale = move["started_ns"] // one - rounds[-1].payload["start_ns"] // one
    assert _moved(facts, "plan_applied")[1] == round(whole * 0.01 * stale)
    assert move["pause_ns"] < RESTART_NS + to_ns(2 * 0.01 * whole * 8 / 2e9 + 0.1)
    assert problems(setup, facts) == []


def test_with_full_gradients_a_slow_copy_is_stale_before_it_arrives_and_saves_nothing() -> None:
    """One copy takes 40 iterations, after 7 it is worthless: all is sent twice, the pause is as long."""
    runs = {}
    for mode in ("stop_and_copy", "pre_copy"):
        setup = _setup(mode)
        runs[mode] = play(setup, script(*_plans(setup)))
    stop, ahead = (of_type(runs[mode], "plan_applied")[1].payload for mode in runs)
    assert ahead["moved_bytes"] == stop["moved_bytes"] and ahead["pause_ns"] == stop["pause_ns"]
    assert len(of_type(runs["pre_copy"], "state_copied")) == 1
    spent = {mode: totals(facts)["egress_usd"] for mode, facts in runs.items()}
    assert spent["pre_copy"] == pytest.approx(2 * spent["stop_and_copy"])


def test_on_a_fast_link_the_pause_is_shorter_and_more_is_sent() -> None:
    done = {}
    for mode in ("stop_and_copy", "pre_copy"):
        setup = _setup(mode, bps=5e10, seconds=600)
        facts = play(setup, script(*_plans(setup)))
        total = totals(facts)
        done[mode] = (
            of_type(facts, "plan_applied")[1].payload["pause_ns"],
            sum(total["moved_bytes"].values()),
        )
    assert done["pre_copy"][0] < done["stop_and_copy"][0] and done["pre_copy"][1] > done["stop_and_copy"][1]


@pytest.mark.parametrize("engine", ENGINES)
def test_training_shares_the_link_with_the_copy(engine: EngineName) -> None:
    setup = _setup(bps=2e9, moving={"stale_share": 1e-6})
    wide, narrow = plan_over(setup, (0, 1, 2), (12, 12, 10)), plan_over(setup, (0, 1), (17, 17))
    facts = play(setup, script(wide, narrow), engine=engine)
    copied = of_type(facts, "state_copied")[0]
    one = durations(facts)[0]
    slowed = [ns for ns in durations(facts) if ns > one]
    whole = move_bytes(setup.job, wide, narrow, 3)
    alone_ns = to_ns(max(whole[1, 0], whole[2, 1]) * 8 / 2e9)
    assert slowed and copied.payload["copied_ns"] > alone_ns
    assert problems(setup, facts) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_failure_ends_the_copy_and_the_move_goes_on_from_the_checkpoint(engine: EngineName) -> None:
    setup = _setup(gpu_faults=[{"domain": "d0", "gpus": 4, "at_s": 100, "for_s": 2_000}])
    here, there = _plans(setup)
    facts = play(setup, script(here, there), engine=engine)
    (copied,) = of_type(facts, "state_copied")
    assert copied.payload["start_ns"] + copied.payload["copied_ns"] == to_ns(100)
    assert _moved(facts, "state_copied") == [int(50 * 2e9 / 8)]
    move = of_type(facts, "plan_applied")[1].payload
    assert move["started_ns"] == to_ns(100)
    assert _moved(facts, "plan_applied")[1] == round(move_bytes(setup.job, here, there, 3)[0, 2])
    assert problems(setup, facts) == []


@pytest.mark.parametrize(("seconds", "kind"), [(90, "state_copied"), (500, "time_lost")])
def test_a_run_that_ends_meanwhile_pays_for_what_was_sent(seconds: float, kind: str) -> None:
    setup = _setup(seconds=seconds)
    facts = play(setup, script(*_plans(setup)))
    sent = _moved(facts, kind)
    assert len([n for n in sent if n]) == 1
    assert problems(setup, facts) == []
