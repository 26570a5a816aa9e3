import pytest

from ingest.core.errors import UsageError
from twin.goodput.efficiency import adascale_gain, noise_scale, statistical_efficiency
from twin.goodput.static_formula import accumulated, largest_batch


def test_the_noise_scale_is_the_batch_at_which_noise_and_signal_are_alike() -> None:
    assert noise_scale(variance=6.0, squared_norm=2.0, batch=100) == 300.0


def test_no_signal_has_no_noise_scale() -> None:
    with pytest.raises(UsageError, match="must be positive"):
        noise_scale(1.0, 0.0, 100)


def test_efficiency_is_one_at_the_initial_batch_and_halves_by_the_formula() -> None:
    assert statistical_efficiency(noise=300, initial=100, batch=100) == 1.0
    assert statistical_efficiency(noise=300, initial=100, batch=500) == 0.5


def test_the_gain_lies_between_none_and_the_growth_of_the_batch() -> None:
    assert adascale_gain(noise=0, initial=100, batch=800) == 1.0
    assert adascale_gain(noise=1e12, initial=100, batch=800) == pytest.approx(8.0)
    # (300 / 100 + 1) / (300 / 300 + 1)
    assert adascale_gain(noise=300, initial=100, batch=300) == 2.0
    # a step's gain is what its samples are worth
    assert adascale_gain(300, 100, 500) == pytest.approx(5 * statistical_efficiency(300, 100, 500))


def test_the_fixed_formula_gives_the_example_of_the_design_documents() -> None:
    assert largest_batch(16_000, 3_000 + 9_000, 1_600, 50) == 48
    assert largest_batch(10_000, 12_000, 1_000, 50) == 0
    assert accumulated(256, 48).accumulation == 6
    assert accumulated(256, 0).accumulation == 0
