"""GPUs that die and come back, domains that slow down."""

import numpy as np
import pytest
from simpy import Environment

from ingest.core.units import NS_PER_S, to_ns
from tests.support.plays import durations, hold, of_type, plan_over, play, totals
from tests.support.worlds import toy_scenario, toy_setup
from twin.core.facts import Trigger
from twin.core.plan import Plan
from twin.engines.engine import EngineName
from twin.estimation.estimator import Estimator
from twin.scenario.fault_timeline import Machines, timeline
from twin.scenario.prepare import PreparedScenario


def _narrow(setup: PreparedScenario) -> Plan:
    return plan_over(setup, (0, 1), (17, 17))


def _iter_ns(setup: PreparedScenario, plan: Plan) -> int:
    return Estimator(setup.cluster, setup.job).iter_ns(plan, setup.wan.at(0))


FAULT = [{"domain": "d1", "gpus": 2, "at_s": 130, "for_s": 100}]
OFTEN = {"checkpoint_s": 60}


def test_a_lost_gpu_stops_the_job_until_the_repair_when_nothing_else_is_decided() -> None:
    setup = toy_setup(seconds=600, gpu_faults=FAULT, moving=OFTEN)
    plan = _narrow(setup)
    one = _iter_ns(setup, plan)
    facts = play(setup, hold(plan))
    failure, waiting = of_type(facts, "time_lost")[:2]
    again = of_type(facts, "plan_applied")[1]
    assert failure.payload["reason"] == "failure" and failure.sim_ns == to_ns(130)
    assert failure.payload["lost_ns"] == to_ns(130) % one
    assert waiting.payload["reason"] == "waiting" and waiting.payload["lost_ns"] == to_ns(100)
    assert waiting.payload["gpu_ns"] == 0
    assert again.payload["pause_ns"] == to_ns(11.35) and again.payload["moved_bytes"] == []


def test_work_since_the_last_checkpoint_is_done_again() -> None:
    setup = toy_setup(seconds=600, gpu_faults=FAULT, moving=OFTEN)
    plan = _narrow(setup)
    one = _iter_ns(setup, plan)
    facts = play(setup, hold(plan))
    (failed,) = of_type(facts, "gpu_failed")
    lost = to_ns(130) // one - to_ns(120) // one
    assert lost > 0 or to_ns(130) // one == to_ns(120) // one
    assert failed.payload == {
        "domain": 1,
        "gpus": 2,
        "free": 2,
        "lost_iterations": lost,
        "lost_tokens": lost * setup.job.tokens_per_iteration,
    }
    assert totals(facts)["iterations"] == len(durations(facts)) - lost


@pytest.mark.parametrize(("checkpoint_s", "kept_s"), [(10_000, 0), (50, 100), (130, 130)])
def test_the_checkpoint_period_decides_what_survives(checkpoint_s: float, kept_s: float) -> None:
    setup = toy_setup(seconds=200, gpu_faults=FAULT, moving={"checkpoint_s": checkpoint_s})
    plan = _narrow(setup)
    one = _iter_ns(setup, plan)
    facts = play(setup, hold(plan))
    # A checkpoint at the very instant of the fault comes too late: the fault strikes first.
    kept = 0 if kept_s == 130 else to_ns(kept_s) // one
    assert totals(facts)["iterations"] == kept
    assert totals(facts)["lost_iterations"] == to_ns(130) // one - kept


def test_the_view_of_a_failure_shows_the_gpus_left_and_a_legal_plan_goes_on() -> None:
    setup = toy_setup(seconds=600, gpu_faults=FAULT)
    narrow, elsewhere = _narrow(setup), plan_over(setup, (0, 2), (17, 17))

    def answer(trigger: Trigger) -> Plan | None:
        assert trigger.view is not None
        if trigger.payload["trigger"] == "failure":
            assert trigger.view.free_gpus == (4, 2, 4) and trigger.view.plan == narrow
            return elsewhere
        return narrow if trigger.payload["trigger"] == "start" else None

    facts = play(setup, answer)
    move = of_type(facts, "plan_applied")[1].payload
    assert [reason.payload["reason"] for reason in of_type(facts, "time_lost")] == ["failure", "horizon"]
    assert move["started_ns"] == to_ns(130) and move["gpus"] == [4, 0, 4]


def test_a_plan_on_lost_gpus_is_refused() -> None:
    setup = toy_setup(seconds=600, gpu_faults=FAULT)
    narrow = _narrow(setup)
    other = plan_over(setup, (0, 1), (16, 18))
    with pytest.raises(ValueError, match="needs 4 GPUs of 2"):
        play(setup, lambda t: {"start": narrow, "failure": other}.get(t.payload["trigger"]))


