"""Errors, coverage and cost of the filters of a run: `twin.filters.link_filter` observes and forecasts as in
a world, over the held-out window of a scenario, with any engine."""

from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S, to_ns
from twin.core.domain import LinkState
from twin.core.seeds import generator
from twin.filters import history as filter_history
from twin.filters.engines import ENGINES
from twin.filters.link_filter import LinkFilter
from twin.filters.ou_process import Array
from twin.filters.past_telemetry import TelemetryModel
from twin.scenario.prepare import Scenario, load, prepare, telemetry_model
from twin.settings.scenario_file import FilterSettings
from twin.settings.window import known_ns, known_share
from twin.traces import measured_links
from twin.traces.wan_trace import LinkSeries, Times, WanTrace, trace


@dataclass(frozen=True, slots=True)
class HorizonScore:
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
    scores: tuple[HorizonScore, ...]


def window(
    store: Path, name: str, dataset: str | None = None, *, noise: float | None = None, engine: str = "bank"
) -> Window:
    """Feeds the filter every period, forecasts, and compares with the truth at each horizon (the next sample
    for the present). `noise` replaces that of the scenario's telemetry."""
    scenario = _with_engine(load(name), engine)
    if noise is not None:
        telemetry = scenario.telemetry.model_copy(update={"noise": noise})
        scenario = scenario.model_copy(update={"telemetry": telemetry})
    begin = process_time()
    setup = prepare(scenario, store, dataset=dataset)
    setup_s = process_time() - begin
    filter_, telemetry = setup.link_filter(), setup.scenario.telemetry
    period_ns = to_ns(telemetry.period_s)
    times: Times = np.arange(0, setup.wan.end_ns, period_ns, dtype=np.int64)
    truth, rng = _truth(setup.wan, times), generator(setup.seed, "telemetry")
    latency = setup.wan.at(0).latency_s
    means, reaches = [], []
    for now, bandwidth in zip(times.tolist(), truth, strict=True):
        factor = np.exp(telemetry.noise * rng.standard_normal(bandwidth.shape))
        filter_.observe(now, LinkState(bandwidth * factor, latency))
        forecast = filter_.forecast(now)
        means.append(forecast.bandwidth_bps)
        reaches.append(forecast.sd_log[..., None] * forecast.widths[:, None, None, :])
    off = ~np.eye(len(setup.wan.names), dtype=np.bool_)
    scores = [
        _score(float(horizon_s), h, off, times, truth, _truth(setup.wan, times + later), means, reaches)
        for h, horizon_s in enumerate(filter_.horizons_s)
        if (later := max(to_ns(float(horizon_s)), period_ns)) < setup.wan.end_ns
    ]
    hours = setup.wan.end_ns / NS_PER_S / 3600
    return Window(name, setup.dataset, hours, int(off.sum()), setup_s, tuple(scores))


def step_cost(size: int, steps: int = 200, engine: str = "bank") -> tuple[float, float]:
    """CPU seconds of one telemetry tick of a (K, K) network, and of a forecast at six horizons."""
    telemetry, rng = TelemetryModel(30, (0.0, 10, 30, 60, 120, 300), noise=0.03), np.random.default_rng(0)
    past = _random_trace(size, rng)
    trained = ENGINES[engine](past, past.end_ns, telemetry)
    filter_ = LinkFilter(trained, size, telemetry.horizons_s, noise=telemetry.noise)
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


def training_s(store: Path, name: str, dataset: str | None = None, engine: str = "bank") -> float:
    """CPU seconds to train and calibrate filters on the training share."""
    scenario = load(name)
    wan = scenario.wan if dataset is None else scenario.wan.replaced(dataset)
    links = measured_links.load(store, wan, scenario.domains, known_share("test"))
    train = links.window(0, known_ns(links.end_ns, "test"))
    begin = process_time()
    filter_history.fit(train, telemetry_model(scenario), engine)
    return process_time() - begin


def _with_engine(scenario: Scenario, engine: str) -> Scenario:
    settings = FilterSettings.model_validate({"engine": engine})
    return scenario.model_copy(update={"filter": settings})


def _random_trace(size: int, rng: np.random.Generator, samples: int = 100) -> WanTrace:
    """Links of 20 % variation, sampled every 30 s."""
    times = np.arange(samples, dtype=np.int64) * 30 * NS_PER_S
    series = {
        (i, j): LinkSeries(times, np.exp(rng.normal(20, 0.2, samples)), np.full(samples, 0.05))
        for i in range(size)
        for j in range(size)
        if i != j
    }
    return trace(tuple(f"d{k}" for k in range(size)), series, int(times[-1]) + 30 * NS_PER_S)


def _score(
    horizon_s: float, h: int, off: NDArray[np.bool_], times: Times, truth: Array, then: Array,
    means: list[Array], reaches: list[Array],
) -> HorizonScore:  # fmt: skip
    inside = times + horizon_s * NS_PER_S < times[-1]
    was, is_ = truth[inside][:, off], then[inside][:, off]
    mean = np.array([m[h][off] for m in means])[inside]
    reach = np.array([r[h][off] for r in reaches])[inside]
    alive = (was > 0) & (is_ > 0) & (mean > 0)
    error, held = np.log(is_[alive] / mean[alive]), np.log(is_[alive] / was[alive])
    covered = (np.abs(error)[:, None] <= reach[alive]).mean(axis=0)
    rmse, held_rmse = (float(np.sqrt(np.mean(e**2))) for e in (error, held))
    return HorizonScore(horizon_s, rmse, held_rmse, (float(covered[0]), float(covered[1])))


def _truth(wan: WanTrace, times_ns: Times) -> Array:
    """(n, K, K) true bandwidth."""
    rates = np.full((len(times_ns), len(wan.names), len(wan.names)), np.inf)
    for (i, j), link in wan.series.items():
        now = np.maximum(np.searchsorted(link.times_ns, times_ns, side="right") - 1, 0)
        rates[:, i, j] = link.bandwidth_bps[now]
    return rates
