import numpy as np
import pytest

from ingest.core.units import NS_PER_S
from twin.core.domain import LinkState
from twin.filters.filterpy_bank import FilterpyBank
from twin.filters.kalman_bank import FilterBank
from twin.filters.link_filter import LinkFilter, LinkParameters, pairs
from twin.filters.ou_process import DEFAULT_SD, DEFAULT_TAU_S, MIN_SD, OuParameters, fit

S = NS_PER_S


def simulate(times_s: np.ndarray, mu: float, tau_s: float, sd: float, r: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = mu + sd * rng.standard_normal()
    out = []
    for dt in np.diff(times_s, prepend=times_s[0]):
        a = np.exp(-dt / tau_s)
        x = mu + a * (x - mu) + sd * np.sqrt(1 - a * a) * rng.standard_normal()
        out.append(x + np.sqrt(r) * rng.standard_normal())
    return np.array(out)


def test_equal_to_filterpy_on_irregular_and_missing_samples() -> None:
    rng = np.random.default_rng(3)
    p = OuParameters(
        rng.normal(20, 1, 10),
        1 / rng.uniform(50, 5000, 10),
        rng.uniform(0.001, 0.02, 10),
        rng.uniform(1e-4, 1e-2, 10),
    )  # two models of five links
    bank, reference, resets = FilterBank(p), FilterpyBank(p), 0
    now, horizons_s = 0, np.array([[0.0], [60.0], [3600.0]])
    for _ in range(200):
        now += int(rng.integers(1, 600 * S))
        index = np.flatnonzero(np.tile(rng.random(5) < 0.6, 2))
        z = p.mu[index] + rng.normal(0, 0.3, len(index))
        changed = bank.observe(now, index, z)
        assert changed.tolist() == reference.observe(now, index, z).tolist()
        resets += len(changed)
        for name in ("mean", "var", "innovation", "total", "time_ns"):
            assert getattr(bank, name) == pytest.approx(getattr(reference, name), rel=1e-9, abs=1e-12), name
        ahead_s = (now - bank.time_ns[:5]) / S + horizons_s
        for one, other in zip(bank.forecast_models(ahead_s), reference.forecast_models(ahead_s), strict=True):
            assert one == pytest.approx(other, rel=1e-9)
    assert resets


def test_forecast_is_the_closed_form_and_tends_to_the_stationary_state() -> None:
    p = OuParameters.of(np.array([20.0]), tau_s=100, sd=0.3, r=1e-2)
    bank = FilterBank(p)
    bank.mean[:], bank.var[:] = 21.0, 0.01
    mean, var = bank.forecast(50 * S, np.array([0.0, 50.0, 1e6]))
    a = np.exp([-0.5, -1.0, -1e4])
    assert mean[:, 0] == pytest.approx(20 + a)
    assert var[:, 0] == pytest.approx(a**2 * 0.01 + (1 - a**2) * 0.09)


def test_missing_samples_widen_the_variance() -> None:
    bank = FilterBank(OuParameters.of(np.zeros(2), tau_s=600, sd=0.3, r=1e-3))
    bank.observe(0, np.array([0, 1]), np.zeros(2))
    bank.observe(60 * S, np.array([0]), np.zeros(1))
    var = bank.forecast(60 * S, np.zeros(1))[1][0]
    assert var[1] > 2 * var[0]


def test_a_level_change_raises_an_alarm_and_is_followed() -> None:
    bank = FilterBank(OuParameters.of(np.array([20.0]), tau_s=600, sd=0.05, r=1e-4))
    one = np.array([0])
    for k in range(20):
        assert len(bank.observe(k * 30 * S, one, np.array([20.0]))) == 0
    assert len(bank.observe(600 * S, one, np.array([19.0]))) == 0
    assert bank.mean[0] > 19.0  # one sample may be an outlier
    assert bank.observe(4200 * S, one, np.array([19.0])).tolist() == [0]
    assert bank.mean[0] == 19.0  # a second one beyond the gate is a level
    assert bank.var[0] == 1e-4


def test_outliers_on_both_sides_are_no_level_change() -> None:
    bank = FilterBank(OuParameters.of(np.array([20.0]), tau_s=60, sd=0.05, r=1e-3))
    for k, value in enumerate([20.0, 19.0, 21.0, 19.0, 20.0, 19.0, 20.0]):
        assert len(bank.observe(k * 600 * S, np.array([0]), np.array([value]))) == 0


def test_an_observation_from_before_is_a_bug_of_the_caller() -> None:
    bank = FilterBank(OuParameters.of(np.zeros(1), tau_s=600, sd=0.3, r=1e-3))
    bank.observe(10, np.array([0]), np.zeros(1))
    with pytest.raises(AssertionError, match="older"):
        bank.observe(9, np.array([0]), np.zeros(1))


def test_intervals_cover_and_innovations_are_as_stated_when_the_model_is_right() -> None:
    times = np.cumsum(np.random.default_rng(0).uniform(10, 120, 4000))
    z = simulate(times, 20, 600, 0.3, 0.01, seed=1)
    p = OuParameters.of(np.array([20.0]), tau_s=600, sd=0.3, r=0.01)
    bank, one, inside, nis = FilterBank(p), np.array([0]), [], []
    for t, value in zip((times * S).astype(np.int64).tolist(), z, strict=True):
        mean, var = bank.forecast(t, np.zeros(1))
        inside.append(abs(value - mean[0, 0]) < 1.2816 * np.sqrt(var[0, 0] + 0.01))
        bank.observe(t, one, np.array([value]))
        nis.append(bank.innovation[0] ** 2 / bank.total[0])
    assert np.mean(inside) == pytest.approx(0.8, abs=0.02)
    assert np.mean(nis) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("tau_s", "sd", "r"), [(600, 0.3, 0.01), (120, 0.2, 0.04), (1500, 0.5, 0.001)])