def test_a_fault_in_an_unused_domain_disturbs_nothing() -> None:
    calm, hurt = (
        toy_setup(seconds=600, gpu_faults=faults)
        for faults in ([], [{"domain": "d2", "gpus": 4, "at_s": 130, "for_s": 100}])
    )
    assert durations(play(calm, hold(_narrow(calm)))) == durations(play(hurt, hold(_narrow(hurt))))


def test_spare_gpus_take_over_after_a_restart() -> None:
    setup = toy_setup(seconds=600, gpu_faults=[{"domain": "d1", "gpus": 1, "at_s": 130, "for_s": 100}])
    plan = plan_over(setup, (0, 1, 2), (12, 12, 10), dp=1, tp=2)  # two of four GPUs in each domain
    facts = play(setup, hold(plan))
    again = of_type(facts, "plan_applied")[1]
    assert again.payload["started_ns"] == to_ns(130) and again.payload["pause_ns"] == to_ns(11.35)


def test_a_failure_during_a_move_to_that_domain_leaves_the_job_waiting_for_a_decision() -> None:
    fault = [{"domain": "d1", "gpus": 2, "at_s": 75, "for_s": 1_000}]
    setup = toy_setup(seconds=600, gpu_faults=fault, control={"period_s": 50})
    alone = plan_over(setup, (0, 2), (17, 17))
    narrow = _narrow(setup)
    seen = []

    def answer(trigger: Trigger) -> Plan | None:
        seen.append((trigger.payload["trigger"], trigger.sim_ns))
        return {0: alone, 1: narrow}.get(
            trigger.payload["number"], alone if trigger.payload["trigger"] == "failure" else None
        )

    facts = play(setup, answer)
    arrived = of_type(facts, "plan_applied")[1]
    assert ("failure", arrived.sim_ns) in seen
    assert of_type(facts, "plan_applied")[2].payload["started_ns"] == arrived.sim_ns
    assert durations(facts)[-1] == _iter_ns(setup, alone)


def test_random_node_losses_come_at_their_rate_and_are_the_same_in_every_run() -> None:
    scenario = toy_scenario(node_failures={"mtbf_gpu_h": 10.0, "repair_s": 60.0})
    month_ns = to_ns(30 * 86_400)
    faults = timeline(scenario, month_ns, seed=1)
    assert faults == timeline(scenario, month_ns, seed=1) != timeline(scenario, month_ns, seed=2)
    assert {fault.gpus for fault in faults} == {4} and list(faults) == sorted(faults)
    for k in range(3):
        lost = [fault for fault in faults if (fault.kind, fault.domain) == ("gpu_failed", k)]
        expected = 30 * 24 * 4 / 10.0  # four GPUs for 30 days
        assert abs(len(lost) - expected) < 4 * expected**0.5
    lost_ns = [f.at_ns if f.kind == "gpu_repaired" else -f.at_ns for f in faults]
    mean_s = sum(lost_ns) / (len(faults) / 2) / 1e9
    assert abs(mean_s - 60) < 4 * 60 / (len(faults) / 2) ** 0.5


def test_a_job_survives_random_losses_of_nodes() -> None:
    setup = toy_setup(seconds=3_000, node_failures={"mtbf_gpu_h": 2.0, "repair_s": 100.0}, moving=OFTEN)
    facts = play(setup, hold(_narrow(setup)))
    total = totals(facts)
    assert len(of_type(facts, "gpu_failed")) > 2 and total["iterations"] > 0
    assert total["iteration_ns"] + total["pause_ns"] + total["lost_ns"] == setup.wan.end_ns


@pytest.mark.parametrize("engine", ["kernel", "des"])
@pytest.mark.parametrize("struck", ["d1", "d2"])
def test_a_failure_while_the_last_iteration_runs_out(engine: EngineName, struck: str) -> None:
    """The decision at 50 s asks for d0-d2 at the end of the running iteration; at 51 s GPUs are lost."""
    fault = [{"domain": struck, "gpus": 4, "at_s": 51, "for_s": 1_000}]
    setup = toy_setup(seconds=300, gpu_faults=fault, control={"period_s": 50})
    narrow, other = _narrow(setup), plan_over(setup, (0, 2), (17, 17))
    seen: list[str] = []

    def answer(trigger: Trigger) -> Plan | None:
        seen.append(trigger.payload["trigger"])
        return {0: narrow, 1: other}.get(trigger.payload["number"])

    facts = play(setup, answer, engine=engine)
    applied = [fact.payload["gpus"] for fact in of_type(facts, "plan_applied")]
    if struck == "d1":  # the running plan is hit, the new one is not: it is put into effect at once
        assert applied == [[4, 4, 0], [4, 0, 4]]
        assert of_type(facts, "plan_applied")[1].payload["started_ns"] == to_ns(51)
    else:  # the new plan is hit before it began: the old one goes on
        assert applied == [[4, 4, 0]]
        assert set(durations(facts)) == {_iter_ns(setup, narrow)}
    assert seen[2] == "failure" and totals(facts)["iterations"] > 0


