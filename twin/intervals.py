"""How many deviations an interval spans, from the errors that a forecaster made in training.

Measured rates have heavier tails and a narrower middle than a Gaussian of the same variance, so that 1.28
deviations hold more than 80 % of them and 1.96 deviations less than 95 %. The empirical quantiles of the
standardised errors (error over its stated deviation) put that right without touching mean or variance.
"""

from dataclasses import dataclass

import numpy as np

from twin.ou import Array

LEVELS = (0.80, 0.95)
_LEAST = 40
"""Fewer errors than this do not say where the 95 % quantile is: the Gaussian one holds."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Half widths of the central 80 % and 95 % interval in deviations."""

    d80: float = 1.2815516
    d95: float = 1.9599640

    @classmethod
    def of(cls, standardised: Array) -> "Intervals":
        """From standardised errors (n,) of training; Gaussian when there are too few."""
        if len(standardised) < _LEAST:
            return cls()
        d80, d95 = np.quantile(np.abs(standardised), LEVELS)
        return cls(float(d80), float(d95))
