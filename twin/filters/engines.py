"""Filter engines by the name under which a scenario chooses them (`filter: {engine: NAME}`).

An engine is trained on a trace up to a time, read as telemetry would have sampled it, and returns what
`twin.filters.link_filter.LinkFilter` runs. A new one is a line in `ENGINES` and a name in
`twin.settings.scenario_file.FilterEngine`; `tests/contract/test_filter_engines.py` runs over all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ingest.core.units import to_ns
from twin.filters import ou_process, past_telemetry
from twin.filters.forecasters import Ewma, Forecaster, Persistence
from twin.filters.link_filter import LinkParameters, TrainedForecasters, TrainedLinks, pairs
from twin.filters.ou_process import Array
from twin.filters.past_telemetry import MAX_SAMPLES, TelemetryModel
from twin.traces.wan_trace import WanTrace

Engine = Callable[[WanTrace, int, TelemetryModel], TrainedLinks]


def fit_dynamics(train: WanTrace, end_ns: int, telemetry: TelemetryModel) -> LinkParameters:
    """Maximum-likelihood dynamics of every link, for Kalman filters.

    Raises:
        UsageError: a link is dead in all of `train` before `end_ns`.
    """
    step_ns = max(to_ns(telemetry.period_s), -(-end_ns // MAX_SAMPLES))
    rates, delays = past_telemetry.log_series(*past_telemetry.read(train, 0, end_ns, step_ns))
    return LinkParameters(
        ou_process.fit(*rates), ou_process.fit(*delays),
        ou_process.fit_level(*rates), ou_process.fit_level(*delays), capacity_bps=_capacity(train),
    )  # fmt: skip


def _filterpy(train: WanTrace, end_ns: int, telemetry: TelemetryModel) -> LinkParameters:
    from twin.filters.filterpy_bank import FilterpyBank

    return replace(fit_dynamics(train, end_ns, telemetry), bank=FilterpyBank)


def fit_forecasters(
    bandwidth: Callable[[TelemetryModel], Forecaster],
    latency: Callable[[], Forecaster],
    train: WanTrace,
    end_ns: int,
    telemetry: TelemetryModel,
) -> TrainedForecasters:
    """Forecasters trained on the last `MAX_SAMPLES` noisy samples before `end_ns`.

    Raises:
        UsageError: a link is dead in all of `train` before `end_ns`.
    """
    first_ns = past_telemetry.recent_ns(train, end_ns, telemetry.period_s)
    times_ns, _, samples = past_telemetry.sampled(train, first_ns, end_ns, telemetry)
    rates, delays = past_telemetry.log_series(times_ns, samples)
    rate, delay = bandwidth(telemetry), latency()
    rate.train(*rates)
    delay.train(*delays)
    return TrainedForecasters(rate, delay, len(rates[0]), capacity_bps=_capacity(train))


def _gru(telemetry: TelemetryModel) -> Forecaster:
    from twin.filters.gru import Gru  # imports torch

    return Gru(tuple(sorted({max(1, round(h / telemetry.period_s)) for h in telemetry.horizons_s})))


def _capacity(train: WanTrace) -> Array | None:
    return None if train.capacity_bps is None else train.capacity_bps[pairs(len(train.names))]


ENGINES: Mapping[str, Engine] = {
    "bank": fit_dynamics,
    "filterpy": _filterpy,
    "gru": partial(fit_forecasters, _gru, Ewma),  # of latency only the present is asked for
    "ewma": partial(fit_forecasters, lambda _: Ewma(), Ewma),
    "persistence": partial(fit_forecasters, lambda _: Persistence(), Persistence),
}