def test_a_view_after_a_failure_counts_the_tokens_of_the_last_checkpoint() -> None:
    setup = toy_setup(seconds=200, gpu_faults=FAULT, moving={"checkpoint_s": 50})
    kept = to_ns(100) // _iter_ns(setup, _narrow(setup))
    seen = {}

    def answer(trigger: Trigger) -> Plan | None:
        assert trigger.view is not None
        seen[trigger.payload["trigger"]] = trigger.view.tokens
        return _narrow(setup) if trigger.payload["trigger"] == "start" else None

    play(setup, answer)
    assert seen["failure"] == kept * setup.job.tokens_per_iteration


def test_overlapping_faults_add_up_and_the_worst_slowdown_counts() -> None:
    scenario = toy_scenario(
        gpu_faults=[
            {"domain": "d0", "gpus": 3, "at_s": 10, "for_s": 20},
            {"domain": "d0", "gpus": 3, "at_s": 20, "for_s": 20},
        ],
        slowdowns=[
            {"domain": "d1", "factor": 2.0, "at_s": 10, "for_s": 20},
            {"domain": "d1", "factor": 1.5, "at_s": 20, "for_s": 20},
        ],
    )
    env, setup = Environment(), toy_setup()
    told: list[str] = []
    faults = timeline(scenario, to_ns(100), 0)
    machines = Machines(env, setup.cluster, faults, lambda fault: told.append(fault.kind))
    seen = []
    for second in (5, 15, 25, 35, 45):
        env.run(until=to_ns(second))
        seen.append((machines.free_gpus[0], machines.slowdown[1]))
    assert seen == [(4, 1.0), (1, 2.0), (0, 2.0), (1, 1.5), (4, 1.0)]
    assert len(told) == 8


@pytest.mark.parametrize("engine", ["kernel", "des"])
def test_a_slow_domain_slows_the_iterations_and_the_controller_learns_it_from_them(
    engine: EngineName,
) -> None:
    slow = [{"domain": "d0", "factor": 1.5, "at_s": 100, "for_s": 100}]
    setup = toy_setup(seconds=300, slowdowns=slow, control={"period_s": 290, "horizons_s": [0]})
    plan = _narrow(setup)
    seen: dict[float, float] = {}
    why: dict[float, dict[str, list[object]]] = {}

    def answer(trigger: Trigger) -> Plan | None:
        assert trigger.view is not None
        seen[trigger.sim_ns / NS_PER_S] = trigger.view.slowdown[0]
        assert trigger.view.slowdown[1:].tolist() == [1, 1]
        why[trigger.sim_ns / NS_PER_S] = trigger.payload["reasons"]
        return plan if trigger.payload["trigger"] == "start" else None

    facts = play(setup, answer, engine=engine)
    assert [f.payload for f in of_type(facts, "domain_slowed")] == [
        {"domain": 0, "factor": 1.5},
        {"domain": 0, "factor": 1.0},
    ]
    noticed = [at for at, reasons in why.items() if reasons.get("change") == [{"domains": [0]}]]
    assert noticed == [121, 241]  # telemetry after the first iterations that were mostly slow, mostly fast
    assert {value for at, value in seen.items() if at <= 100} == {1.0}
    assert 1.25 < seen[121] < 1.5 and seen[241] == seen[290] == 1.0
    estimator = Estimator(setup.cluster, setup.job)
    slowed = estimator.iter_ns(plan, setup.wan.at(0), np.array([1.5, 1.0, 1.0]))
    one = _iter_ns(setup, plan)
    assert slowed > one and {one, slowed} <= set(durations(facts))
    batches = [f.payload for f in of_type(facts, "iteration_done")]
    per_iteration = {b["start_ns"]: b["compute_ns"][0] // b["count"] for b in batches}
    usual, *mixed, slow = sorted(set(per_iteration.values()))
    assert len(mixed) == 2  # the iterations in which it began and ended
    assert slow == pytest.approx(1.5 * usual, rel=1e-2)


def test_time_is_accounted_for_to_the_nanosecond_whatever_fails() -> None:
    faults = [
        {"domain": "d0", "gpus": 1, "at_s": 33, "for_s": 44},
        {"domain": "d1", "gpus": 4, "at_s": 60, "for_s": 100},
        {"domain": "d0", "gpus": 4, "at_s": 111.5, "for_s": 20},
    ]
    setup = toy_setup(seconds=400, gpu_faults=faults, moving=OFTEN)
    facts = play(setup, hold(_narrow(setup)))
    total = totals(facts)
    assert total["iteration_ns"] + total["pause_ns"] + total["lost_ns"] == setup.wan.end_ns
    assert total["iteration_ns"] == sum(durations(facts))
    assert (
        total["tokens"] == (len(durations(facts)) - total["lost_iterations"]) * setup.job.tokens_per_iteration
    )
