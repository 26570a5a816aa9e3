"""Many kernel-engine twins at once: the environment that Hi-PPO practises in.

STATE    what a controller knows at a periodic trigger: Kalman forecasts (past only), the running plan, time
         since the last move, objective weights (`policy.hippo.features`); an episode starts at a random time
         of the footage, mostly with nothing placed, sometimes with the static plan running.
ACTION   hold, or a plan: knob, order, cuts, inner configurations (`policy.hippo.actions`); always legal.
REWARD   per period, w1 R_eff + w2 R_util - w3 R_cost (spec 4.2): R_eff = (T_base - T)/T_base with the static
         plan on the same links at the same time, R_util the mean utilisation of the active domains, R_cost
         egress per iteration relative to the base's. Moving is inside T and the egress: what a move sends
         is owed until a period has iterations to charge it to. R_eff is cut off at -2, R_cost at 3. What
         the soft constraints limit is returned beside it.

Fluid approximations against `twin.cluster.World` with the kernel engine, all stated: links are sampled J
times a period instead of followed change by change; iterations are a rate, so none is lost or waited for at
a move; a move takes its bytes at the links' state at its beginning; triggers are periodic; no GPU fails;
computing is at nominal speed; where speed alone counts each pair of domains has the better of its link and
its relays at every sample, each relay at half of its width (`policy.relays`), whatever else of the plan is on
these; the warm-up is not deepened. The filter is warm at the start of an episode.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.estimate.mixed_shapes_kernel import Lines
from policy.hippo.networks.hippo_config import PenaltyConfig, RolloutConfig
from policy.hippo.tables.features import TRIGGERS, Features, Situation
from policy.hippo.env.practice_trace import Films, joined
from policy.hippo.tables.planning_tables import Codes
from policy.hippo.tables.batch_timing import Rows, rate
from policy.core.objective import speed_alone

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Int = NDArray[np.int64]

LOWEST_EFFICIENCY = -2.0
HIGHEST_COST = 3.0
OWN_WEIGHTS = 0.5
"""Share of episodes under the scenario's own weights, where others are drawn."""
START_RUNNING = 0.3
"""Share of episodes that start with the static plan running."""
COMPONENTS = ("efficiency", "utilisation", "cost")
CONSTRAINTS = ("weak_link", "imbalance", "interruption")
MOST_UNEVEN = 3.5
"""Compute imbalance is cut off there: one stage with all the work of many would drown the reward."""


@dataclass(frozen=True, eq=False)
class Step:
    """What one period brought to E twins."""

    reward: Float  # (E,)
    components: Float  # (E, 3) in the order of COMPONENTS
    limited: Float  # (E, 3) what the soft constraints limit, in the order of CONSTRAINTS
    truncated: Bool  # (E,)
    iterations: Float  # (E,)
    after: Situation  # before any reset