def test_fit_recovers_the_parameters_that_made_the_samples(tau_s: float, sd: float, r: float) -> None:
    times = np.cumsum(np.random.default_rng(2).uniform(10, 60, 3000))
    got = fit([times], [simulate(times, 20.0, tau_s, sd, r, seed=7)])
    assert 1 / got.theta_per_s[0] == pytest.approx(tau_s, rel=0.35)
    assert np.sqrt(got.stationary_var[0]) == pytest.approx(sd, rel=0.25)
    assert got.r[0] == pytest.approx(r, rel=0.25)
    assert got.mu[0] == pytest.approx(20.0, abs=2 * sd * np.sqrt(2 * tau_s / times[-1]))


def test_fit_is_no_worse_than_a_general_optimiser() -> None:
    from scipy.optimize import minimize

    times = np.cumsum(np.random.default_rng(4).uniform(10, 60, 150))
    z = simulate(times, 20.0, 300, 0.3, 0.02, seed=8)

    def loss(p: OuParameters) -> float:
        bank, total, one = FilterBank(p, gate=np.inf), 0.0, np.array([0])
        for t, value in zip((times * S).astype(np.int64).tolist(), z, strict=True):
            mean, var = bank.forecast(t, np.zeros(1))
            s = var[0, 0] + p.r[0]
            total += 0.5 * (np.log(s) + (value - mean[0, 0]) ** 2 / s)
            bank.observe(t, one, np.array([value]))
        return total

    def of(x: np.ndarray) -> OuParameters:
        return OuParameters.of(np.array([x[0]]), tau_s=np.exp(x[1]), sd=np.exp(x[2]), r=np.exp(x[3]))

    best = minimize(lambda x: loss(of(x)), [20, np.log(300), np.log(0.3), np.log(0.02)], method="Nelder-Mead")
    assert loss(fit([times], [z])) <= best.fun + 0.01


def test_equal_series_are_fitted_alike_alone_or_together() -> None:
    times = np.arange(100) * 30.0
    z = [simulate(times, 20.0, 300, 0.3, 0.02, seed=k) for k in range(3)]
    together, alone = fit([times] * 3, z), fit([times], z[1:2])
    assert together.theta_per_s[1] == alone.theta_per_s[0]
    assert together.r[1] == pytest.approx(alone.r[0], rel=1e-12)


def test_each_link_may_have_its_own_clock() -> None:
    p = OuParameters.of(np.array([20.0, 20.0]), tau_s=600, sd=0.3, r=1e-3)
    together, apart = FilterBank(p), FilterBank(p)
    together.observe(np.array([60 * S, 90 * S]), np.array([0, 1]), np.array([20.5, 19.5]))
    apart.observe(60 * S, np.array([0]), np.array([20.5]))
    apart.observe(90 * S, np.array([1]), np.array([19.5]))
    assert np.array_equal(together.mean, apart.mean) and np.array_equal(together.time_ns, apart.time_ns)
    ahead = together.forecast(together.time_ns, np.array([[30.0, 60.0]]))
    assert ahead[0][0, 0] == apart.forecast(90 * S, np.zeros(1))[0][0, 0]
    assert ahead[1][0, 1] == apart.forecast(150 * S, np.zeros(1))[1][0, 1]


