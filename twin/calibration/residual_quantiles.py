"""Intervals of predicted iteration times: quantiles of measured / predicted over calibration rows.

The interval holds at its level for runs like the calibration rows, not for other platforms;
`docs/measured/fidelity.md` shows how often it held on other data sets.
"""

from collections.abc import Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Residuals:
    """Quantiles of measured / predicted: `level` of the rows lay between `low` and `high`."""

    level: float
    low: float
    high: float
    rows: int
    source: str
    basis: str

    def interval(self, seconds: float) -> tuple[float, float]:
        """The interval around a prediction."""
        return seconds * self.low, seconds * self.high


MODELS = Residuals(
    0.80, 0.8956, 1.1794, 144, "calibration rows of vtrain_ground_truth_single.csv (every tenth)", "models"
)
"""For stage times from the models, on the GPU model and at the scale of those rows."""
SCALE = Residuals(
    0.80, 0.9377, 1.1833, 44, "runs on 16 to 3,072 A100-80 (every second)", "extrapolated scale"
)
"""For more GPUs than the calibration rows had; the other 43 runs lay in it in 79 %."""
OTHER_GPU = Residuals(
    0.80, 0.8971, 1.2313, 33, "runs on V100, A100-40, H100, H200 and GB200", "extrapolated GPU"
)
"""For GPU models on which no calibration row ran."""
PROFILES = Residuals(
    0.80, 0.968, 1.111, 9, "iterations on an H200 with the profile that ships for it", "profiles"
)
"""For layer times that were measured."""
SCHEDULE = Residuals(
    0.80,
    0.97,
    1.08,
    7,
    "iterations of Perseus and ByteDance (and, below, the 3 % between two runs of one plan)",
    "measured stages",
)
"""For measured stage times: errors of the schedule, of what follows it, and noise."""
ALL = (MODELS, SCALE, OTHER_GPU, PROFILES, SCHEDULE)
CALIBRATED_GPU, CALIBRATED_GPUS = "A100-80", 8
"""GPU model and most GPUs of the calibration rows."""


def of(kinds: Set[str], gpus: int) -> Residuals:
    """Residuals of stage times from the models for so many GPUs of these models."""
    if kinds != {CALIBRATED_GPU}:
        return OTHER_GPU
    return SCALE if gpus > CALIBRATED_GPUS else MODELS
