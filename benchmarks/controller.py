"""What a controller is told of its links, against what they then were, and what telling costs: the filters of
`twin.kalman` fed and asked as a world does, over the held-out window of a scenario."""

from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S, to_ns
from twin.core.domain import LinkState
from twin.filters.link_filter import LinkFilter, LinkParameters
from twin.filters.ou_process import Array, OuParameters
from twin.scenario.prepare import load, prepare
from twin.core.seeds import generator
from twin.traces.wan_trace import Times, WanTrace


@dataclass(frozen=True, slots=True)
class Told:
    """One horizon: RMSE (log units) of the forecast and of holding the true present; covered shares."""

    horizon_s: float
    rmse: float
    held_rmse: float
    covered: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Window:
    """A held-out window of a scenario; `setup_s` is CPU time to load, fit, calibrate and warm up."""

    scenario: str
    dataset: str
    hours: float
    links: int
    setup_s: float
    told: tuple[Told, ...]


def window(store: Path, name: str, dataset: str | None = None, noise: float | None = None) -> Window:
    """Feed the filter every period, forecast, and compare with the truth at each horizon (the next sample for
    the present). `noise` replaces that of the scenario's telemetry."""
    scenario = load(name)
    if noise is not None:
        telemetry = scenario.telemetry.model_copy(update={"noise": noise})
        scenario = scenario.model_copy(update={"telemetry": telemetry})
    begin = process_time()
    setup = prepare(scenario, store, dataset=dataset)
    setup_s = process_time() - begin
    filter_, sensing = setup.link_filter(), setup.scenario.telemetry
    period_ns = to_ns(sensing.period_s)
    times: Times = np.arange(0, setup.wan.end_ns, period_ns, dtype=np.int64)
    truth, rng = _truth(setup.wan, times), generator(setup.seed, "telemetry")
    latency = setup.wan.at(0).latency_s
    means, reaches = [], []
    for now, bandwidth in zip(times.tolist(), truth, strict=True):
        factor = np.exp(sensing.noise * rng.standard_normal(bandwidth.shape))
        filter_.observe(now, LinkState(bandwidth * factor, latency))
        forecast = filter_.forecast(now)
        means.append(forecast.bandwidth_bps)
        reaches.append(forecast.sd_log[..., None] * forecast.widths[:, None, None, :])
    off = ~np.eye(len(setup.wan.names), dtype=np.bool_)
    told = [
        _told(float(horizon_s), h, off, times, truth, _truth(setup.wan, times + later), means, reaches)
        for h, horizon_s in enumerate(filter_.horizons_s)
        if (later := max(to_ns(float(horizon_s)), period_ns)) < setup.wan.end_ns
    ]
    hours = setup.wan.end_ns / NS_PER_S / 3600
    return Window(name, setup.dataset, hours, int(off.sum()), setup_s, tuple(told))


def step_cost(size: int, steps: int = 200) -> tuple[float, float]:
    """CPU seconds of one telemetry tick of a (K, K) network, and of a forecast at six horizons."""
    links, rng = size * (size - 1), np.random.default_rng(0)
    rates, delays = (OuParameters.of(np.full(links, mu), tau_s=600, sd=0.2, r=1e-3) for mu in (20.0, -3.0))
    filter_ = LinkFilter(LinkParameters(rates, delays), size, [0.0, 10, 30, 60, 120, 300], noise=0.03)
    latency = np.full((size, size), 0.05)
    spent = np.zeros(2)
    for k in range(2 * steps):
        now, seen = k * 30 * NS_PER_S, LinkState(np.exp(rng.normal(20, 0.1, (size, size))), latency)
        start = process_time()
        filter_.observe(now, seen)
        filter_.present_bps(now)
        ticked = process_time()
        filter_.forecast(now)
        if k >= steps:  # compiled by then
            spent += ticked - start, process_time() - ticked
    tick_s, forecast_s = (spent / steps).tolist()
    return tick_s, forecast_s


def _told(
    horizon_s: float, h: int, off: NDArray[np.bool_], times: Times, truth: Array, then: Array,
    means: list[Array], reaches: list[Array],
) -> Told:  # fmt: skip
    inside = times + horizon_s * NS_PER_S < times[-1]
    was, is_ = truth[inside][:, off], then[inside][:, off]
    mean = np.array([m[h][off] for m in means])[inside]
    reach = np.array([r[h][off] for r in reaches])[inside]
    alive = (was > 0) & (is_ > 0) & (mean > 0)
    error, held = np.log(is_[alive] / mean[alive]), np.log(is_[alive] / was[alive])
    covered = (np.abs(error)[:, None] <= reach[alive]).mean(axis=0)
    rmse, held_rmse = (float(np.sqrt(np.mean(e**2))) for e in (error, held))
    return Told(horizon_s, rmse, held_rmse, (float(covered[0]), float(covered[1])))


def _truth(wan: WanTrace, times_ns: Times) -> Array:
    """(n, K, K) true bandwidth."""
    rates = np.full((len(times_ns), len(wan.names), len(wan.names)), np.inf)
    for (i, j), link in wan.series.items():
        now = np.maximum(np.searchsorted(link.times_ns, times_ns, side="right") - 1, 0)
        rates[:, i, j] = link.bandwidth_bps[now]
    return rates
