"""What plans are expected to bring over the horizon, many at once: `policy.horizon` on tabulated plans.

Same slices, same quadrature over the forecast's uncertainty, same pause and egress of a move, same objective as
`mpc`; a test compares them number by number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.hippo.problem import Codes
from policy.hippo.timing import Timer, rate
from policy.horizon import Slice
from policy.objective import Objective, Outcome

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Expected:
    """Outcomes of P plans; `iter_s` is infinite where nothing gets done."""

    iter_s: Float
    utilisation: Float
    usd: Float

    def outcome(self, row: int) -> Outcome:
        """One plan's."""
        return Outcome(float(self.iter_s[row]), float(self.utilisation[row]), float(self.usd[row]))

    def values(self, objective: Objective) -> Float:
        """Objective of every plan, (P,)."""
        return np.array([objective.value(self.outcome(row)) for row in range(len(self.iter_s))])


class Horizon:
    """The link states of one decision's horizon, stacked for the kernel."""

    def __init__(self, parts: Sequence[Slice]):
        states = [(p, state) for part in parts for p, state in part.states]
        self.bandwidth = np.stack([state.bandwidth_bps for _, state in states])
        self.latency = np.stack([state.latency_s for _, state in states])
        self.probability = np.array([p for p, _ in states])
        self.part = np.array([i for i, part in enumerate(parts) for _ in part.states])
        self.start = np.array([part.start_s for part in parts])
        self.end = np.array([part.end_s for part in parts])
        self.now = parts[0].states[len(parts[0].states) // 2][1]


def expected(
    timer: Timer, codes: Codes, horizon: Horizon, slowdown: Float, *, running: Codes | None, restart_s: float
) -> Expected:
    """Outcome of going over to each plan from `running` (one plan, or None: nothing is placed yet)."""
    plans, k = codes.domain.shape
    rows = timer.rows(codes, slowdown)
    shape = (plans, *horizon.bandwidth.shape)
    ns = timer.iter_ns(rows, np.broadcast_to(horizon.bandwidth, shape), np.broadcast_to(horizon.latency, shape))
    pause, moved_usd = np.zeros(plans), np.zeros(plans)
    if running is not None:
        one = (plans, k, k)
        seconds, moved_usd = timer.moves(
            running.take(np.zeros(plans, np.int64)), codes,
            np.broadcast_to(horizon.now.bandwidth_bps, one), np.broadcast_to(horizon.now.latency_s, one),
        )  # fmt: skip
        pause = np.where(seconds < 0, 0.0, seconds + restart_s)
    speed = np.zeros((plans, len(horizon.start)))
    np.add.at(speed.T, horizon.part, (rate(ns) * horizon.probability).T)
    time = np.clip(horizon.end - np.maximum(horizon.start, pause[:, None]), 0.0, None)
    done = (speed * time).sum(1)
    total = float(horizon.end[-1])
    with np.errstate(divide="ignore"):
        iter_s = np.where(done > 0, total / done, np.inf)
        extra = np.where(done > 0, moved_usd / np.maximum(done, 1e-300), 0.0)
    utilisation = rows.busy_s * done / total
    return Expected(iter_s, utilisation, np.where(done > 0, timer.problem.usd(codes) + extra, 0.0))
