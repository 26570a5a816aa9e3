"""How far a predicted iteration time may be off: quantiles of measured / predicted over calibration rows.

The interval holds at its level for runs like the calibration rows. It says nothing about a platform that no
row comes from; `docs/fidelity.md` shows how often it held on other data sets.
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
"""Where the models give the stage times."""
SCHEDULE = Residuals(
    0.80,
    0.97,
    1.08,
    7,
    "iterations of Perseus and ByteDance (and, below, the 3 % between two runs of one plan)",
)
"""Where stage times are measured: the schedule, updates and reductions that follow it, and noise."""
