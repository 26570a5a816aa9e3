"""Traces of training and validation, and the reward of the lower agents."""

import numpy as np
import pytest

from policy.control.relay_links import RELAY_SHARE
from policy.hippo.env.practice_trace import CONDITIONS, PER_DECISION, PracticeTrace
from policy.hippo.env.training_task import TrainingTask, lower_rewards, prepare_task
from policy.hippo.networks.hippo_config import HiPpoConfig, LowerConfig, RolloutConfig
from policy.hippo.training.rollout import EVALUATION_PERIODS, evaluate
from tests.support.worlds import toy_setup

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


def test_training_traces_have_links_as_messages_find_them() -> None:
    """A link that falls to a fiftieth is driven around, in what is known and in what is true."""
    slow = prepare_task(
        toy_setup(3, bps=5e9, seconds=6000.0, steps={(0, 1): [(600.0, 1e8)]}), CONFIG
    ).training.relayed
    calm = slow.segments[0]  # the first condition: as measured
    late = slice(int(calm[0]) + 20, int(calm[1]))
    assert slow.true_bps[late, :, 0, 1] == pytest.approx(RELAY_SHARE * 5e9)
    assert slow.true_latency_s[late, :, 0, 1] == pytest.approx(slow.true_latency_s[late, :, 0, 2] * 2)
    assert (slow.bandwidth_bps[late, 0, 0, 1] > 0.3 * RELAY_SHARE * 5e9).all()
    assert slow.true_bps[late, :, 1, 0] == pytest.approx(5e9)


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
