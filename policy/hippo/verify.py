"""What plans are expected to bring over the horizon, many at once: `policy.horizon` on tabulated plans.

Same slices, same quadrature over the forecast's uncertainty, same pause and egress of a move, same
objective as `mpc`; a test compares them number by number.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.hippo.problem import Codes
from policy.hippo.timing import Timer, rate
from policy.horizon import NODES, Horizon
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
        """Objective of every plan, (P,): `Objective.value` on arrays."""
        time, utilisation, cost = objective.weights
        base = objective.base
        usd = self.usd / base.usd if base.usd > 0 else self.usd
        gain = (base.iter_s - self.iter_s) / base.iter_s
        worth = time * gain + utilisation * self.utilisation - cost * usd
        return np.where(np.isinf(self.iter_s), -np.inf, worth)

    def take(self, index: NDArray[np.int64]) -> "Expected":
        """The plans `index`."""
        return Expected(self.iter_s[index], self.utilisation[index], self.usd[index])


def expected(
    timer: Timer,
    codes: Codes,
    horizon: Horizon,
    slowdown: Float,
    *,
    running: Codes | None,
    restart_s: float,
    rough: bool = False,
) -> Expected:
    """Outcome of going over to each plan from `running` (one plan, or None: nothing is placed yet).

    `rough` takes the closed form of an iteration's time: enough to tell which plans deserve the exact one.
    """
    plans, k = codes.domain.shape
    rows = timer.rows(codes, slowdown)
    states, now = horizon.states, horizon.middle[0]
    shape = (plans, len(states), k, k)
    links = np.broadcast_to(states.bandwidth_bps, shape), np.broadcast_to(states.latency_s, shape)
    ns = timer.paced_ns(rows, *links) if rough else timer.iter_ns(rows, *links)
    pause, moved_usd = np.zeros(plans), np.zeros(plans)
    if running is not None:
        one = (plans, k, k)
        seconds, moved_usd = timer.moves(
            running.take(np.zeros(plans, np.int64)),
            codes,
            np.broadcast_to(now.bandwidth_bps, one),
            np.broadcast_to(now.latency_s, one),
        )
        pause = np.where(seconds < 0, 0.0, seconds + restart_s)
    speed = rate(ns).reshape(plans, -1, len(NODES)).mean(axis=2)
    total = horizon.length_s
    pause = np.minimum(pause, total)  # a dead link on the way makes it infinite
    productive = np.diff(np.maximum(horizon.edges_s, pause[:, None]), axis=1)
    done = (speed * productive).sum(1)
    with np.errstate(divide="ignore"):
        iter_s = np.where(done > 0, total / done, np.inf)
        extra = np.where(done > 0, moved_usd / np.maximum(done, 1e-300), 0.0)
    utilisation = rows.busy_s * done / total
    return Expected(iter_s, utilisation, np.where(done > 0, timer.problem.usd(codes) + extra, 0.0))
