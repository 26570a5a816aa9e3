"""Step functions whose integrals are found by hand, and properties of random ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twin.power.step_series import StepSeries

LARGE = StepSeries(np.array([0, 10**18]), np.array([10**12, 3]), 2 * 10**18)


def steps(*pairs: tuple[int, int], end: int) -> StepSeries:
    at, value = zip(*pairs, strict=True)
    return StepSeries(np.array(at, np.int64), np.array(value, np.int64), end)


def test_an_integral_is_value_times_time() -> None:
    power = steps((0, 5), (10, 7), (30, 0), end=40)
    assert power.integral == 5 * 10 + 7 * 20
    assert power.between(np.array([5, 10, 0]), np.array([15, 30, 40])).tolist() == [60, 140, 190]


def test_integrals_do_not_overflow() -> None:
    assert LARGE.integral == 10**30 + 3 * 10**18
    assert LARGE.up_to(np.array([10**18 + 1])).tolist() == [10**30 + 3]


def test_changes_of_one_instant_are_one_step() -> None:
    made = StepSeries.of_changes(np.array([5, 5, 9, 9, 20]), np.array([4, 3, -4, 4, -7]), 0, 20)
    assert (made.at_ns.tolist(), made.value.tolist()) == ([0, 5], [0, 7])
    assert made.integral == 7 * 15


def test_a_product_is_integrated_on_the_steps_of_both() -> None:
    power, intensity = steps((0, 2), (10, 3), end=20), steps((-5, 100), (4, 10), (15, 1), end=99)
    assert power.times(intensity) == 2 * 100 * 4 + 2 * 10 * 6 + 3 * 10 * 5 + 3 * 1 * 5


@st.composite
def random_steps(draw: st.DrawFn) -> StepSeries:
    lasts = draw(st.lists(st.integers(1, 9), min_size=1, max_size=9))
    value = draw(st.lists(st.integers(-5, 9), min_size=len(lasts), max_size=len(lasts)))
    at = np.cumsum([0, *lasts])
    return StepSeries(at[:-1], np.array(value, np.int64), int(at[-1]))


@given(power=random_steps(), cut=st.integers(0, 81))
def test_the_parts_of_an_integral_sum_to_it(power: StepSeries, cut: int) -> None:
    at = min(cut, power.end_ns)
    parts = power.between(np.array([0, at]), np.array([at, power.end_ns]))
    assert sum(parts.tolist()) == power.integral
    plain = sum(int(power.at(np.array([t]))[0]) for t in range(power.end_ns))
    assert power.integral == plain


@given(power=random_steps(), value=st.integers(-9, 9))
def test_a_constant_factor_comes_out_of_the_integral(power: StepSeries, value: int) -> None:
    constant = StepSeries(np.array([0]), np.array([value]), 100)
    assert power.times(constant) == value * power.integral
