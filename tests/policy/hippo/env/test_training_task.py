"""Traces of training and validation, and the reward of the lower agents."""

import numpy as np
import pytest

from policy.control.best_relay_times import best_relay_ns
from policy.control.relay_links import RELAY_SHARE
from policy.core.reference_plan import equal_cuts
from policy.hippo.env.practice_trace import CONDITIONS, PER_DECISION, PracticeTrace
from policy.hippo.env.training_task import TrainingTask, lower_rewards, prepare_task
from policy.hippo.env.vector_env import CONSTRAINTS
from policy.hippo.networks.hippo_config import (
    HiPpoConfig,
    LowerConfig,
    PartsConfig,
    PenaltyConfig,
    RolloutConfig,
)
from policy.hippo.training.rollout import EVALUATION_PERIODS, evaluate
from tests.support.worlds import toy_setup
from twin.estimation.link_state_times import States, iteration_ns, per_second

CONFIG = HiPpoConfig(rollout=RolloutConfig(environments=6, episode_steps=4))


@pytest.fixture(scope="module")
def task() -> TrainingTask:
    return prepare_task(toy_setup(2, seconds=6000.0, steps={(0, 1): [(600.0, 4e8)]}), CONFIG)


def practice_trace(*lengths: int) -> PracticeTrace:
    """Decisions that are numbered by their bandwidth."""
    ends = np.cumsum(lengths)
    count = int(ends[-1])
    number = np.arange(count, dtype=np.float64).reshape(-1, 1, 1, 1)
    moving = dict.fromkeys(PER_DECISION, number)
    return PracticeTrace(horizons_s=np.zeros(1), segment_end=np.repeat(ends, lengths), **moving)


@pytest.mark.parametrize("lengths", [(10, 10), (5,), (2, 2, 2)])
def test_every_segment_is_cut_in_two_that_do_not_touch(lengths: tuple[int, ...]) -> None:
    early, late = practice_trace(*lengths).split(0.8)
    assert len(early.segments) == len(late.segments) == len(lengths)
    first, second = (set(part.bandwidth_bps.ravel().tolist()) for part in (early, late))
    assert not first & second and len(first | second) == sum(lengths)
    for (a, b), (c, _) in zip(early.segments.tolist(), late.segments.tolist(), strict=True):
        assert early.bandwidth_bps[a:b].max() + 1 == late.bandwidth_bps[c:].min()


def test_a_lone_decision_is_in_both_parts() -> None:
    early, late = practice_trace(1).split(0.8)
    assert len(early) == len(late) == 1


@pytest.fixture(scope="module")
def slowed() -> TrainingTask:
    """One link of three falls to a fiftieth."""
    return prepare_task(toy_setup(3, bps=5e9, seconds=6000.0, steps={(0, 1): [(600.0, 1e8)]}), CONFIG)


def test_forecasts_know_of_relays_and_the_truth_is_the_links(slowed: TrainingTask) -> None:
    direct, relayed = slowed.training.direct, slowed.training.relayed
    calm = direct.segments[0]  # the first condition: as measured
    late = slice(int(calm[0]) + 20, int(calm[1]))
    assert (relayed.bandwidth_bps[late, 0, 0, 1] > 0.3 * RELAY_SHARE * 5e9).all()
    assert (direct.bandwidth_bps[late, 0, 0, 1] < 2e8).all()
    assert direct.true_bps[late, :, 0, 1] == pytest.approx(1e8)
    assert np.array_equal(relayed.true_bps, direct.true_bps)


def test_messages_are_relayed_where_speed_alone_counts(slowed: TrainingTask) -> None:
    """The slow link has a way around: over 0-1-2 beside other messages, over 0-1 all alone."""
    estimator, trace = slowed.problem.estimator, slowed.training.direct
    late = np.array([trace.segments[0][0] + 20])
    links = States(trace.true_bps[late[0]], trace.true_latency_s[late[0]])
    for order in ((0, 1, 2), (0, 1)):
        plan = equal_cuts(estimator, order, slowed.problem.free)
        codes, made = slowed.problem.encode(plan), slowed.twins(CONFIG)
        assert codes is not None
        made.begin(late, (1.0, 0.0, 0.0))
        relayed = made.step(codes, np.ones(1, np.bool_)).iterations[0]
        made.begin(late, (0.9, 0.0, 0.1))
        direct = made.step(codes, np.ones(1, np.bool_)).iterations[0]
        best_ns = best_relay_ns(estimator, plan, links)
        assert best_ns is not None
        rates = per_second(best_ns), per_second(iteration_ns(estimator, plan, links))
        period_s = slowed.setup.scenario.control.period_s
        assert relayed == pytest.approx(rates[0].mean() * period_s)
        assert direct == pytest.approx(rates[1].mean() * period_s)
        assert relayed > 1.5 * direct


