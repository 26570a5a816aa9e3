"""The parts of `benchmarks.hippo.residual_worth`, on figures that are computed by hand."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from benchmarks.hippo.residual_models import area, network, ridge, share
from benchmarks.hippo.residual_moves import best_path, losses, lost, played, true_gains
from benchmarks.hippo.residual_page import explained
from benchmarks.hippo.residual_stretches import Stretch
from benchmarks.hippo.residual_worth import residuals

PERIOD_S = 10.0
TRUE = {"a": [1.0, 1.0, 1.0, 1.0], "b": [0.5, 3.0, 3.0, 0.0]}
PAUSE_S = 5.0


def stretch() -> Stretch:
    """Returns two plans over four periods; a move takes half a period."""
    truths = np.array([TRUE["a"], TRUE["b"]]).T
    fake = SimpleNamespace(
        plans=("a", "b"), views=(0, 0, 0, 0), period_s=PERIOD_S, truths=truths, mean=np.array([1.0, 2.0]),
        now=np.array([[1.0, 1.0]] * 4), pauses=PAUSE_S * (1 - np.eye(2)),
        true=lambda plan: np.array(TRUE[plan]), pause=lambda old, new: PAUSE_S,
    )  # fmt: skip
    fake.future = lambda periods: Stretch.future(cast(Stretch, fake), periods)
    return cast(Stretch, fake)


def test_a_pause_loses_what_the_new_plan_would_have_done() -> None:
    """One and a half periods at 3 and 1 iterations/s; a pause past the end loses all that is left."""
    assert lost(np.array([9.0, 3.0, 1.0]), 1, 15.0, PERIOD_S) == 35.0
    assert lost(np.array([9.0, 3.0, 1.0]), 1, 1e9, PERIOD_S) == 40.0


def test_a_path_is_played_with_its_moves() -> None:
    """To b in the second period: half of 30 is lost; back in the last one: half of 10."""
    assert played(stretch(), ["a", "b", "b", "a"]).tolist() == [10.0, 15.0, 30.0, 5.0]  # type: ignore[list-item]


def test_the_best_path_is_found_and_counts_what_playing_it_brings() -> None:
    """Off to b at once, when a pause costs least, and back for the last period: 2.5 + 30 + 30 + 5."""
    one = stretch()
    path = best_path(one.truths * PERIOD_S, losses(one))
    assert path == [1, 1, 1, 0]
    assert played(one, [one.plans[n] for n in path]).sum() == 67.5


def test_a_gain_counts_the_pause() -> None:
    """From a to b over two periods: b does 1.75 a second in the mean, a quarter of it lost, against 1."""
    gains = true_gains(stretch(), 2)
    assert gains[0, 0].tolist() == [0.0, pytest.approx(1.75 * 0.75 - 1.0)]
    assert gains[0, 1, 0] == pytest.approx((0.75 - 1.75) / 2.0)  # in shares of the past rate of b
    assert np.isnan(gains[3, 0, 1])


def test_residuals_are_logs_of_truth_over_prediction() -> None:
    """b does 1.75 over two periods; the past said 2, the present 1. The last moment's future is not known."""
    known, future, found = residuals(stretch(), 2)
    assert known.tolist() == [True, True, True, False]
    assert future[0].tolist() == [1.0, 1.75]
    assert found["past"][0].tolist() == [0.0, pytest.approx(np.log(1.75 / 2.0))]
    assert found["now"][0].tolist() == [0.0, pytest.approx(np.log(1.75))]


def test_models_find_a_residual_that_is_there() -> None:
    """Of a linear one both explain nearly all on other rows."""
    rng = np.random.default_rng(0)
    rows, others = rng.standard_normal((2, 2000, 3))
    for fit in (ridge, network):
        left = fit(rows, rows[:, 0] - 0.5 * rows[:, 1])(others) - (others[:, 0] - 0.5 * others[:, 1])
        assert (left**2).mean() < 0.1 * 1.25


def test_models_say_zero_where_later_rows_say_otherwise() -> None:
    """What holds in the first 70 % of the rows is reversed in the rest."""
    rows = np.random.default_rng(0).standard_normal((300, 3))
    target = np.where(np.arange(300) < 210, 1.0, -1.0) * rows[:, 0]
    for fit in (ridge, network):
        assert not fit(rows, target)(rows).any()


def test_shares_have_intervals_of_stretches() -> None:
    """A constant share has no width; one that changes once has one."""
    whole = np.full(40, 2.0)
    assert (share(whole / 4, whole, 5, "x").low, share(whole / 4, whole, 5, "x").high) == (0.25, 0.25)
    halves = share(np.repeat([0.0, 2.0], 20), whole, 10, "x")
    assert halves.mean == 0.5
    assert halves.low < 0.2 < 0.8 < halves.high


def test_explained_share_is_of_squared_errors() -> None:
    """Errors of 1 where saying nothing has 4."""
    rows = {"error/0 over past": np.full(9, 4.0), "error/ridge over past": np.ones(9)}
    assert explained(rows, "error", "ridge over past", 2).mean == 0.75


def test_area_under_the_curve() -> None:
    """Of four pairs two are in order and one is equal."""
    assert area(np.array([3.0, 1.0, 1.0, 2.0]), np.array([True, True, False, False])) == 0.625
    assert np.isnan(area(np.array([1.0]), np.array([True])))
