"""Alarms: a link has changed in a way that its filters did not forecast.

A test on the innovations of the whole forecast (the mixture of `twin.filters.multiple_model`, or one
forecaster), not on those of one model in it: a model that is wrong at every sample, while another one has the
weight, is no alarm.

*Raised* by the second of two samples in a row that lie more than `GATE` stated deviations from what was
forecast before the first of them, on the same side. One such sample may be an outlier, and the filters move
towards it, so that their next innovation is small whether or not the level has changed; the forecast from
before it is what a change of level still contradicts, and what an outlier is followed by. Testing for a
jump against the forecast of the hypothesis "no jump" is the idea of Willsky and Jones (1976), here for a
jump at the last sample but one. That forecast is kept until it, and the present one, fit a sample. A link
of whose recent samples more than `OUTLIERS` were outliers, beyond the gate and not followed by another,
must show three in a row: there two come by chance.

*Cleared* when the forecast fits again: when the fading mean of the squared normalised innovation (NIS) is at
most `SETTLED` (Bar-Shalom, Li and Kirubarajan 2001, section 11.2). Until then no other alarm is raised, so
that one change, however long it takes to settle, is one alarm.
`docs/measured/alarms.md` has false alarms and delays.

Willsky and Jones: A generalized likelihood ratio approach to the detection and estimation of jumps in linear
systems. IEEE Transactions on Automatic Control 21 (1976).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.filters.ou_process import Array

Index = NDArray[np.int64]

GATE = 4.5
"""Stated deviations beyond which a sample counts as unforecast."""
SETTLED = 1.5
"""Mean NIS at which an alarm is cleared; about 1 where the stated deviations are right."""
OUTLIERS = 0.03
"""Share of outliers among the recent samples up to which two in a row are a change."""
MEMORY = 0.9, 0.99
"""Factors, from one sample to the next, of the mean NIS and of the share of outliers."""


@dataclass(frozen=True, slots=True, eq=False)
class Innovations:
    """Innovations of n samples under the forecast of two models of each link; every array has shape (n,).

    `innovation` is the sample minus its forecast; `variance` is the stated one, the distance of the models
    included. `weight` is that of the first model; `first` and `second` are the variances that either states.
    """

    innovation: Array
    variance: Array
    weight: Array
    first: Array
    second: Array

    def nis(self, gate: float) -> Array:
        """(n,) squared innovations over their variance, at most `gate` squared."""
        return np.minimum(self.innovation**2 / self.variance, gate * gate)


class ChangeAlarms:
    """Alarms of L links; `raised` (L,) says which have one that is not cleared yet."""

    def __init__(self, links: int, gate: float = GATE):
        self._gate = gate
        self.raised = np.zeros(links, np.bool_)
        self._suspected = np.zeros(links, np.bool_)
        self._side, self._count = np.zeros(links), np.zeros(links, np.int64)
        self._expected = np.zeros((3, links))
        self._recent = np.stack([np.ones(links), np.zeros(links)])

    def observe(self, index: Index, z_log: Array, found: Innovations) -> Index:
        """Takes the samples `z_log` (n,) of links `index` (n,), each at most once.

        Returns: the links whose alarm is raised now.
        """
        from twin.filters import kalman_steps  # brings numba, needed from the first observation on

        rows = np.stack([found.innovation, found.variance, found.weight, found.first, found.second])
        new: NDArray[np.bool_] = kalman_steps.raise_alarms(
            index, z_log, rows, (self._gate, SETTLED, OUTLIERS), MEMORY,
            self.raised, self._suspected, self._side, self._count, self._expected, self._recent,
        )  # fmt: skip
        alarms: Index = index[new]
        return alarms
