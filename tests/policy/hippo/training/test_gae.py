"""Advantages against numbers worked out by hand."""

import numpy as np

from policy.hippo.training.gae import advantages


def one(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float64)[:, None]


def flags(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.bool_)[:, None]


def test_three_steps_by_hand() -> None:
    # gamma 0.5, lambda 0.5; delta = [1 + .5*2 - 1, 2 + .5*3 - 2, 3 + .5*4 - 3] = [1, 1.5, 2]
    # A2 = 2, A1 = 1.5 + .25*2 = 2, A0 = 1 + .25*2 = 1.5
    advantage, target = advantages(
        one([1, 2, 3]), one([1, 2, 3]), one([2, 3, 4]), flags([0, 0, 0]), flags([0, 0, 0]), gamma=0.5, lam=0.5
    )
    assert advantage[:, 0].tolist() == [1.5, 2.0, 2.0]
    assert target[:, 0].tolist() == [2.5, 4.0, 5.0]


def test_termination_has_no_future_and_truncation_has_one() -> None:
    arrays = (one([1, 1]), one([0, 0]), one([10, 10]))
    ended, _ = advantages(*arrays, flags([1, 1]), flags([0, 0]), gamma=0.5, lam=1.0)
    cut_off, _ = advantages(*arrays, flags([0, 0]), flags([1, 1]), gamma=0.5, lam=1.0)
    assert ended[:, 0].tolist() == [1.0, 1.0]
    assert cut_off[:, 0].tolist() == [6.0, 6.0]  # 1 + 0.5 * 10, and nothing leaks over the cut


def test_lambda_one_is_the_discounted_return() -> None:
    rewards = one([1, 2, 4])
    advantage, target = advantages(
        rewards, one([0, 0, 0]), one([0, 0, 0]), flags([0, 0, 1]), flags([0, 0, 0]), gamma=0.5, lam=1.0
    )
    assert target[:, 0].tolist() == [3.0, 4.0, 4.0]
    assert np.array_equal(advantage, target)
