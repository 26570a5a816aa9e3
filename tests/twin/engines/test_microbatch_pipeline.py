"""The event engine against the kernel engine, and messages whose link changes while they are on their way."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ingest.core.units import to_ns
from tests.support.plays import durations, hold, of_type, plan_over, play, script, totals
from tests.support.worlds import toy_setup
from twin.core.facts import Fact
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario

INNER = ((1, 1), (2, 1), (1, 2), (4, 1), (2, 2), (1, 4))


@given(
    order=st.permutations(range(3)).flatmap(lambda p: st.integers(1, 3).map(lambda n: tuple(p[:n]))),
    inner=st.tuples(*[st.sampled_from(INNER)] * 3),
    cut=st.tuples(st.integers(4, 14), st.integers(4, 14)),
    schedule=st.sampled_from(["gpipe", "1f1b"]),
    p2p=st.sampled_from(["blocking", "overlapped", "rendezvous"]),
    extra=st.integers(0, 3),
    gbps=st.floats(0.2, 8.0),
    latency_s=st.floats(0.0, 0.15),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_with_constant_links_both_engines_give_the_same_nanoseconds(
    order: tuple[int, ...],
    inner: tuple[tuple[int, int], ...],
    cut: tuple[int, int],
    schedule: Literal["gpipe", "1f1b"],
    p2p: Literal["blocking", "overlapped", "rendezvous"],
    extra: int,
    gbps: float,
    latency_s: float,
) -> None:
    setup = toy_setup(seconds=200, bps=gbps * 1e9, latency_s=latency_s)
    estimator = Estimator(setup.cluster, setup.job)
    counts = {1: (34,), 2: (cut[0], 34 - cut[0]), 3: (*cut, 34 - sum(cut))}[len(order)]
    plan = estimator.make(order, counts, 1, inner[: len(order)], 1)
    plan = replace(plan, schedule=schedule, p2p=p2p, extra_warmup=extra)
    assume(not estimator.problems(plan))
    kernel, des = (play(setup, hold(plan), engine=engine) for engine in ("kernel", "des"))
    assert durations(kernel) == durations(des)
    assert set(durations(des)) <= {estimator.iter_ns(plan, setup.wan.at(0))}


def _alike(facts: list[Fact]) -> list[tuple[int, str, dict[str, object]]]:
    """Facts that do not depend on how much of an unfinished iteration was done."""
    return [(f.sim_ns, f.type, f.payload) for f in facts if f.type not in ("time_lost", "run_finished")]


def test_whole_runs_are_alike_with_constant_links_moves_faults_and_slow_domains_included() -> None:
    setup = toy_setup(
        seconds=900,
        control={"period_s": 50},
        gpu_faults=[{"domain": "d1", "gpus": 1, "at_s": 400, "for_s": 60}],
        moving={"checkpoint_s": 100},
    )
    answer = script(plan_over(setup, (0, 1, 2), (12, 12, 10)), None, plan_over(setup, (1, 0), (17, 17)))
    kernel, des = (play(setup, answer, engine=engine) for engine in ("kernel", "des"))
    assert _alike(kernel) == _alike(des)
    assert len(of_type(des, "plan_applied")) == 3 and of_type(des, "gpu_failed")
    for name in ("tokens", "iteration_ns", "pause_ns", "lost_ns", "gpu_ns"):
        assert totals(kernel)[name] == totals(des)[name]


def _ou_steps(seconds: float, every_s: float, sd: float) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """Every link wanders by `sd` around 2 Gb/s, with a new value every `every_s`, each at its own times."""
    rng = np.random.default_rng(11)
    steps = {}
    for i in range(3):
        for j in range(3):
            if i != j:
                at = rng.uniform(0, every_s) + np.arange(1, seconds / every_s - 1) * every_s
                level = np.zeros(len(at))
                for k in range(1, len(at)):
                    level[k] = 0.9 * level[k - 1] + sd * np.sqrt(1 - 0.81) * rng.standard_normal()
                steps[i, j] = [(float(a), 2e9 * float(np.exp(x))) for a, x in zip(at, level, strict=True)]
    return steps


@pytest.mark.parametrize("every_s", [3.0, 20.0, 60.0])
def test_on_changing_links_the_engines_agree_within_one_percent(every_s: float) -> None:
    setup = toy_setup(seconds=3_600, steps=_ou_steps(3_600, every_s, 0.4))
    plan = plan_over(setup, (0, 1, 2), (12, 12, 10))
    kernel, des = (durations(play(setup, hold(plan), engine=engine)) for engine in ("kernel", "des"))
    shared = min(len(kernel), len(des))
    assert shared > 150
    assert sum(kernel[:shared]) == pytest.approx(sum(des[:shared]), rel=0.01)
    assert kernel != des


# -- one message, by hand


def _single_message_setup(
    steps: dict[tuple[int, int], list[tuple[float, float]]] | None = None, seconds: float = 60.0
) -> PreparedScenario:
    """One micro-batch of one sequence: forward, message, forward, backward, message, backward, update."""
    job = {"global_batch": 1, "micro_batches": [1]}
    return toy_setup(seconds=seconds, steps=steps, job=job)


def _one(setup: PreparedScenario) -> tuple[Plan, list[int], int]:
    """The plan, its pieces (forward 0, occupancy, latency, ...) in order, and the message in bytes."""
    plan = plan_over(setup, (0, 1), (17, 17), dp=1, tp=1)
    p = Estimator(setup.cluster, setup.job).pipeline(plan, setup.wan.at(0))
    assert p is not None
    pieces = [p.tf[0], p.of[0], p.lf[0], p.tf[1], p.tb[1], p.ob[0], p.lb[0], p.tb[0], p.tail[0]]
    return plan, [int(piece[0]) for piece in pieces], setup.job.message_bytes(1)


def test_a_message_on_its_way_goes_on_at_the_new_rate() -> None:
    plan, pieces, size = _one(_single_message_setup())
    change_ns = pieces[0] + pieces[1] // 4  # a quarter of the first message is through
    setup = _single_message_setup({(0, 1): [(change_ns / 1e9, 1e9), (change_ns / 1e9 + 2, 2e9)]})
    rest_ns = round((1 - (pieces[1] // 4) / pieces[1]) * size * 8 / 1e9 * 1e9)
    first = durations(play(setup, hold(plan), engine="des"))[0]
    assert abs(first - (sum(pieces) - pieces[1] + pieces[1] // 4 + rest_ns)) <= 1


def test_a_message_waits_while_its_link_is_dead() -> None:
    plan, pieces, _ = _one(_single_message_setup())
    dies_ns = pieces[0] + pieces[1] // 2
    setup = _single_message_setup({(0, 1): [(dies_ns / 1e9, 0.0), (dies_ns / 1e9 + 30, 2e9)]})
    facts = play(setup, hold(plan), engine="des")
    assert durations(facts)[0] == sum(pieces) + to_ns(30)
    assert of_type(facts, "iteration_done")[0].payload["stalled_ns"] == to_ns(30)


def test_a_change_of_a_link_with_nothing_on_it_changes_nothing_yet() -> None:
    plan, pieces, _ = _one(_single_message_setup())
    busy = pieces[0] // 2 / 1e9  # stage 0 still computes
    setup = _single_message_setup({(1, 0): [(busy, 1e8), (busy + 1e-4, 2e9)]})
    assert durations(play(setup, hold(plan), engine="des"))[0] == sum(pieces)


def test_a_stalled_iteration_is_given_up_for_a_move_and_its_messages_never_arrive() -> None:
    setup = toy_setup(seconds=600, steps={(1, 2): [(70.0, 0.0), (75.0, 2e9)]})
    wide, narrow = plan_over(setup, (0, 1, 2), (12, 12, 10)), plan_over(setup, (0, 1), (17, 17))
    answers = {"start": wide, "failure": narrow}
    kernel, des = (
        play(setup, lambda t: answers.get(t.payload["trigger"]), engine=engine)
        for engine in ("kernel", "des")
    )
    assert of_type(des, "time_lost")[0].payload["reason"] == "abandoned"
    assert _alike(kernel) == _alike(des)
