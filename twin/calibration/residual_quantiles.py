"""Intervals of predicted iteration times: quantiles of measured / predicted over calibration rows.

The interval holds at its level for runs like the calibration rows, not for other platforms;
`docs/measured/fidelity.md` shows how often it held on other data sets.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Residuals:
    """Quantiles of measured / predicted: `level` of the rows lay between `low` and `high`."""

    level: float
    low: float
    high: float
    rows: int
    source: str

    def interval(self, seconds: float) -> tuple[float, float]:
        """The interval around a prediction."""
        return seconds * self.low, seconds * self.high


MODELS = Residuals(
    0.80, 0.8956, 1.1794, 144, "calibration rows of vtrain_ground_truth_single.csv (every tenth)"
)
"""For stage times from the models."""
SCHEDULE = Residuals(
    0.80,
    0.97,
    1.08,
    7,
    "iterations of Perseus and ByteDance (and, below, the 3 % between two runs of one plan)",
)
"""For measured stage times: errors of the schedule, of what follows it, and noise."""
