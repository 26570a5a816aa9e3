"""Several jobs in one world: arrivals, shared links, preemption, completion, accounts."""

from typing import Any

import numpy as np
import pytest

from ingest.core.units import to_ns
from tests.support.accounts import problems
from tests.support.plays import Answer, of_type, play, totals
from tests.support.restless_world import shape, until, with_other_future
from tests.support.worlds import toy_setup
from twin.core.domain import LinkState
from twin.core.facts import Fact, Trigger
from twin.core.plan import Plan
from twin.engines.engine import EngineName
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario
from twin.world.totals import Totals

ENGINES: tuple[EngineName, ...] = ("kernel", "des")


def _jobs(*jobs: dict[str, Any], **setup: Any) -> PreparedScenario:
    """A toy world whose domains have 8 GPUs, so that two jobs of 4 each fit."""
    cluster = toy_setup().scenario.cluster.model_dump()
    cluster["domains"] = [domain | {"gpus": 8} for domain in cluster["domains"]]
    return toy_setup(cluster=cluster, jobs=list(jobs), **setup)


def _plan(setup: PreparedScenario, order: tuple[int, ...] = (0, 1), *, dp: int = 2) -> Plan:
    counts = {1: (34,), 2: (17, 17)}[len(order)]
    return Estimator(setup.cluster, setup.job).make(order, counts, dp, [(2, 1)] * len(order), 1)


def _fixed(**plans: Plan) -> Answer:
    """Every job starts with its plan; it takes it up again when it stands still and there is room."""

    def answer(trigger: Trigger) -> Plan | None:
        view = trigger.view
        assert view is not None
        plan = plans[trigger.job]
        room = all(len(s.gpus) <= view.free_gpus[s.domain] for s in plan.shares)
        return plan if room else None

    return answer


def _durations(facts: list[Fact], job: str) -> list[int]:
    runs = [r for f in of_type(facts, "iteration_done") if f.job == job for r in f.payload["durations"]]
    return [ns for count, ns in runs for _ in range(count)]


def _iter_ns(setup: PreparedScenario, plan: Plan, share: float = 1.0) -> int:
    links = setup.wan.at(0)
    state = LinkState(links.bandwidth_bps * share, links.latency_s)
    return Estimator(setup.cluster, setup.job).iter_ns(plan, state)


A, B = {"name": "a"}, {"name": "b"}


@pytest.mark.parametrize("engine", ENGINES)
def test_jobs_that_do_not_meet_do_not_disturb_each_other(engine: EngineName) -> None:
    setup = _jobs(A, B, seconds=300)
    a, b = _plan(setup, (0, 1)), _plan(setup, (2,))
    facts = play(setup, _fixed(a=a, b=b), engine=engine)
    assert set(_durations(facts, "a")) == {_iter_ns(setup, a)}
    assert set(_durations(facts, "b")) == {_iter_ns(setup, b)}
    assert problems(setup, facts) == []


def test_two_jobs_that_fill_a_link_halve_it() -> None:
    """At 0.2 Gb/s and no latency a stage only waits: the mean demand of each job is over half of the link."""
    setup = _jobs(A, B, seconds=3_000, bps=2e8, latency_s=0.0)
    plan = _plan(setup)
    estimator = Estimator(setup.cluster, setup.job)
    alone_ns = estimator.iter_ns(plan, setup.wan.at(0))
    demand = estimator.wan_bytes(plan)[0, 1] * 8 / (alone_ns / 1e9)
    facts = play(setup, _fixed(a=plan, b=plan))
    rate = max(1e8, 2e8 - demand)
    both = _iter_ns(setup, plan, rate / 2e8)
    assert _durations(facts, "a") == _durations(facts, "b")
    assert abs(_durations(facts, "a")[0] - both) <= 1


