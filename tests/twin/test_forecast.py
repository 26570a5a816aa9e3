import numpy as np
import pytest

from twin.forecast import FORECASTERS, Ewma, Persistence


def ou(n: int, tau: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng, a = np.random.default_rng(seed), np.exp(-1 / tau)
    x = rng.standard_normal(n)
    for k in range(1, n):
        x[k] = a * x[k - 1] + np.sqrt(1 - a * a) * x[k]
    return np.arange(n) * 30.0, 20 + 0.3 * x + 0.15 * rng.standard_normal(n)


def rmse(name: str, ahead: int = 4) -> float:
    times, values = ou(3000, 10, seed=1)
    model = FORECASTERS[name]()
    model.train(times[:2000], values[:2000])
    errors = []
    for k in range(2000, 3000 - ahead):
        model.observe(times[k], values[k])
        errors.append(values[k + ahead] - model.predict(30.0 * ahead)[0])
    return float(np.sqrt(np.mean(np.square(errors))))


def test_the_filter_beats_the_others_on_the_process_it_models() -> None:
    assert rmse("kalman") < rmse("ewma") < rmse("persistence")


@pytest.mark.parametrize("name", FORECASTERS)
def test_every_forecaster_follows_a_constant(name: str) -> None:
    times, values = np.arange(50) * 30.0, np.full(50, 21.0)
    model = FORECASTERS[name]()
    model.train(times, values)
    model.observe(1500.0, 21.0)
    mean, var = model.predict(300.0)
    assert mean == pytest.approx(21.0)
    assert var >= 0


def test_ewma_picks_a_small_weight_for_noise_and_one_for_a_walk() -> None:
    rng = np.random.default_rng(0)
    noise, walk = Ewma(), Ewma()
    noise.train(np.arange(2000.0), rng.standard_normal(2000))
    walk.train(np.arange(2000.0), np.cumsum(rng.standard_normal(2000)))
    noise.observe(0, 100.0)
    walk.observe(0, 100.0)
    assert noise.predict(1)[0] < 10
    assert walk.predict(1)[0] > 90


def test_persistence_repeats_the_last_value_with_the_spread_of_steps() -> None:
    model = Persistence()
    model.train(np.arange(3.0), np.array([1.0, 3.0, 1.0]))
    model.observe(3.0, 7.0)
    assert model.predict(100.0) == (7.0, 4.0)
