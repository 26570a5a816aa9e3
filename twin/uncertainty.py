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
    0.80, 0.8675, 1.0822, 144, "calibration rows of vtrain_ground_truth_single.csv (every tenth)"
)
"""Where the models give the stage times."""
SCHEDULE = Residuals(
    0.80,
    0.97,
    1.03,
    0,
    "two runs of one plan on real machines differ by 3 % in the median (validation/README.md)",
)
"""Where stage times are measured, only the schedule and the noise between two runs can be wrong."""
