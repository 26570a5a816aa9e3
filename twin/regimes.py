"""Two regimes of a link, each a Kalman filter, believed by how well it forecast the recent samples.

*Reverting*: the link returns to a mean (`twin.ou.fit`). *Level*: its level moves and stays where it is
(`twin.ou.fit_level`, an OU process without reversion). A static multiple-model filter (Magill 1965) whose
weights forget: the weight of a regime is proportional to exp(-D/2), D the sum of e^2/S + log S over the
samples seen, the last ones counting most (`MEMORY` a sample), an outlier no more than the filter's gate.
"""

import numpy as np

from twin.bank import FilterBank, Index
from twin.ou import Array, OuParameters, joined

MEMORY = 0.9
"""What the evidence for a regime keeps of its weight from one sample to the next."""


class Regimes:
    """L links under R = 2 regimes, advanced as one bank of R x L filters."""

    def __init__(self, reverting: OuParameters, level: OuParameters):
        self.links = len(reverting.mu)
        self._bank = FilterBank(joined((reverting, level)))
        self._shape = (2, self.links)
        self._r = self._bank.parameters.r.reshape(self._shape)
        self._offset = self.links * np.arange(2)[:, None]
        # Before its first sample all that is known of a link is the mean that it reverts to.
        self._score = np.full(self._shape, np.inf)
        self._score[0] = 0.0
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
        weight = self._weight(index)
        rows = (index + self._offset).ravel()
        now = np.tile(now_ns, len(self._offset)) if isinstance(now_ns, np.ndarray) else now_ns
        changed = self._bank.observe(now, rows, np.tile(z_log, len(self._offset)))
        innovation = self._bank.innovation[rows].reshape(2, len(index))
        total = self._bank.total[rows].reshape(2, len(index))
        loss = np.minimum(innovation**2 / total, self._bank.gate**2) + np.log(total)
        # That first sample says where the link is, not which regime it is in.
        self._score[:, index] = np.where(self._seen[index], MEMORY * self._score[:, index] + loss, 0.0)
        self._seen[index] = True
        mean, var = _mixed(weight, innovation, total)
        nis: Array = np.minimum(mean**2 / var, self._bank.gate**2)
        return changed[changed < self.links], nis

    def forecast(self, now_ns: int | Index, horizons_s: Array) -> tuple[Array, Array]:
        """Mean and variance of an observation at `now_ns` (or (L,)) + each horizon (H,) or (H, L); both
        (H, L). The regimes' disagreement is part of the variance."""
        ahead_s = horizons_s if horizons_s.ndim == 1 else np.tile(horizons_s, len(self._offset))
        now = np.tile(now_ns, len(self._offset)) if isinstance(now_ns, np.ndarray) else now_ns
        mean, var = (
            part.reshape(len(horizons_s), *self._shape) for part in self._bank.forecast(now, ahead_s)
        )
        return _mixed(self._weight(slice(None)), mean.swapaxes(0, 1), (var + self._r).swapaxes(0, 1))

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0."""
        self._bank.rebase(now_ns)

    def _weight(self, index: Index | slice) -> Array:
        """(R, n) belief in each regime."""
        score = self._score[:, index]
        weight = np.exp(-0.5 * (score - score.min(axis=0)))
        share: Array = weight / weight.sum(axis=0)
        return share


def _mixed(weight: Array, mean: Array, var: Array) -> tuple[Array, Array]:
    """Mean and variance of a mixture: `weight` (R, n), parts (R, n) or (R, H, n)."""
    weight = weight if mean.ndim == 2 else weight[:, None]
    middle: Array = (weight * mean).sum(axis=0)
    spread: Array = (weight * (var + (mean - middle) ** 2)).sum(axis=0)
    return middle, spread