class Twins:
    """E twins of one cluster over the same decisions; `base` is the static plan (one plan). A twin whose
    weights are speed alone lives in the relayed film, another one in that of the links themselves.

    Without `hold` every decision names a plan; naming the running one changes nothing.
    """

    def __init__(
        self,
        features: Features,
        films: Films,
        base: Codes,
        *,
        rollout: RolloutConfig,
        penalties: PenaltyConfig,
        period_s: float,
        restart_s: float,
        weights: tuple[float, float, float],
        hold: bool = True,
    ):
        self.features, self.base = features, base
        self.footage = footage = joined([films.relayed, films.direct])
        self._decisions = len(films.direct)
        self.problem, self.timer = features.problem, features.timer
        self.rollout, self.penalties = rollout, penalties
        self.period_s, self.restart_s, self.weights, self.hold = period_s, restart_s, weights, hold
        self.size = rollout.environments
        self._nominal = np.ones(self.problem.k)
        rows = self.timer.rows(base, self._nominal)
        pace = self.timer.iter_ns(
            rows,
            footage.true_bps.reshape(1, -1, *footage.true_bps.shape[2:]),
            footage.true_latency_s.reshape(1, -1, *footage.true_bps.shape[2:]),
        )
        self.base_iterations = rate(pace).reshape(len(footage), -1).mean(1) * period_s
        self.base_usd = float(self.problem.usd(base)[0])

    def reset(self, rng: np.random.Generator, where: Bool | None = None) -> Situation:
        """Start the twins `where` (default all) at random times; the rest goes on."""
        if where is None:
            self.at, self.age = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
            self.plan = self.base.take(np.zeros(self.size, np.int64))
            self.has_plan = np.zeros(self.size, np.bool_)
            self.pause_s, self.since_s = np.zeros(self.size), np.zeros(self.size)
            self.owed_usd = np.zeros(self.size)
            self.w = np.tile(np.array(self.weights), (self.size, 1))
            where = np.ones(self.size, np.bool_)
        n = int(where.sum())
        first = rng.integers(0, self._decisions, n)
        # Not so late in a segment that the episode would be a stump, where the segment allows.
        length = min(self.rollout.episode_steps, self._decisions // 2)
        end = self.footage.segment_end[first]
        self.at[where] = np.maximum(np.minimum(first, end - length), 0)
        self.age[where], self.pause_s[where], self.owed_usd[where] = 0, 0.0, 0.0
        running = rng.random(n) < START_RUNNING
        self.has_plan[where] = running
        self.since_s[where] = np.where(running, rng.exponential(3600.0, n), 0.0)
        for array in ("knob", "count", "domain", "layers", "choice"):
            getattr(self.plan, array)[where] = getattr(self.base, array)[0]
        if self.rollout.weights is None:
            drawn = rng.dirichlet(self.rollout.dirichlet, n)
            self.w[where] = np.where(rng.random((n, 1)) < OWN_WEIGHTS, self.weights, drawn)
        else:
            self.w[where] = self.rollout.weights
        links_alone = ~np.array([speed_alone(tuple(w)) for w in self.w[where].tolist()])
        self.at[where] += links_alone * self._decisions
        return self.situation()

    def situation(self) -> Situation:
        """What every twin's controller knows now; a twin that has left its segment, whose episode is over,
        looks at the segment's last forecast: what follows in the footage is another weather.
        """
        film, played = self.footage, self.age > 0
        at = np.minimum(self.at, film.segment_end[self.at - played] - 1)
        trigger = np.where(self.has_plan, TRIGGERS.index("period"), TRIGGERS.index("start"))
        return Situation(
            film.horizons_s,
            film.bandwidth_bps[at],
            film.sd_log[at],
            film.latency_s[at],
            np.ones((self.size, self.problem.k)),
            self.since_s.copy(),
            trigger,
            self.w.copy(),
            self.plan.take(np.arange(self.size)),
            self.has_plan.copy(),
            self.has_plan & self.hold,
        )

    def step(self, codes: Codes, move: Bool) -> Step:
        """Hold or go over to `codes`, then let one period pass."""
        film, at = self.footage, self.at
        self.owed_usd += self._go_over(codes, move | ~self.has_plan)
        paused = np.minimum(self.pause_s, self.period_s)
        self.pause_s -= paused
        rows = self.timer.rows(self.plan, self._nominal)
        pace = rate(self.timer.iter_ns(rows, film.true_bps[at], film.true_latency_s[at]))
        samples = pace.shape[1]
        edges = np.arange(samples + 1) / samples * self.period_s
        work = np.clip(edges[1:] - np.maximum(edges[:-1], paused[:, None]), 0.0, None)
        iterations = (pace * work).sum(1)
        components = self._components(rows, iterations, self.base_iterations[at])
        limited = self._limited(rows.lines, paused, film.true_bps[at, 0])
        self.at, self.age, self.since_s = at + 1, self.age + 1, self.since_s + self.period_s
        truncated = (self.age >= self.rollout.episode_steps) | (self.at >= film.segment_end[at])
        signs = np.array([1.0, 1.0, -1.0])
        reward = (self.w * signs * components).sum(1)
        return Step(reward, components, limited, truncated, iterations, self.situation())

    def _go_over(self, codes: Codes, move: Bool) -> Float:
        """Change plans where `move`; returns the egress of moving, USD (E,)."""
        film, at = self.footage, self.at
        usd = np.zeros(self.size)
        asked = np.flatnonzero(move & self.has_plan)
        seconds, moved_usd = self.timer.moves(
            self.plan.take(asked),
            codes.take(asked),
            film.true_bps[at[asked], 0],
            film.true_latency_s[at[asked], 0],
        )
        # A dead link on the way: the move waits until it is back; a period is the least that takes.
        seconds = np.where(np.isfinite(seconds), seconds, 10 * self.period_s)
        real = asked[seconds >= 0]
        self.pause_s[real] += seconds[seconds >= 0] + self.restart_s
        usd[real] = moved_usd[seconds >= 0]
        changed = np.concatenate([real, np.flatnonzero(move & ~self.has_plan)])
        for array in ("knob", "count", "domain", "layers", "choice"):
            getattr(self.plan, array)[changed] = getattr(codes, array)[changed]
        self.since_s[changed] = 0.0
        self.has_plan |= move
        return usd

    def _components(self, rows: Rows, iterations: Float, base: Float) -> Float:
        """Components of the reward (E, 3); iterations pay what was owed for moving."""
        ran = iterations > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            slower = np.where(ran, base / iterations, np.where(base > 0, np.inf, 1.0))
            usd = self.problem.usd(self.plan) + np.where(ran, self.owed_usd / iterations, 0.0)
        self.owed_usd[ran] = 0.0
        efficiency = np.clip(1 - slower, LOWEST_EFFICIENCY, 1.0)
        utilisation = rows.busy_s * iterations / self.period_s
        cost = np.clip(usd / self.base_usd if self.base_usd > 0 else usd, 0.0, HIGHEST_COST)
        return np.stack([efficiency, utilisation, cost], axis=1)

    def _limited(self, lines: Lines, paused: Float, bandwidth_bps: Float) -> Float:
        """Share of boundaries over weak links, compute imbalance (the busiest stage less the idlest, over
        the mean), share of the period paused (E, 3)."""
        e = np.arange(self.size)[:, None]
        wide = lines.source >= 0
        if lines.source.shape[1]:
            both = np.minimum(
                bandwidth_bps[e, lines.source, lines.target], bandwidth_bps[e, lines.target, lines.source]
            )
            weak = (wide & (both < self.penalties.weak_link_bps)).sum(1) / np.maximum(wide.sum(1), 1)
        else:
            weak = np.zeros(self.size)
        live = np.arange(lines.forward.shape[1]) < lines.stages[:, None]
        work = (lines.forward + lines.backward).astype(np.float64)
        mean = np.where(live, work, 0.0).sum(1) / lines.stages
        spread = np.where(live, work, 0.0).max(1) - np.where(live, work, np.inf).min(1)
        imbalance = np.minimum(spread / mean, MOST_UNEVEN)
        return np.stack([weak, imbalance, paused / self.period_s], axis=1)