def test_few_samples_take_the_dynamics_of_the_others() -> None:
    times = np.arange(200) * 30.0
    z = simulate(times, 20.0, 300, 0.3, 0.02, seed=1)
    got = fit([times, times[:3]], [z, np.array([10.0, 11.0, 12.0])])
    assert got.mu[1] == 11.0
    assert got.theta_per_s[1] == got.theta_per_s[0]
    assert got.r[1] == got.r[0]


def test_without_any_long_series_the_defaults_hold() -> None:
    got = fit([np.zeros(1)], [np.array([5.0])])
    assert got.mu[0] == 5.0
    assert 1 / got.theta_per_s[0] == pytest.approx(DEFAULT_TAU_S)
    assert got.stationary_var[0] + got.r[0] == pytest.approx(DEFAULT_SD**2)


def test_a_constant_series_gives_a_narrow_but_valid_filter() -> None:
    got = fit([np.arange(50) * 30.0], [np.full(50, 23.0)])
    assert got.mu[0] == pytest.approx(23.0)
    assert got.stationary_var[0] + got.r[0] == pytest.approx(MIN_SD**2)
    assert np.isfinite(1 / got.theta_per_s[0])


def link_filter(size: int = 3, noise: float = 0.03) -> LinkFilter:
    n = size * (size - 1)
    parameters = LinkParameters(
        OuParameters.of(np.full(n, np.log(2e9)), tau_s=600, sd=0.2, r=1e-3),
        OuParameters.of(np.full(n, np.log(0.05)), tau_s=600, sd=0.05, r=1e-4),
    )
    return LinkFilter(parameters, size, [0, 60, 600], noise=noise)


def state(size: int, bps: float, latency_s: float = 0.05) -> LinkState:
    eye = np.eye(size, dtype=bool)
    return LinkState(np.where(eye, np.inf, bps), np.where(eye, 0.0, latency_s))


def test_link_filter_forecasts_a_matrix_per_horizon() -> None:
    links = link_filter()
    assert links.observe(0, state(3, 2.2e9)) == ()
    got = links.forecast(1 * S)
    assert got.bandwidth_bps.shape == got.sd_log.shape == (3, 3, 3)
    assert np.isinf(np.diagonal(got.bandwidth_bps, axis1=1, axis2=2)).all()
    assert 2e9 < got.bandwidth_bps[0, 0, 1] < 2.2e9
    assert got.bandwidth_bps[0, 0, 1] > got.bandwidth_bps[1, 0, 1] > got.bandwidth_bps[2, 0, 1]
    assert got.sd_log[0, 0, 1] < got.sd_log[1, 0, 1] < got.sd_log[2, 0, 1]
    assert got.latency_s[0, 0] == 0
    assert got.latency_s[0, 1] == pytest.approx(0.05)


def test_link_filter_keeps_source_and_destination_apart() -> None:
    links, truth = link_filter(), state(3, 2e9)
    truth.bandwidth_bps[2, 0] = 0.5e9
    assert links.observe(0, truth) == ()
    assert links.observe(3600 * S, truth) == ((2, 0),)
    got = links.forecast(3600 * S).bandwidth_bps[0]
    assert got[2, 0] == pytest.approx(0.5e9)
    assert got[0, 2] == pytest.approx(2e9)


def test_a_dead_link_is_forecast_dead_until_seen_alive() -> None:
    links, truth = link_filter(), state(3, 2e9)
    truth.bandwidth_bps[0, 1] = 0
    links.observe(0, truth)
    assert (links.forecast(30 * S).bandwidth_bps[:, 0, 1] == 0).all()
    assert (links.forecast(30 * S).bandwidth_bps[:, 1, 0] > 0).all()
    links.observe(60 * S, state(3, 2e9))
    assert (links.forecast(60 * S).bandwidth_bps[:, 0, 1] > 0).all()


def test_pairs_are_in_row_order() -> None:
    assert list(zip(*(index.tolist() for index in pairs(3)), strict=True)) == [
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 2),
        (2, 0),
        (2, 1),
    ]
