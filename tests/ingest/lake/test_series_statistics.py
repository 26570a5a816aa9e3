import numpy as np
import pytest

from ingest.lake.series_statistics import autocorrelation_time_s, blocks, dynamics, marginal


def ar1(n: int, a: float, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal(n)
    for k in range(1, n):
        x[k] = a * x[k - 1] + np.sqrt(1 - a * a) * x[k]
    return x


def test_marginal_of_known_values() -> None:
    got = marginal(np.arange(101.0))
    assert (got.samples, got.mean, got.quantiles[0], got.quantiles[5], got.quantiles[-1]) == (
        101,
        50,
        0,
        50,
        100,
    )
    assert got.cv == pytest.approx(np.arange(101.0).std() / 50)


def test_autocorrelation_time_of_an_exponential_process() -> None:
    times = np.arange(20_000) * 10.0
    tau = autocorrelation_time_s(times, ar1(20_000, np.exp(-10 / 120)))
    assert tau == pytest.approx(120, rel=0.15)


def test_white_noise_and_a_constant_have_none() -> None:
    times = np.arange(5000.0)
    assert autocorrelation_time_s(times, ar1(5000, 0.0)) < 0.5
    assert autocorrelation_time_s(times, np.full(5000, 3.0)) == 0


def test_blocks_are_split_at_gaps() -> None:
    times = np.concatenate([np.arange(5) * 20.0, 7000 + np.arange(4) * 20.0])
    assert [len(part) for part in blocks(times)] == [5, 4]


def test_dynamics_tells_slow_variance_from_fast() -> None:
    rng = np.random.default_rng(1)
    starts = np.repeat(np.arange(40) * 8000.0, 30)
    times = starts + np.tile(np.arange(30) * 20.0, 40)
    levels = np.repeat(rng.standard_normal(40), 30)
    got = dynamics(times, levels + 0.5 * rng.standard_normal(1200))
    assert (got.blocks, got.block_samples, got.block_spacing_s, got.interval_s) == (40, 30, 8000, 20)
    assert got.slow_share == pytest.approx(1 / 1.25, abs=0.08)
    assert got.fast_tau_s < 20
    assert dynamics(times, 0.5 * rng.standard_normal(1200)).slow_share < 0.05
