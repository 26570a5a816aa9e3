"""State estimation of a network: log bandwidth and log latency of every directed link.

Both quantities are filtered by the models of an engine (`twin.filters.engines`), by default two Kalman
filters a link (`twin.filters.multiple_model`). How many deviations an interval spans was calibrated on the
training share and is tracked from then on (`twin.filters.conformal_intervals`). Policies see these forecasts,
`twin status` reports their health and `docs/measured/forecast.md` their errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from twin.core.domain import LinkState
from twin.core.view import Forecast
from twin.filters.bandwidth_filter import BandwidthFilter, LinkModel
from twin.filters.conformal_intervals import Intervals, IntervalTracker
from twin.filters.forecasters import Forecaster, SingleModel
from twin.filters.kalman_bank import FilterBank, Index
from twin.filters.multiple_model import MultipleModelFilter
from twin.filters.ou_process import Array, OuParameters

_NIS_MEMORY = 0.02
"""Weight of the newest observation in the running mean of the normalised innovation squared."""

AlarmRule = Literal["unforecast", "restart"]
"""What counts as an alarm. `unforecast`: a change that the whole forecast did not expect
(`twin.filters.change_alarms`). `restart`: the re-initialisation of the reverting filter, which a link away
from its mean may repeat at every sample; runs of the time before the other rule are executed again with it.
"""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainedLinks:
    """Result of training an engine on all K (K - 1) directed links, in the order of `pairs(K)`.

    Calibrations of the bandwidth, one a horizon: `intervals` of the truth, `observed` of a noisy sample of
    it; `nis` (L,) is the mean normalised innovation squared from one sample to the next. Gaussian and 1 where
    nothing was calibrated. No median exceeds `capacity_bps` (L,).
    """

    intervals: tuple[Intervals, ...] = ()
    observed: tuple[Intervals, ...] = ()
    nis: Array | float = 1.0
    capacity_bps: Array | None = None

    def models(self, noise: float) -> tuple[LinkModel, LinkModel]:
        """New models of bandwidth and latency, before any sample; `noise` as in `BandwidthFilter`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class LinkParameters(TrainedLinks):
    """Dynamics of all links for Kalman filters, which `bank` runs.

    `_level` are those of the second model, by default the first one's without reversion.
    """

    bandwidth: OuParameters  # of log bit/s
    latency: OuParameters  # of log seconds, one way
    bandwidth_level: OuParameters | None = None
    latency_level: OuParameters | None = None
    bank: type[FilterBank] = FilterBank

    def models(self, noise: float) -> tuple[LinkModel, LinkModel]:
        """Two Kalman filters a link and quantity."""
        return (
            self._mixed(self.bandwidth, self.bandwidth_level, noise),
            self._mixed(self.latency, self.latency_level, noise),
        )

    def _mixed(
        self, reverting: OuParameters, level: OuParameters | None, noise: float
    ) -> MultipleModelFilter:
        level = level or reverting.without_reversion
        return MultipleModelFilter(reverting.observed_with(noise), level.observed_with(noise), self.bank)


@dataclass(frozen=True, slots=True, eq=False)
class TrainedForecasters(TrainedLinks):
    """Forecasters trained on noisy samples of all links."""

    bandwidth: Forecaster
    latency: Forecaster
    links: int

    def models(self, noise: float) -> tuple[LinkModel, LinkModel]:
        """Copies of the forecasters; `noise` was part of what they were trained on."""
        return SingleModel(self.bandwidth, self.links), SingleModel(self.latency, self.links)


def pairs(size: int) -> tuple[Index, Index]:
    """Source and destination of link l = 0 .. K (K - 1) - 1: every ordered pair, row by row."""
    rows, columns = np.nonzero(~np.eye(size, dtype=np.bool_))
    return rows.astype(np.int64), columns.astype(np.int64)


