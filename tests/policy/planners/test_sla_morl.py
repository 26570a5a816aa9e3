"""The gradients against differences, the allocator by hand, and what training teaches."""

import numpy as np
import pytest

from ingest.core.errors import InfeasibleError
from policy.kit.actor_critic import ActorCritic, TransitionBatch
from policy.planners.node_allocation import ACTIONS, Allocator
from policy.planners.sla_morl import STATE_FEATURES, AllocationEnv, SlaMorl, train
from tests.support.cases import cluster, model
from tests.support.views import context, flat, view
from twin.core.job import JobSpec
from twin.core.model_presets import preset
from twin.estimation.estimator import Estimator


def job() -> JobSpec:
    return JobSpec(model(8), 32, (1, 2), zero=1)


def random_batch(rng: np.random.Generator) -> TransitionBatch:
    masks = rng.random((7, 4)) < 0.7
    masks[:, 0] = True
    actions = np.array([int(rng.choice(np.nonzero(row)[0])) for row in masks])
    return TransitionBatch(rng.normal(size=(7, 5)), masks, actions, rng.normal(size=7))


@pytest.mark.parametrize("imitate", [True, False])
def test_gradients_are_those_of_the_loss(imitate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    agent, batch = ActorCritic(5, 4, 6, rng), random_batch(rng)
    for parameter in agent.parameters.values():
        parameter += rng.normal(0, 0.3, parameter.shape)
    if not imitate:  # advantages are constants to the policy gradient
        held = batch.returns - agent.predict(batch.states, batch.masks)[1]
        monkeypatch.setattr(ActorCritic, "_advantages", lambda self, batch, values: held)
    exact = agent.gradients(batch, imitate=imitate)
    for name, parameter in agent.parameters.items():
        for index in np.ndindex(parameter.shape):
            kept = parameter[index]
            parameter[index] = kept + 1e-6
            up = agent.loss(batch, imitate=imitate)
            parameter[index] = kept - 1e-6
            down = agent.loss(batch, imitate=imitate)
            parameter[index] = kept
            assert exact[name][index] == pytest.approx((up - down) / 2e-6, abs=1e-6), name


def test_masked_actions_have_no_probability_and_the_best_arm_is_learned() -> None:
    rng = np.random.default_rng(1)
    agent = ActorCritic(2, 3, 8, rng)
    states, masks = np.ones((64, 2)), np.tile([True, True, False], (64, 1))
    for _ in range(150):
        probabilities, _ = agent.predict(states, masks)
        assert (probabilities[:, 2] == 0).all()
        actions = (rng.random(64) > probabilities[:, 0]).astype(np.int64)
        agent.update(TransitionBatch(states, masks, actions, actions.astype(float)), imitate=False, rate=0.02)
    assert agent.predict(states, masks)[0][0, 1] > 0.9


def test_nodes_are_taken_and_given_one_at_a_time() -> None:
    links = flat(3, 1e9)
    links.bandwidth_bps[0, 2] = links.bandwidth_bps[2, 0] = 5e9
    allocator = Allocator(Estimator(cluster(3, [4, 4, 4], 2), job()), (4, 4, 3), links.bandwidth_bps)
    assert allocator.most == (2, 2, 2)
    assert allocator.initial() == (2, 0, 0)
    assert allocator.after((2, 0, 0), (0, 1)) == (2, 0, 1)  # over the wider link
    assert allocator.after((2, 1, 1), (-1, -1)) == (1, 0, 1)  # off the narrower one
    assert allocator.after((2, 0, 0), (1, 0)) is None
    assert allocator.after((2, 0, 0), (0, -1)) is None
    assert allocator.after((1, 0, 0), (-1, 0)) is None
    plan = allocator.plan((2, 0, 1))
    assert plan is not None
    assert plan.order == (0, 2)
    assert allocator.allocation_of(plan) == (2, 0, 1)
    assert allocator.mask((2, 0, 0)).tolist() == [allocator.after((2, 0, 0), a) is not None for a in ACTIONS]


def test_training_teaches_nearly_the_best_step() -> None:
    estimator = Estimator(cluster(2, [4, 4], 2), job())
    seen = view(estimator, flat(2, 1e11, 0.0005))
    env = AllocationEnv(context(estimator, period_s=3600.0), seen)
    agent = train(env, (2, 0), np.random.default_rng(0))
    state = env.state((2, 0), env.links, ACTIONS[0])
    features = env.features(state)
    assert features.shape == (STATE_FEATURES,)
    assert np.isfinite(features).all()
    probabilities, _ = agent.predict(features[None], env.allocator.mask((2, 0))[None])
    rewards = {
        n: env.step(state, n, env.links)[1] for n, open_ in enumerate(env.allocator.mask((2, 0))) if open_
    }
    best, worst = max(rewards.values()), min(rewards.values())
    assert rewards[int(np.argmax(probabilities[0]))] >= best - 0.02 * (best - worst)


def test_one_stream_gives_one_behaviour_and_every_plan_is_legal() -> None:
    estimator = Estimator(cluster(3, [4, 4, 4], 2), job())
    histories = []
    for _ in range(2):
        policy = SlaMorl()
        policy.reset(context(estimator, seed=3))
        plan, history = None, []
        for step in range(6):
            links = flat(3, 1e9 * (1 + step))
            decision = policy.decide(
                view(estimator, links, plan=plan, trigger="start" if plan is None else "period")
            )
            plan = decision.plan or plan
            assert plan is not None
            assert not estimator.problems(plan)
            history.append(plan)
        histories.append(history)
    assert histories[0] == histories[1]


def test_what_fits_nowhere_is_refused() -> None:
    estimator = Estimator(cluster(2, [2, 2]), JobSpec(preset("llama2-70b"), 32, (1,)))
    policy = SlaMorl()
    policy.reset(context(estimator))
    with pytest.raises(InfeasibleError, match="SLA-MORL"):
        policy.decide(view(estimator, flat(2)))
