"""Two models of a link, each a Kalman filter, weighted by how well it forecast the recent samples.

*Reverting*: the link returns to a mean (`twin.filters.ou_process.fit`). *Level*: its level moves and stays
where it is (`twin.filters.ou_process.fit_level`, an OU process without reversion). A static multiple-model
filter (Magill 1965) whose weights forget: the weight of a model is proportional to exp(-D/2), D the sum of
e^2/S + log S over the samples seen, the last ones counting most (`MEMORY` a sample), an outlier no more than
the filter's gate.
"""

import numpy as np

from ingest.core.units import NS_PER_S
from twin.filters.change_alarms import ChangeAlarms, Innovations
from twin.filters.kalman_bank import FilterBank, Index
from twin.filters.ou_process import Array, OuParameters, joined

MEMORY = 0.9
"""Factor of the evidence for a model from one sample to the next."""


class MultipleModelFilter:
    """L links under both models, advanced as one bank of 2 L filters, the reverting ones first."""

    def __init__(self, reverting: OuParameters, level: OuParameters, bank: type[FilterBank] = FilterBank):
        self._links = len(reverting.mu)
        self._bank = bank(joined((reverting, level)))
        # Before its first sample all that is known of a link is the mean that it reverts to.
        self._score = np.stack([np.zeros(self._links), np.full(self._links, np.inf)])
        self._seen = np.zeros(self._links, np.bool_)
        self._alarms = ChangeAlarms(self._links)
        self.restarted: Index = np.zeros(0, np.int64)
        """Links whose reverting filter was re-initialised by the last observation."""

    @property
    def time_ns(self) -> Index:
        """(L,) time of the last sample of each link; 0 before any."""
        return self._bank.time_ns[: self._links]

    def observe(self, now_ns: int | Index, index: Index, z_log: Array) -> tuple[Index, Array]:
        """Takes observations as `FilterBank.observe` does.

        Returns: the links whose alarm is raised now (`twin.filters.change_alarms`), and (n,) the square of
        each observation's distance from the forecast over the variance that the forecast stated (NIS; an
        outlier counts as the gate of the filters).
        """
        from twin.filters import kalman_steps  # brings numba, needed from the first observation on

        bank = self._bank
        rows = np.concatenate([index, index + self._links])
        restarted = bank.observe(_twice(now_ns), rows, np.concatenate([z_log, z_log]))
        self.restarted = restarted[restarted < self._links]
        found = Innovations(
            *kalman_steps.update_model_weights(
                index, bank.innovation, bank.total, self._seen, MEMORY, bank.gate, self._score
            )
        )
        return self._alarms.observe(index, z_log, found), found.nis(bank.gate)

    @property
    def odds(self) -> Array:
        """(L,) evidence of recent samples against the reverting model, twice the log-likelihood ratio."""
        odds: Array = self._score[0] - self._score[1]
        return odds

    def forecast(
        self, now_ns: int | Index, horizons_s: Array, odds: Array | None = None
    ) -> tuple[Array, Array]:
        """Mean and variance (H, L) of an observation at `now_ns`, () or (L,), + each horizon, (H,) or (H, L).

        The difference of the models is part of the variance. `odds` (H, L) replace those of the recent
        samples.
        """
        from twin.filters import kalman_steps  # brings numba

        means, variances = self.forecast_models(now_ns, horizons_s)
        against = np.broadcast_to(self.odds if odds is None else odds, means[:, 0].shape)
        mean, var = kalman_steps.mixture_moments(against, means, variances)
        return mean, var

    def forecast_models(self, now_ns: int | Index, horizons_s: Array) -> tuple[Array, Array]:
        """Means and variances of the same observations by model, reverting first; both (H, 2, L)."""
        ahead_s = horizons_s if horizons_s.ndim == 2 else horizons_s[:, None]
        return self._bank.forecast_models((now_ns - self.time_ns) / NS_PER_S + ahead_s)

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0."""
        self._bank.rebase(now_ns)


def _twice(now_ns: int | Index) -> int | Index:
    return np.concatenate([now_ns, now_ns]) if isinstance(now_ns, np.ndarray) else now_ns