def test_a_weak_link_counts_by_its_traffic(slowed: TrainingTask) -> None:
    """One direction of one boundary is weak; over relays none is."""
    config = CONFIG.model_copy(update={"penalties": PenaltyConfig(weak_link_bps=2e8)})
    late, made = slowed.training.direct.segments[0][:1] + 20, slowed.twins(config)
    for order, share in (((0, 1, 2), 1 / 4), ((0, 1), 1 / 2), ((1, 2, 0), 0.0)):
        codes = slowed.problem.encode(equal_cuts(slowed.problem.estimator, order, slowed.problem.free))
        assert codes is not None
        for weights, expected in (((0.9, 0.0, 0.1), share), ((1.0, 0.0, 0.0), 0.0)):
            made.begin(late, weights)
            limited = made.step(codes, np.ones(1, np.bool_)).limited[0]
            assert limited[CONSTRAINTS.index("weak_link")] == expected


def test_validation_is_the_same_for_every_seed_of_training(task: TrainingTask) -> None:
    other = prepare_task(task.setup, CONFIG.model_copy(update={"seed": 7}))
    same, differs = task.validation.direct, task.training.direct
    assert np.array_equal(other.validation.direct.bandwidth_bps, same.bandwidth_bps)
    assert not np.array_equal(other.training.direct.bandwidth_bps, differs.bandwidth_bps)


def test_validation_has_the_conditions_of_training_and_later_links(task: TrainingTask) -> None:
    assert len(task.training.direct.segments) == len(task.validation.direct.segments) == len(CONDITIONS)
    training = np.diff(task.training.direct.segments).ravel()
    held_out = np.diff(task.validation.direct.segments).ravel()
    assert (training == 4 * held_out).all()


def test_walks_lie_inside_segments_and_cover_them(task: TrainingTask) -> None:
    walked = evaluate(task, CONFIG, lambda seen: np.zeros((len(seen.has_plan), 2 + 3 * 2), np.int64))
    shortest = int(np.diff(task.validation.direct.segments).min())
    assert walked.reward.shape == (min(EVALUATION_PERIODS, shortest), 6)
    assert np.isfinite(walked.reward).all()


def test_longer_pipelines_inside_a_domain_leave_more_time_idle(task: TrainingTask) -> None:
    """All use every GPU; without communication only filling and draining tells them apart."""
    silent = CONFIG.model_copy(update={"lower": LowerConfig(lambda_communication=0)})
    problem, compared = task.problem, 0
    reward = lower_rewards(problem, silent)
    for c, knob in enumerate(problem.knobs):
        z = int(problem.class_of[0])
        whole = {
            pp: reward[c, z, q]
            for q, (tp, pp) in enumerate(problem.choices[c][z])
            if knob.dp * tp * pp == problem.free[0]
        }
        ranked = [whole[pp] for pp in sorted(whole)]
        assert ranked == sorted(ranked, reverse=True) and len(set(ranked)) == len(ranked)
        assert whole.get(1, 0.0) == 0
        compared += len(ranked) > 1
    assert compared


def test_without_perturbation_the_links_are_as_measured() -> None:
    setup = toy_setup(2, seconds=6000.0)
    alone = prepare_task(setup, HiPpoConfig(rollout=CONFIG.rollout, parts=PartsConfig(perturbation=False)))
    with_all = prepare_task(setup, CONFIG)
    assert len(with_all.training.direct) == len(CONDITIONS) * len(alone.training.direct)
    assert np.ptp(alone.training.direct.true_bps[:, :, 0, 1]) == 0.0


def test_the_network_sees_the_past_unless_told_not_to(task: TrainingTask) -> None:
    blind = prepare_task(task.setup, HiPpoConfig(rollout=CONFIG.rollout, parts=PartsConfig(history=False)))
    seen, unseen = (
        one.features.observe(one.twins(CONFIG).begin(np.zeros(1, np.int64), (1.0, 0.0, 0.0))).edges[..., -4:]
        for one in (task, blind)
    )
    assert bool(seen.any()) and not bool(unseen.any())
