"""Least-squares fits of the twin's constants.

Errors are relative to the measurement, so that small and large operations count alike; coefficients are not
negative.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.costs.collectives import Path, all_reduce_s, tree_all_reduce_s

Float = NDArray[np.float64]
MOST_ROUNDS = 20
"""Rounds of fitting a link and choosing each row's algorithm under it; two or three suffice."""


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
        """True where the fit explains its rows better than the constant in use; else it is only reported."""
        return self.error_before is None or self.error_after < self.error_before

    def to_json(self) -> dict[str, Any]:
        """Field by field."""
        return asdict(self)


def mean_error(predicted: Float, measured: Float) -> float:
    """Mean |predicted / measured - 1|."""
    return float(np.mean(np.abs(predicted / measured - 1)))


def _relative(columns: list[Float], measured: Float) -> Float:
    """Coefficients >= 0 of measured = sum of coefficient x column, by relative errors."""
    return _least([column / measured for column in columns], np.ones(len(measured)))


def _least(columns: list[Float], target: Float, chosen: NDArray[np.bool_] | slice = slice(None)) -> Float:
    """Coefficients >= 0 of target = sum of coefficient x column over the chosen rows."""
    from scipy.optimize import nnls  # heavy, needed here only

    found: Float = nnls(np.stack(columns, axis=1)[chosen], target[chosen])[0]
    return found


def products(flops: Float, seconds: Float, peak_flops: float, before: Float | None) -> Fit | None:
    """seconds = start + flops / (efficiency x peak); None when the rows do not grow with the work.

    `before`: seconds that the constants in use predict.
    """
    start, slope = _relative([np.ones(len(flops)), flops / peak_flops], seconds)
    if slope <= 0:
        return None
    after = start + slope * flops / peak_flops
    return Fit(
        {"efficiency": float(1 / slope), "start_s": float(start)}, len(flops),
        None if before is None else mean_error(before, seconds), mean_error(after, seconds),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Reductions:
    """Measured all-reduces (R,): `ranks` of one level, bytes that each of them reduces there, seconds in all,
    and how many of those the levels inside take. `tree`: whether the level may run a tree.
    """

    ranks: Float
    size_bytes: Float
    seconds: Float
    inside_s: Float
    tree: bool

    def predict(self, path: Path) -> tuple[Float, NDArray[np.bool_]]:
        """Seconds by the faster algorithm, and where that is the tree."""
        ring = np.array([all_reduce_s(x, int(n), path) for x, n in self._rows()])
        tree = np.array([tree_all_reduce_s(x, int(n), path) for x, n in self._rows()])
        chosen = (tree < ring) & self.tree
        return self.inside_s + np.where(chosen, tree, ring), chosen

    def _rows(self) -> Iterator[tuple[float, float]]:
        return zip(self.size_bytes.tolist(), self.ranks.tolist(), strict=True)

    def link(self, by_tree: NDArray[np.bool_]) -> Path | None:
        """Link fitted to the rows, those `by_tree` run as trees; None where time does not grow with size.

        B from messages of at least a quarter of the largest, since small ones run other protocols at other
        rates; then alpha from all with that B.
        """
        n, x = self.ranks, self.size_bytes
        hops = np.where(by_tree, 2 * np.ceil(np.log2(n)), 2 * (n - 1))
        sent = np.where(by_tree, 2 * x, 2 * (n - 1) / n * x)
        left, large = 1 - self.inside_s / self.seconds, x >= x.max() / 4
        columns = [hops / self.seconds, sent / self.seconds]
        slope = _least(columns, left, large)[1]
        if slope <= 0:
            return None
        rest = left - slope * columns[1]
        alpha = max(0.0, float(columns[0] @ rest / (columns[0] @ columns[0])))
        return Path(float(8 / slope), alpha)


def all_reduce(rows: Reductions, before: Path) -> Fit | None:
    """alpha and B of the level; each row counts as ring or tree, whichever the fitted link makes faster.

    None when time does not grow with size.
    """
    by_tree, link = np.zeros(len(rows.ranks), np.bool_), None
    for _ in range(MOST_ROUNDS):
        link = rows.link(by_tree)
        if link is None:
            return None
        chosen = rows.predict(link)[1]
        if (chosen == by_tree).all():
            break
        by_tree = chosen
    assert link is not None
    values = {"alpha_s": link.latency_s, "bandwidth_bps": link.bandwidth_bps}
    if rows.tree:
        values["tree_rows"] = float(by_tree.sum())
    old, new = (mean_error(rows.predict(path)[0], rows.seconds) for path in (before, link))
    return Fit(values, len(rows.ranks), old, new)


def floor(modelled: Float, measured: Float) -> Fit:
    """Fit of a lower bound of `modelled` times: that of the host, where the GPU would be done sooner."""
    candidates = np.concatenate([[0.0], np.sort(measured)])
    errors = [mean_error(np.maximum(modelled, value), measured) for value in candidates]
    best = int(np.argmin(errors))
    return Fit({"floor_s": float(candidates[best])}, len(measured), errors[0], errors[best])


def power(activity: Float, watts: Float) -> Fit:
    """watts = idle + slope x activity, ordinary least squares; also the deviation, and the 90th percentile of
    activity, taken as that of a busy GPU."""
    slope, idle = np.polyfit(activity, watts, 1)
    rest = watts - (idle + slope * activity)
    values = {
        "idle_w": float(idle), "slope_w": float(slope), "deviation_w": float(np.std(rest)),
        "busy_activity": float(np.quantile(activity, 0.9)),
    }  # fmt: skip
    return Fit(values, len(watts), None, mean_error(idle + slope * activity, watts))
