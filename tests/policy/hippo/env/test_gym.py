"""The twins as Gymnasium environments: their rules, repeatability, rewards worked out by hand."""

from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from policy.control.horizon import egress_usd
from policy.core.reference_plan import equal_cuts
from policy.hippo.decoding import action_encoding
from policy.hippo.decoding.action_encoding import actions_to_rows, plans_to_rows, rows_to_plans, sizes
from policy.hippo.decoding.sampling import sample
from policy.hippo.env.gym import PLAN, PlanEnv, PlanVectorEnv
from policy.hippo.env.training_task import prepare_task
from policy.hippo.env.vector_env import CONSTRAINTS, LOWEST_EFFICIENCY, BatchedTwins
from policy.hippo.networks.checkpoint import build
from policy.hippo.networks.hippo_config import HiPpoConfig, RolloutConfig
from tests.support.worlds import toy_setup
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario

FAST = np.full((2, 2), 2e9)
PERIOD_S, RESTART_S = 60.0, 11.35


@pytest.fixture(scope="module")
def setup() -> PreparedScenario:
    return toy_setup(2, seconds=2400.0, steps={(0, 1): [(600.0, 4e8)], (1, 0): [(900.0, 5e8)]})


@pytest.fixture(scope="module")
def three() -> PreparedScenario:
    """Three domains, so that plans differ in order; 40 minutes."""
    return toy_setup(3, seconds=2400.0)


@pytest.fixture
def env(setup: PreparedScenario) -> Iterator[PlanVectorEnv]:
    made = gymnasium.make_vec(PLAN, num_envs=4, setup=setup)
    assert isinstance(made, PlanVectorEnv)
    yield made
    made.close()


def twins(setup: PreparedScenario, size: int = 1, **rollout: object) -> BatchedTwins:
    settings = RolloutConfig.model_validate({"environments": size} | rollout)
    return prepare_task(setup, HiPpoConfig(rollout=settings)).twins(HiPpoConfig(rollout=settings))


def row(made: BatchedTwins, plan: Plan, go: int = 1) -> np.ndarray:
    """The action that means `plan`."""
    codes = made.problem.encode(plan)
    assert codes is not None
    return plans_to_rows(codes, np.array([go == 1]), made.problem.masks)[0]


@pytest.mark.parametrize("module", ["policy.hippo.gym", "policy.hippo.env.gym"])
def test_follows_the_rules_of_gymnasium(module: str, setup: PreparedScenario) -> None:
    made = gymnasium.make(f"{module}:{PLAN}", setup=setup)
    check_env(made.unwrapped)
    assert isinstance(made.unwrapped, PlanEnv)


def test_equal_seeds_give_equal_episodes(env: PlanVectorEnv) -> None:
    def episode(seed: int) -> list[np.ndarray]:
        env.action_space.seed(seed)
        seen = [env.reset(seed=seed)[0]["edges"]]
        for _ in range(40):  # over the end of an episode
            observation, reward, *_ = env.step(env.action_space.sample())
            seen += [observation["edges"], observation["globals"], reward]
        return seen

    one, same, other = episode(1), episode(1), episode(2)
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_batch_is_its_twins_one_by_one(env: PlanVectorEnv, setup: PreparedScenario) -> None:
    env.reset(seed=3)
    together, alone = env.twins, twins(setup)
    starts = {
        name: getattr(together, name).copy() for name in ("decision", "has_plan", "twin_weights", "since_s")
    }
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(5)]
    steps = [env.step(rows_) for rows_ in actions]
    for twin in range(4):
        single = PlanEnv(alone)
        single.reset(seed=0)
        for name, values in starts.items():
            getattr(alone, name)[:] = values[twin]
        for rows_, (observation, reward, _, _, info) in zip(actions, steps, strict=True):
            seen, one, _, _, single_info = single.step(rows_[twin])
            assert one == reward[twin] and single_info["efficiency"] == info["efficiency"][twin]
            assert all(np.array_equal(seen[name], observation[name][twin]) for name in seen)


def test_the_end_of_an_episode_is_kept_apart(setup: PreparedScenario) -> None:
    env = gymnasium.make_vec(PLAN, num_envs=3, setup=setup, rollout=RolloutConfig(episode_steps=2))
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step(env.action_space.sample())
    assert not truncated.any() and "final_obs" not in info
    seen, _, terminated, truncated, info = env.step(env.action_space.sample())
    assert truncated.all() and not terminated.any() and info["_final_obs"].all()
    assert info["final_obs"][0]["globals"][0] == 1.0  # a plan was running at the end
    assert env.single_observation_space.contains(info["final_obs"][0])
    assert env.observation_space.contains(seen)


