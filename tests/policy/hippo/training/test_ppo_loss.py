"""The loss against numbers worked out by hand."""

import math

import pytest
import torch

from policy.hippo.env.vector_env import CONSTRAINTS
from policy.hippo.networks.checkpoint import build
from policy.hippo.networks.hippo_config import HiPpoConfig, PenaltyConfig
from policy.hippo.training.learner import PpoLearner
from policy.hippo.training.ppo_loss import Multipliers, loss, moments, normalise, normalise_by

COEFFICIENTS = {"clip_range": 0.2, "value_clip": 0.2, "value_coef": 0.5, "entropy_coef": 0.01}


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_loss_by_hand() -> None:
    # ratios 1.5 and 0.5, advantages +1 and -1: min(1.5, 1.2) = 1.2 and min(-0.5, -0.8) = -0.8 -> policy -0.2
    # value 1, old 0, target 2: clipped to 0.2, errors 1 and 3.24, the larger counts: 0.5 * 3.24 = 1.62
    got = loss(
        log_prob=tensor(math.log(1.5), math.log(0.5)),
        old_log_prob=tensor(0.0, 0.0),
        advantage=tensor(1.0, -1.0),
        value=tensor(1.0, 1.0),
        old_value=tensor(0.0, 0.0),
        target=tensor(2.0, 2.0),
        entropy=tensor(1.0, 3.0),
        **COEFFICIENTS,
    )
    assert got.policy.item() == pytest.approx(-0.2)
    assert got.value.item() == pytest.approx(1.62)
    assert got.entropy.item() == pytest.approx(2.0)
    assert got.clip_fraction.item() == 1.0
    assert got.total.item() == pytest.approx(-0.2 + 0.5 * 1.62 - 0.02)
    assert got.approx_kl.item() == pytest.approx((0.5 - math.log(1.5) - 0.5 - math.log(0.5)) / 2)


def test_no_gradient_beyond_the_clip() -> None:
    log_prob = torch.tensor([math.log(1.5)], requires_grad=True)
    zero = torch.zeros(1)
    got = loss(
        log_prob=log_prob,
        old_log_prob=zero,
        advantage=torch.ones(1),
        value=zero,
        old_value=zero,
        target=zero,
        entropy=zero,
        **COEFFICIENTS,
    )
    got.total.backward()
    assert log_prob.grad is not None and log_prob.grad.item() == 0.0


def test_normalise() -> None:
    assert normalise(tensor(1.0, 3.0)).tolist() == pytest.approx([-1.0, 1.0])
    assert normalise(tensor(5.0)).tolist() == [5.0]


def test_parts_are_normalised_as_the_whole_they_make() -> None:
    one, other = tensor(1.0, 2.0, 6.0), tensor(-3.0)
    whole = moments(one) + moments(other)
    assert whole.tolist() == [4.0, 6.0, 50.0]
    parts = torch.cat([normalise_by(one, whole), normalise_by(other, whole)])
    torch.testing.assert_close(parts, normalise(torch.cat([one, other])))
    assert normalise_by(other, moments(other)).tolist() == [-3.0]


def test_every_multiplier_falls_when_its_constraint_is_slack() -> None:
    config = HiPpoConfig(penalties=PenaltyConfig(imbalance_delta=0.5))
    limits = config.penalties.limits
    multipliers = PpoLearner(*build(config), config).multipliers
    assert multipliers.names == CONSTRAINTS
    multipliers.update(dict.fromkeys(CONSTRAINTS, 1.0))
    risen = dict(multipliers.values)
    multipliers.update({name: limit / 2 for name, limit in limits.items()})
    assert all(0 < multipliers.values[name] < risen[name] for name in CONSTRAINTS)


def test_without_a_limit_imbalance_costs_nothing() -> None:
    config = HiPpoConfig()
    multipliers = PpoLearner(*build(config), config).multipliers
    multipliers.update(dict.fromkeys(CONSTRAINTS, 3.5))
    assert multipliers.values["imbalance"] == 0.0 < multipliers.values["weak_link"]


def test_multipliers_rise_while_broken_and_never_fall_below_zero() -> None:
    multipliers = Multipliers({"pause": 0.1, "imbalance": 0.5}, lr=1.0, maximum=0.35)
    multipliers.update({"pause": 0.3, "imbalance": 0.0})
    assert multipliers.values == pytest.approx({"pause": 0.2, "imbalance": 0.0})
    multipliers.update({"pause": 0.9, "imbalance": 0.0})
    assert multipliers.values["pause"] == 0.35
