"""Two regimes of a link, each a Kalman filter, believed by how well it forecast the recent samples.

*Reverting*: the link returns to a mean (`twin.ou.fit`). *Level*: its level moves and stays where it is
(`twin.ou.fit_level`, an OU process without reversion). A static multiple-model filter (Magill 1965) whose
weights forget: the weight of a regime is proportional to exp(-D/2), D the sum of e^2/S + log S over the
samples seen, the last ones counting most (`MEMORY` a sample), an outlier no more than the filter's gate.
"""

import numpy as np

from ingest.core.units import NS_PER_S
from twin.filters.kalman_bank import FilterBank, Index
from twin.filters.ou_process import Array, OuParameters, joined

MEMORY = 0.9
"""What the evidence for a regime keeps of its weight from one sample to the next."""


class Regimes:
    """L links under both regimes, advanced as one bank of 2 L filters: first all reverting ones."""

    def __init__(self, reverting: OuParameters, level: OuParameters):
        self.links = len(reverting.mu)
        self._bank = FilterBank(joined((reverting, level)))
        # Before its first sample all that is known of a link is the mean that it reverts to.
        self._score = np.stack([np.zeros(self.links), np.full(self.links, np.inf)])
        self._seen = np.zeros(self.links, np.bool_)

    @property
    def time_ns(self) -> Index:
        """(L,) when each link was seen last; 0 before."""
        return self._bank.time_ns[: self.links]

    def observe(self, now_ns: int | Index, index: Index, z_log: Array) -> tuple[Index, Array]:
        """Take observations as `FilterBank.observe` does.

        Returns: the links whose reverting filter was re-initialised, and (n,) the square of each
        observation's distance from the forecast over the variance that the forecast stated (NIS; an outlier
        counts as the gate of the filters).
        """
        from twin.filters import kalman_steps as steps  # brings numba, needed from the first observation on

        bank = self._bank
        rows = np.concatenate([index, index + self.links])
        changed = bank.observe(_twice(now_ns), rows, np.concatenate([z_log, z_log]))
        nis: Array = steps.believe(
            index, bank.innovation, bank.total, self._seen, MEMORY, bank.gate, self._score
        )
        return changed[changed < self.links], nis

    @property
    def odds(self) -> Array:
        """(L,) evidence of recent samples against the reverting regime, twice the log-likelihood ratio."""
        odds: Array = self._score[0] - self._score[1]
        return odds

    def forecast(
        self, now_ns: int | Index, horizons_s: Array, odds: Array | None = None
    ) -> tuple[Array, Array]:
        """Mean and variance of an observation at `now_ns` (or (L,)) + each horizon (H,) or (H, L); both
        (H, L). The regimes' disagreement is part of the variance. `odds` (H, L) replace those of the recent
        samples."""
        from twin.filters import kalman_steps as steps  # brings numba

        means, variances = self.apart(now_ns, horizons_s)
        against = np.broadcast_to(self.odds if odds is None else odds, means[:, 0].shape)
        mean, var = steps.mixed(against, means, variances)
        return mean, var

    def apart(self, now_ns: int | Index, horizons_s: Array) -> tuple[Array, Array]:
        """Means and variances of the same observations by regime, reverting first; both (H, 2, L)."""
        from twin.filters import kalman_steps as steps  # brings numba

        bank, own = self._bank, self._bank.parameters
        ahead_s = horizons_s if horizons_s.ndim == 2 else horizons_s[:, None]
        dt_s = (now_ns - self.time_ns) / NS_PER_S + ahead_s
        means, variances = steps.outlook(
            dt_s, own.mu, own.theta_per_s, bank.stationary_var, own.r, bank.mean, bank.var
        )
        return means, variances

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0."""
        self._bank.rebase(now_ns)


def _twice(now_ns: int | Index) -> int | Index:
    return np.concatenate([now_ns, now_ns]) if isinstance(now_ns, np.ndarray) else now_ns
