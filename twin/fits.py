"""Least squares for the twin's constants: plain arrays in, a fit with its residuals out.

Errors count relative to the measurement, because small and large operations matter alike; no coefficient can
be negative.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.collectives import Path, all_reduce_s

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients by name, rows used, and mean |predicted / measured - 1| before (None: no constant there)
    and after."""

    values: dict[str, float]
    rows: int
    error_before: float | None
    error_after: float

    @property
    def better(self) -> bool:
        """Whether it explains its rows better than the constant in use; else it is told, and not used."""
        return self.error_before is None or self.error_after < self.error_before

    def to_json(self) -> dict[str, Any]:
        """Field by field."""
        return asdict(self)


def mean_error(predicted: Float, measured: Float) -> float:
    """Mean |predicted / measured - 1|."""
    return float(np.mean(np.abs(predicted / measured - 1)))


def _relative(columns: list[Float], measured: Float) -> Float:
    """Coefficients >= 0 of measured = sum of coefficient x column, by relative errors."""
    from scipy.optimize import nnls  # heavy, needed here only

    found: Float = nnls(np.stack(columns, axis=1) / measured[:, None], np.ones(len(measured)))[0]
    return found


def products(flops: Float, seconds: Float, peak_flops: float, before: Float | None) -> Fit | None:
    """seconds = start + flops / (efficiency x peak); None when the rows do not grow with the work.

    `before`: what the constants in use predict.
    """
    start, slope = _relative([np.ones(len(flops)), flops / peak_flops], seconds)
    if slope <= 0:
        return None
    after = start + slope * flops / peak_flops
    return Fit(
        {"efficiency": float(1 / slope), "start_s": float(start)}, len(flops),
        None if before is None else mean_error(before, seconds), mean_error(after, seconds),
    )  # fmt: skip


def ring(ranks: Float, size_bytes: Float, seconds: Float, before: Path | None) -> Fit | None:
    """Ring all-reduce: seconds = 2 (n-1) alpha + 2 (n-1)/n x / B; None when time does not grow with size.

    B from messages of at least a quarter of the largest, since small ones run other protocols at other
    rates; then alpha from all with that B.
    """
    hops, share = 2 * (ranks - 1), 2 * (ranks - 1) / ranks * size_bytes
    large = size_bytes >= size_bytes.max() / 4
    _, slope = _relative([hops[large], share[large]], seconds[large])
    if slope <= 0:
        return None
    weight, rest = hops / seconds, 1 - slope * share / seconds
    alpha = max(0.0, float(weight @ rest / (weight @ weight)))
    old = None
    if before is not None:
        guess = [all_reduce_s(float(x), int(n), before) for x, n in zip(size_bytes, ranks, strict=True)]
        old = mean_error(np.array(guess), seconds)
    return Fit(
        {"alpha_s": alpha, "bandwidth_bps": float(8 / slope)}, len(ranks), old,
        mean_error(alpha * hops + slope * share, seconds),
    )  # fmt: skip


def floor(modelled: Float, measured: Float) -> Fit:
    """The constant under `modelled` times that fits best: the host's, where the GPU would be done sooner."""
    candidates = np.concatenate([[0.0], np.sort(measured)])
    errors = [mean_error(np.maximum(modelled, value), measured) for value in candidates]
    best = int(np.argmin(errors))
    return Fit({"floor_s": float(candidates[best])}, len(measured), errors[0], errors[best])


def power(activity: Float, watts: Float) -> Fit:
    """watts = idle + slope x activity, ordinary least squares; also the deviation, and the 90th percentile of
    activity, at which a busy GPU is taken to run."""
    slope, idle = np.polyfit(activity, watts, 1)
    rest = watts - (idle + slope * activity)
    values = {
        "idle_w": float(idle), "slope_w": float(slope), "deviation_w": float(np.std(rest)),
        "busy_activity": float(np.quantile(activity, 0.9)),
    }  # fmt: skip
    return Fit(values, len(watts), None, mean_error(idle + slope * activity, watts))