@pytest.mark.parametrize("bps", [2e8, 5e8, 2e9])
def test_on_shared_links_the_engines_agree_roughly(bps: float) -> None:
    setup = _jobs(A, B, seconds=2_000, bps=bps)
    plan = _plan(setup)
    done = [totals(play(setup, _fixed(a=plan, b=plan), engine=engine))["tokens"] for engine in ENGINES]
    assert done[0] == pytest.approx(done[1], rel=0.15)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_leaves_when_its_tokens_are_trained_and_the_other_has_the_links_alone(
    engine: EngineName,
) -> None:
    tokens = 10 * toy_setup().job.tokens_per_iteration
    setup = _jobs(A | {"tokens": tokens - 1}, B, seconds=1_500, bps=5e8)
    plan = _plan(setup)
    facts = play(setup, _fixed(a=plan, b=plan), engine=engine)
    (finished,) = of_type(facts, "job_finished")
    assert finished.job == "a" and len(_durations(facts, "a")) == 10
    assert finished.sim_ns == sum(_durations(facts, "a"))
    assert _durations(facts, "b")[-1] == _iter_ns(setup, plan) < _durations(facts, "b")[1]
    assert not [f for f in facts if f.job == "a" and f.sim_ns > finished.sim_ns]
    assert problems(setup, facts) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_without_room_waits_for_one_that_leaves(engine: EngineName) -> None:
    tokens = 5 * toy_setup().job.tokens_per_iteration
    setup = _jobs(A | {"tokens": tokens}, B | {"submit_s": 10}, seconds=600)
    plan = _plan(setup, dp=4)  # all 8 GPUs of two domains
    facts = play(setup, _fixed(a=plan, b=plan), engine=engine)
    (finished,) = of_type(facts, "job_finished")
    started = {f.job: f.sim_ns for f in of_type(facts, "job_started")}
    assert started == {"a": 0, "b": finished.sim_ns}
    assert [f.sim_ns for f in of_type(facts, "job_submitted")] == [0, to_ns(10)]
    waited = [f.payload["lost_ns"] for f in of_type(facts, "time_lost") if f.payload["reason"] == "waiting"]
    assert waited == [finished.sim_ns - to_ns(10)]
    assert problems(setup, facts) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_more_urgent_job_takes_the_gpus_and_the_other_loses_work_and_comes_back(engine: EngineName) -> None:
    urgent = {"name": "u", "submit_s": 100, "priority": 1, "tokens": 5 * toy_setup().job.tokens_per_iteration}
    setup = _jobs(A, urgent, seconds=900, moving={"checkpoint_s": 60})
    plan = _plan(setup, dp=4)
    one = _iter_ns(setup, plan)
    facts = play(setup, _fixed(a=plan, u=plan), engine=engine)
    (lost,) = of_type(facts, "work_lost")
    kept = to_ns(60) // one
    assert (lost.job, lost.sim_ns, lost.payload["reason"]) == ("a", to_ns(100), "preempted")
    assert lost.payload["lost_iterations"] == to_ns(100) // one - kept > 0
    (finished,) = of_type(facts, "job_finished")
    back = [f for f in of_type(facts, "plan_applied") if f.job == "a"][1].payload
    assert back["started_ns"] == finished.sim_ns and back["pause_ns"] == to_ns(11.35)
    assert totals(facts)["jobs"]["a"]["lost_iterations"] == lost.payload["lost_iterations"]
    assert problems(setup, facts) == []


def test_an_equally_urgent_job_takes_nothing() -> None:
    setup = _jobs(A, B | {"submit_s": 100}, seconds=300)
    plan = _plan(setup, dp=4)
    facts = play(setup, _fixed(a=plan, b=plan))
    assert of_type(facts, "job_preempted") == [] and not _durations(facts, "b")
    seen = [f.view.free_gpus for f in facts if isinstance(f, Trigger) and f.job == "b" and f.view]
    assert set(seen) == {(0, 0, 8)}


