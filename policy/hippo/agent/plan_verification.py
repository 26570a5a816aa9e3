"""What plans are expected to bring over the horizon, many at once: `policy.horizon` on tabulated plans.

Same slices, scenarios, later moves, pause and egress of a move, and objective as `mpc`; a test
compares them number by number. Beside it a rough answer that is hundreds of times cheaper.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.hippo.tables.planning_tables import Codes
from policy.hippo.tables.batch_timing import Rows, Timer, rate
from policy.control.horizon import Horizon, outcomes_of
from policy.core.objective import Objective, Outcome
from twin.estimate.link_state_times import States
from policy.core.recourse import Prospects

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Question:
    """What a decision asks of every plan: what it brings when the job goes over to it from `running` (one
    plan, or None: nothing is placed yet).
    """

    timer: Timer
    horizon: Horizon
    slowdown: Float
    running: Codes | None
    restart_s: float

    def compared(
        self, codes: Codes, objective: Objective, *, exact: bool = True
    ) -> tuple[list[Outcome], list[Outcome]]:
        """What each brings if it may be left later for another of them, and if it is kept."""
        prospects = self._prospects(codes, exact=exact)
        best = prospects.leading(objective)
        p, q = np.indices((len(codes), len(best))).reshape(2, -1)
        seconds, usd = (x.reshape(len(codes), -1) for x in self._moves(codes.take(p), codes.take(best[q])))
        brought = prospects.brought(best, seconds, usd, objective)
        length_s = self.horizon.length_s
        return outcomes_of(brought, length_s), outcomes_of(prospects.kept(), length_s)

    def kept(self, codes: Codes) -> list[Outcome]:
        """What each brings if it is kept."""
        return outcomes_of(self._prospects(codes, exact=True).kept(), self.horizon.length_s)

    def rough(self, codes: Codes) -> tuple[list[Outcome], Float]:
        """By the closed form of an iteration's time, enough to tell which plans deserve `timed`: what each
        brings under the median links if it is kept, and its speed at the end of each scenario, (P, N).
        """
        rows, horizon = self.timer.rows(codes, self.slowdown), self.horizon
        speed = rate(self.timer.paced_ns(rows, *_broadcast(horizon.glimpse, len(codes))))
        rates = speed[:, : horizon.slices, None]
        kept = self._plain(codes, rates, rows).kept()
        return outcomes_of(kept, horizon.length_s), speed[:, horizon.slices :]

    def glance(self, codes: Codes) -> Float:
        """Speed (P,) by the closed form under the median links of the last, longest slice."""
        rows = self.timer.rows(codes, self.slowdown)
        return rate(self.timer.paced_ns(rows, *_broadcast(self._last, len(codes))))[:, 0]

    @property
    def _last(self) -> States:
        last = self.horizon.middle[-1]
        return States(last.bandwidth_bps[None], last.latency_s[None])

    def _prospects(self, codes: Codes, *, exact: bool) -> Prospects:
        """Plans timed under every scenario; else exactly under the median links of the last slice, and in
        proportion to the closed form elsewhere.
        """
        rows, states = self.timer.rows(codes, self.slowdown), _broadcast(self.horizon.states, len(codes))
        if exact:
            return self._plain(codes, self.horizon.sliced(rate(self.timer.iter_ns(rows, *states))), rows)
        there = _broadcast(self._last, len(codes))
        true, rough = (rate(time(rows, *there)) for time in (self.timer.iter_ns, self.timer.paced_ns))
        scale = np.where(rough > 0, true / np.where(rough > 0, rough, 1.0), 1.0)
        return self._plain(codes, self.horizon.sliced(scale * rate(self.timer.paced_ns(rows, *states))), rows)

    def _plain(self, codes: Codes, rates: Float, rows: Rows) -> Prospects:
        pause, moved_usd = np.zeros(len(codes)), np.zeros(len(codes))
        if self.running is not None:
            pause, moved_usd = self._moves(self.running.take(np.zeros(len(codes), np.int64)), codes)
        usd = self.timer.problem.usd(codes)
        return Prospects(self.horizon.edges_s, rates, pause, moved_usd, rows.busy_s, usd)

    def _moves(self, old: Codes, new: Codes) -> tuple[Float, Float]:
        """Seconds and egress of going over from `old[p]` to `new[p]` at the present links."""
        now = self.horizon.moving
        shape = (len(new), *now.latency_s.shape)
        links = np.broadcast_to(now.bandwidth_bps, shape), np.broadcast_to(now.latency_s, shape)
        seconds, usd = self.timer.moves(old, new, *links)
        return np.where(seconds < 0, 0.0, seconds + self.restart_s), usd


def _broadcast(states: States, plans: int) -> tuple[Float, Float]:
    """The same states for every plan."""
    shape = (plans, *states.bandwidth_bps.shape)
    return np.broadcast_to(states.bandwidth_bps, shape), np.broadcast_to(states.latency_s, shape)