def test_reward_by_hand(three: PreparedScenario) -> None:
    """Constant links: the plan 2-0-1 at once, a move to 0-1 that takes some periods, and holding it."""
    made = twins(three, weights=(0.5, 0.3, 0.2))
    estimator = Estimator(three.cluster, three.job, restart_s=RESTART_S)
    free = made.problem.free
    base = equal_cuts(estimator, range(3), free)
    links = LinkState(np.full((3, 3), 2e9), np.full((3, 3), 0.05))
    first, second = (equal_cuts(estimator, order, free) for order in ((2, 0, 1), (0, 1)))
    single = PlanEnv(made)
    single.reset(seed=0)
    made.has_plan[:], made.decision[:] = False, 0
    base_s = estimator.iteration(base, links).iter_s
    base_usd = estimator.iteration(base, links).usd

    def expected(plan: Plan, paused_s: float, owed_usd: float = 0.0) -> float:
        one = estimator.iteration(plan, links)
        done = (PERIOD_S - paused_s) / one.iter_s
        efficiency = 1 - (PERIOD_S / base_s) / done
        utilisation = float(np.mean(one.compute_s)) * done / PERIOD_S
        cost = (one.usd + owed_usd / done) / base_usd
        return 0.5 * max(efficiency, LOWEST_EFFICIENCY) + 0.3 * utilisation - 0.2 * min(cost, 3.0)

    # A hold with nothing placed is a start, and the first plan is free.
    reward = single.step(row(made, first, go=0))[1]
    assert reward == pytest.approx(expected(first, 0.0), rel=1e-6)
    move = estimator.move(first, second, links)
    assert move.seconds > RESTART_S
    reward = single.step(row(made, second))[1]
    assert move.seconds > 2 * PERIOD_S
    still = 0.5 * LOWEST_EFFICIENCY - 0.2 * estimator.iteration(second, links).usd / base_usd
    for _ in range(int(move.seconds // PERIOD_S) - 1):
        assert reward == pytest.approx(still)
        reward = single.step(row(made, first, go=0))[1]
    assert reward == pytest.approx(still)
    owed_usd = egress_usd(estimator, move.bytes)  # owed while all stood still
    assert owed_usd > 0
    reward = single.step(row(made, first, go=0))[1]
    assert reward == pytest.approx(expected(second, move.seconds % PERIOD_S, owed_usd), rel=1e-6)
    reward = single.step(row(made, first, go=0))[1]
    assert reward == pytest.approx(expected(second, 0.0), rel=1e-6)


def test_a_segment_ends_with_its_own_weather(setup: PreparedScenario) -> None:
    made = twins(setup, 2)
    trace = made.trace
    (_, end), (begin, _) = trace.segments[:2].tolist()
    assert end == begin and not np.array_equal(trace.bandwidth_bps[end - 1], trace.bandwidth_bps[begin])
    made.reset(np.random.default_rng(0))
    made.decision[:] = end - 1, begin
    assert np.array_equal(made.situation().bandwidth_bps, trace.bandwidth_bps[made.decision])
    step = made.step(made.base.take(np.zeros(2, np.int64)), np.zeros(2, np.bool_))
    assert step.truncated.tolist() == [True, False]
    assert np.array_equal(step.after.bandwidth_bps, trace.bandwidth_bps[[end - 1, begin + 1]])


def test_what_is_limited_tells_how_slack_a_constraint_is(setup: PreparedScenario) -> None:
    """One domain alone has no boundary; two domains with 4 layers each and the last stage's head differ."""
    made = twins(setup)
    made.reset(np.random.default_rng(0))
    step = made.step(made.base, np.ones(1, np.bool_))
    limited = dict(zip(CONSTRAINTS, step.limited[0].tolist(), strict=True))
    rows_ = made.timer.rows(made.base, np.ones(2))
    work = (rows_.lines.forward + rows_.lines.backward)[0, : int(rows_.lines.stages[0])].astype(float)
    assert limited["imbalance"] == pytest.approx((work.max() - work.min()) / work.mean())
    assert 0 < limited["imbalance"] < HiPpoConfig().penalties.limits["imbalance"]
    assert limited["weak_link"] == 0.0 and limited["interruption"] == 0.0


def test_every_action_means_a_legal_plan_and_legal_ones_mean_themselves(three: PreparedScenario) -> None:
    made = twins(three, 64)
    problem, masks = made.problem, made.problem.masks
    rng = np.random.default_rng(0)
    actions = (rng.random((400, 2 + 3 * problem.k)) * sizes(masks)).astype(np.int64)
    codes, _, meant = rows_to_plans(actions, masks)
    assert 0 < meant.mean() < 0.5
    for p in range(len(codes)):
        plan = problem.plan(codes, p)
        assert problem.estimator.problems(plan) == ()
        end = 2 + 3 * len(plan.shares)
        assert np.array_equal(row(made, plan)[1:end], actions[p, 1:end]) == meant[p]
    upper, lower = build(HiPpoConfig())
    seen = made.features.observe(made.reset(rng))
    answers = sample(upper, lower, problem, seen, rng.random((64, 2 + 3 * problem.k))).actions
    decoded, go, meant = rows_to_plans(actions_to_rows(answers, masks), masks)
    assert meant.all() and np.array_equal(go, answers.go.numpy() == 1)
    for p in range(64):
        plan = problem.plan(decoded, p)
        end = 2 + 3 * len(plan.shares)
        assert np.array_equal(row(made, plan)[1:end], actions_to_rows(answers, masks)[p, 1:end])


def test_masks_of_entries_open_exactly_what_some_plan_has(three: PreparedScenario) -> None:
    made = twins(three, 2)
    masks = made.problem.masks
    flat = action_encoding.entry_masks(np.array([True, False]), masks)
    assert flat.shape == (2, sizes(masks).sum())
    assert flat[0, :2].tolist() == [True, True] and flat[1, :2].tolist() == [False, True]
    at = np.cumsum(sizes(masks))
    assert np.array_equal(flat[0, 2 : at[1]], made.problem.knob_mask)
    k, c = made.problem.k, len(made.problem.knobs)
    none = np.zeros(c, np.int64)
    first = masks.steps(np.arange(c), np.zeros((c, k), np.bool_), none + made.problem.n, none)
    assert np.array_equal(flat[0, at[2] : at[3]], first.any((0, 1)))