def test_a_plan_on_the_gpus_of_another_job_is_refused() -> None:
    setup = _jobs(A, B, seconds=300)
    plan = _plan(setup, dp=4)
    with pytest.raises(ValueError, match="needs 8 GPUs of 0"):
        play(setup, lambda _: plan)


def test_at_one_instant_the_more_urgent_job_decides_first() -> None:
    setup = _jobs(A, B | {"priority": 3}, seconds=200)
    plan = _plan(setup)
    asked = [f.job for f in play(setup, _fixed(a=plan, b=plan)) if isinstance(f, Trigger)]
    assert asked[:2] == ["b", "a"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lost_node_stops_the_less_urgent_job_only(engine: EngineName) -> None:
    fault = [{"domain": "d0", "gpus": 4, "at_s": 130, "for_s": 100}]
    setup = _jobs(A | {"priority": 1}, B, seconds=500, gpu_faults=fault)
    plan = _plan(setup)
    facts = play(setup, _fixed(a=plan, b=plan), engine=engine)
    assert [f.job for f in of_type(facts, "work_lost")] == ["b"]
    assert of_type(facts, "gpu_failed")[0].payload["lost_iterations"] == 0
    assert len([f for f in of_type(facts, "plan_applied") if f.job == "b"]) == 2
    assert problems(setup, facts) == []


# -- whole runs


def _busy(engine: EngineName, seed: int = 0) -> tuple[PreparedScenario, list[Fact]]:
    """Restless links, four jobs of two priorities that come and go, moves, a lost node."""
    rng = np.random.default_rng(2)
    steps = {}
    for i in range(3):
        for j in range(3):
            if i != j:
                at = np.cumsum(rng.exponential(40.0, size=40))
                rates = 2e9 * np.exp(0.5 * rng.standard_normal(40)) * (rng.random(40) > 0.03)
                steps[i, j] = [(float(a), float(r)) for a, r in zip(at, rates, strict=True)]
    one = toy_setup().job.tokens_per_iteration
    setup = _jobs(
        {"name": "a"},
        {"name": "b", "submit_s": 50, "tokens": 6 * one},
        {"name": "c", "submit_s": 200, "priority": 1, "tokens": 6 * one},
        {"name": "d", "submit_s": 210, "tokens": 300 * one},
        seconds=1_500,
        steps=steps,
        moving={"checkpoint_s": 100},
        gpu_faults=[{"domain": "d1", "gpus": 4, "at_s": 400, "for_s": 150}],
    )
    return setup, play(setup, _roaming(setup), engine=engine, seed=seed)


def _roaming(setup: PreparedScenario) -> Answer:
    """The first of some plans that has room, another one first at every decision; c takes whole domains."""
    plans = [_plan(setup, order, dp=dp) for order in ((0, 1), (1, 2), (2, 0), (1,)) for dp in (2, 4)]

    def answer(trigger: Trigger) -> Plan | None:
        assert trigger.view is not None
        free, number = trigger.view.free_gpus, trigger.payload["number"]
        if trigger.view.plan is not None and number % 9:
            return None
        turned = plans[number % 8 :] + plans[: number % 8]
        for plan in turned if trigger.job != "c" else [plan for plan in turned if plan.dp == 4]:
            if all(len(s.gpus) <= free[s.domain] for s in plan.shares):
                return plan
        return None

    return answer


@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_bytes_gpu_seconds_money_and_energy_are_conserved_over_all_jobs(engine: EngineName) -> None:
    setup, facts = _busy(engine)
    assert problems(setup, facts) == []
    total, recomputed = totals(facts), Totals(3)
    for fact in facts:
        recomputed.add(fact.type, fact.payload, fact.job)
    assert recomputed.payload() == total and len(total["jobs"]) == 4
    for name in ("tokens", "iterations", "gpu_ns", "pause_ns", "lost_ns", "gpu_compute_ns"):
        assert sum(job[name] for job in total["jobs"].values()) == total[name]
    for name in ("egress_usd", "gpu_usd", "energy_j"):
        assert sum(job[name] for job in total["jobs"].values()) == pytest.approx(total[name], rel=1e-12)
    assert {"job_preempted", "job_finished", "work_lost"} <= {fact.type for fact in facts}


def _random_world(seed: int) -> PreparedScenario:
    """Up to four jobs, restless and dying links, lost GPUs, slow domains, either way of moving."""
    rng = np.random.default_rng(seed)
    one, steps = toy_setup().job.tokens_per_iteration, {}
    for pair in ((i, j) for i in range(3) for j in range(3) if i != j):
        rates = 2e9 * np.exp(0.7 * rng.standard_normal(30)) * (rng.random(30) > 0.1)
        steps[pair] = list(zip(np.cumsum(rng.exponential(30, 30)).tolist(), rates.tolist(), strict=True))
    jobs = [
        {
            "name": f"j{n}",
            "submit_s": float(rng.uniform(0, 400)) if n else 0,
            "priority": int(rng.integers(0, 3)),
            "tokens": int(rng.integers(1, 30)) * one if rng.random() < 0.7 else None,
        }
        for n in range(rng.integers(1, 5))
    ]

    def struck() -> dict[str, Any]:
        at_s, for_s = float(rng.uniform(0, 600)), float(rng.uniform(5, 300))
        return {"domain": f"d{rng.integers(3)}", "at_s": at_s, "for_s": for_s}

    mode, stale = ("stop_and_copy", "pre_copy")[seed % 2], (1 / 7, 0.01)[seed // 2 % 2]
    return _jobs(
        *jobs,
        seconds=700,
        steps=steps,
        gpu_faults=[struck() | {"gpus": int(rng.integers(1, 9))} for _ in range(rng.integers(0, 4))],
        slowdowns=[struck() | {"factor": 1.5}],
        moving={"checkpoint_s": 50, "mode": mode, "stale_share": stale},
        control={"period_s": float(rng.uniform(10, 60))},
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(25))
def test_the_books_of_random_worlds_balance(seed: int, engine: EngineName) -> None:
    setup, rng = _random_world(seed), np.random.default_rng(seed)
    plans = [_plan(setup, order, dp=dp) for order in ((0, 1), (1, 2), (2, 0), (1,), (0,)) for dp in (2, 4)]

    def answer(trigger: Trigger) -> Plan | None:
        assert trigger.view is not None
        free = trigger.view.free_gpus
        room = [plan for plan in plans if all(len(s.gpus) <= free[s.domain] for s in plan.shares)]
        stay = trigger.view.plan is not None and rng.random() < 0.6
        return None if stay or not room else room[rng.integers(len(room))]

    assert problems(setup, play(setup, answer, engine=engine)) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_no_gpu_is_held_twice(engine: EngineName) -> None:
    """GPUs per domain over time, from the facts that say who holds them."""
    _, facts = _busy(engine)
    changes: list[tuple[int, int, str, list[int]]] = []
    for n, fact in enumerate(facts):
        p = fact.payload
        if fact.type == "plan_applied":
            changes.append((p["started_ns"], n, fact.job, p["gpus"]))
        elif fact.type in ("job_preempted", "job_finished", "work_lost"):
            changes.append((fact.sim_ns, n, fact.job, [0, 0, 0]))
    held: dict[str, list[int]] = {}
    for _, _, job, gpus in sorted(changes):
        held[job] = gpus
        assert max(sum(column) for column in zip(*held.values(), strict=True)) <= 8


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_world_gives_the_same_facts(engine: EngineName) -> None:
    assert shape(_busy(engine)[1]) == shape(_busy(engine)[1]) != shape(_busy(engine, seed=1)[1])


def test_the_future_changes_nothing_before_it() -> None:
    setup, here = _busy("kernel")
    cut = to_ns(450)
    there = play(with_other_future(setup, cut), _roaming(setup))
    assert until(here, cut) == until(there, cut)
    assert [f.payload for f in here] != [f.payload for f in there]