class LinkFilter:
    """Filtered state of a (K, K) network; `noise` as in `BandwidthFilter`.

    A link observed dead (0 bit/s) is forecast dead until it is observed alive.
    """

    def __init__(
        self, parameters: TrainedLinks, size: int, horizons_s: Sequence[float], *, noise: float = 0.0
    ):
        self.size = size
        self.horizons_s = np.asarray(horizons_s, np.float64)
        self.rows, self.columns = pairs(size)
        self.dead = np.zeros(len(self.rows), np.bool_)
        bandwidth, self._latency = parameters.models(noise)
        self._bandwidth = BandwidthFilter(
            bandwidth, len(self.rows), self.horizons_s, noise, parameters.capacity_bps
        )
        default = (Intervals(),) * len(self.horizons_s)
        intervals = parameters.intervals or default
        self._spread = np.array([one.spread for one in intervals])[:, None]
        self._widths = np.array([(one.d80, one.d95) for one in intervals]) / self._spread
        self._observed = parameters.observed or default
        self._tracker = IntervalTracker(self._observed, len(self.rows))
        self._nis = np.ones(len(self.rows))
        self.alarm_rule: AlarmRule = "unforecast"
        self._usual_nis = np.broadcast_to(np.asarray(parameters.nis), self._nis.shape)

    def observe(self, now_ns: int, links: LinkState) -> tuple[tuple[int, int], ...]:
        """Takes one telemetry sample of every link, made at `now_ns`; NaN where a link was not measured.

        Returns: the links whose bandwidth raises an alarm now.
        """
        bandwidth = links.bandwidth_bps[self.rows, self.columns]
        latency = links.latency_s[self.rows, self.columns]
        self.dead = np.where(np.isnan(bandwidth), self.dead, bandwidth <= 0)
        alive = np.flatnonzero(bandwidth > 0)
        seen = np.log(bandwidth[alive])
        update = self._bandwidth.observe(now_ns, alive, seen)
        for h, errors in update.errors:
            self._tracker.update(h, errors)
        self._nis[alive] += _NIS_MEMORY * (update.nis / self._usual_nis[alive] - self._nis[alive])
        timed = np.flatnonzero((bandwidth > 0) & (latency > 0))
        self._latency.observe(now_ns, timed, np.log(latency[timed]))
        alarms = update.alarms if self.alarm_rule == "unforecast" else update.restarted
        return tuple((int(self.rows[link]), int(self.columns[link])) for link in alarms)

    def forecast(self, now_ns: int) -> Forecast:
        """Median bandwidth (exp of the log mean) and its error at every horizon, seen from `now_ns`."""
        mean, sd = self._bandwidth.forecast(now_ns)
        latency, _ = self._latency.forecast(now_ns, np.zeros(1))
        return Forecast(
            horizons_s=self.horizons_s,
            bandwidth_bps=self._rates(mean),
            sd_log=self._matrix(sd * self._spread, 0.0),
            latency_s=self._matrix(np.exp(latency), 0.0)[0],
            widths=self._widths * self._tracker.factor,
        )

    def present_bps(self, now_ns: int) -> Array:
        """(K, K) median bandwidth now, as a forecast of horizon 0 has it."""
        present: Array = self._rates(self._bandwidth.present(now_ns)[None])[0]
        return present

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0, and track intervals afresh from those of training.

        Samples before that may have been trained on: their errors are too small.
        """
        self._bandwidth.rebase(now_ns)
        self._latency.rebase(now_ns)
        self._tracker = IntervalTracker(self._observed, len(self.rows))

    @property
    def nis(self) -> Array:
        """(K, K) running normalised innovation squared of the bandwidth over that of training.

        About 1 while links behave as they did in training.
        """
        matrix: Array = self._matrix(self._nis[None], 1.0)[0]
        return matrix

    def _rates(self, mean_log: Array) -> Array:
        return self._matrix(np.where(self.dead, 0.0, np.exp(mean_log)), np.inf)

    def _matrix(self, values: Array, diagonal: float) -> Array:
        """(H, L) values as (H, K, K)."""
        matrix = np.full((len(values), self.size, self.size), diagonal)
        matrix[:, self.rows, self.columns] = values
        return matrix
