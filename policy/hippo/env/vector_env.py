"""E kernel-engine twins of one cluster as arrays: the environment in which Hi-PPO is trained.

STATE    what is known at a periodic trigger: Kalman forecasts (past only), the running plan, time since the
last
         move, objective weights (`policy.hippo.tables.features`); an episode starts at a random time of the
         trace, mostly with nothing placed, sometimes with the static plan running.
ACTION   hold, or a legal plan: knob, order, cuts, inner configurations
(`policy.hippo.decoding.action_encoding`). REWARD   per period, w1 R_eff + w2 R_util - w3 R_cost: R_eff =
(T_base - T) / T_base with T_base of the static
         plan on the same links, R_util the mean utilisation of the active domains, R_cost egress per
         iteration relative to the base's. A move lengthens T, and its egress is charged in the next period
         with iterations. R_eff is at least -2, R_cost at most 3. Values of the soft constraints are returned
         beside.

Approximations against `twin.world.world.World` with the kernel engine: links are sampled J times a period;
iterations are a rate, none is lost or waited for at a move; a move has the links' state at its beginning;
triggers are periodic; no GPU fails; computing is at nominal speed; the warm-up is not deepened. Where speed
alone counts, messages take the best relays at every sample, sharing links among themselves
(`policy.hippo.tables.batch_timing.Timer.best_relay_ns`); the layers of a move each take their link or a relay
at half its width, whatever else moves. The filter is initialised at the start of an episode.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.control.relay_links import UNLIMITED_BITS, RelayPaths
from policy.hippo.env.practice_trace import PracticeTracePair
from policy.hippo.networks.hippo_config import PenaltyConfig, RolloutConfig
from policy.hippo.tables.batch_timing import PipelineBatch, rate
from policy.hippo.tables.best_relay_batch import traffic_bytes
from policy.hippo.tables.features import TRIGGERS, Features, Situation
from policy.hippo.tables.planning_tables import Codes
from twin.estimation.link_state_times import States

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Int = NDArray[np.int64]

LOWEST_EFFICIENCY = -2.0
HIGHEST_COST = 3.0
OWN_WEIGHTS = 0.5
"""Share of episodes under the scenario's own weights, where weights are drawn."""
START_RUNNING = 0.3
"""Share of episodes that start with the static plan running."""
FORECAST = ("bandwidth_bps", "sd_log", "latency_s")
"""Fields of a `PracticeTrace` that a `Situation` shows."""
PERIODS_AT_ONCE = 256
"""Periods in which the static plan is timed at once, to bound memory."""
COMPONENTS = ("efficiency", "utilisation", "cost")
CONSTRAINTS = ("weak_link", "imbalance", "interruption")
MOST_UNEVEN = 3.5
"""Upper bound of compute imbalance, so that it does not dominate the reward."""


@dataclass(frozen=True, eq=False)
class StepResult:
    """Results of one period in E twins."""

    reward: Float  # (E,)
    components: Float  # (E, 3) in the order of COMPONENTS
    limited: Float  # (E, 3) values of the soft constraints, in the order of CONSTRAINTS
    truncated: Bool  # (E,)
    iterations: Float  # (E,)
    after: Situation  # before any reset


class BatchedTwins:
    """E twins of one cluster over the same decisions; `base` is the static plan (one plan). A twin whose
    weights are speed alone uses relays and their forecasts, others direct links.

    Without `hold` every action is a plan; choosing the running one changes nothing.
    """

    def __init__(
        self,
        features: Features,
        traces: PracticeTracePair,
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
        self.trace, self._relayed_trace = traces.direct, traces.relayed
        self.problem, self.timer = features.problem, features.timer
        self.rollout, self.penalties = rollout, penalties
        self.period_s, self.restart_s, self.weights, self.hold = period_s, restart_s, weights, hold
        self.size = rollout.environments
        self._nominal = np.ones(self.problem.k)
        self._transfers = RelayPaths(self.problem.estimator.cluster, UNLIMITED_BITS)
        self.base_iterations = np.stack([self._base_iterations(relayed) for relayed in (False, True)])
        self.base_usd = float(self.problem.usd(base)[0])

    def _base_iterations(self, relayed: bool) -> Float:
        """Returns the iterations of the static plan in each period (D,)."""
        rows, trace, found = self.timer.rows(self.base, self._nominal), self.trace, []
        for at in np.array_split(np.arange(len(trace)), -(-len(trace) // PERIODS_AT_ONCE)):
            links = [x[at].reshape(1, -1, *x.shape[2:]) for x in (trace.true_bps, trace.true_latency_s)]
            ns = self.timer.best_relay_ns(rows, *links)[0] if relayed else self.timer.iter_ns(rows, *links)
            found.append(rate(ns).reshape(len(at), -1).mean(axis=1))
        return np.concatenate(found) * self.period_s

    @property
    def relayed(self) -> Bool:
        """True for the twins whose weights are speed alone (E,), as `policy.core.objective.speed_alone`."""
        alone: Bool = (self.twin_weights[:, 1:] == 0.0).all(axis=1)
        return alone

    def reset(self, rng: np.random.Generator, where: Bool | None = None) -> Situation:
        """Starts the twins `where` (default all) at random times."""
        if where is None:
            self.begin(np.zeros(self.size, np.int64), self.weights)
            where = np.ones(self.size, np.bool_)
        n = int(where.sum())
        first = rng.integers(0, len(self.trace), n)
        # Early enough for a whole episode, where the segment allows.
        length = min(self.rollout.episode_steps, len(self.trace) // 2)
        end = self.trace.segment_end[first]
        self.decision[where] = np.maximum(np.minimum(first, end - length), 0)
        self.age[where], self.pause_s[where], self.owed_usd[where] = 0, 0.0, 0.0
        running = rng.random(n) < START_RUNNING
        self.has_plan[where] = running
        self.since_s[where] = np.where(running, rng.exponential(3600.0, n), 0.0)
        for array in ("knob", "count", "domain", "layers", "choice"):
            getattr(self.plan, array)[where] = getattr(self.base, array)[0]
        if self.rollout.weights is None:
            drawn = rng.dirichlet(self.rollout.dirichlet, n)
            self.twin_weights[where] = np.where(rng.random((n, 1)) < OWN_WEIGHTS, self.weights, drawn)
        else:
            self.twin_weights[where] = self.rollout.weights
        return self.situation()

    def begin(self, decisions: Int, weights: tuple[float, float, float]) -> Situation:
        """Starts one twin at each of these decisions, with nothing placed, all under the same weights."""
        self.size = len(decisions)
        self.decision, self.age = decisions.copy(), np.zeros(self.size, np.int64)
        self.plan = self.base.take(np.zeros(self.size, np.int64))
        self.has_plan = np.zeros(self.size, np.bool_)
        self.pause_s, self.since_s = np.zeros(self.size), np.zeros(self.size)
        self.owed_usd = np.zeros(self.size)
        self.twin_weights = np.tile(np.array(weights), (self.size, 1))
        return self.situation()

    def situation(self) -> Situation:
        """Returns what is known in every twin now; past the end of a segment, the segment's last forecast:
        the next segment has other conditions.
        """
        trace, started = self.trace, self.age > 0
        decision = np.minimum(self.decision, trace.segment_end[self.decision - started] - 1)
        trigger = np.where(self.has_plan, TRIGGERS.index("period"), TRIGGERS.index("start"))
        relayed = self.relayed
        forecast = {name: getattr(trace, name)[decision] for name in FORECAST}
        for name, values in forecast.items():
            values[relayed] = getattr(self._relayed_trace, name)[decision[relayed]]
        return Situation(
            trace.horizons_s,
            forecast["bandwidth_bps"],
            forecast["sd_log"],
            forecast["latency_s"],
            np.ones((self.size, self.problem.k)),
            self.since_s.copy(),
            trigger,
            self.twin_weights.copy(),
            self.plan.take(np.arange(self.size)),
            self.has_plan.copy(),
            self.has_plan & self.hold,
            trace.hour[decision],
        )

    def step(self, codes: Codes, move: Bool) -> StepResult:
        """Moves to `codes` where `move`, then simulates one period."""
        trace, decision = self.trace, self.decision
        self.owed_usd += self.migrate(codes, move | ~self.has_plan)
        paused = np.minimum(self.pause_s, self.period_s)
        self.pause_s -= paused
        rows = self.timer.rows(self.plan, self._nominal)
        relayed = self.relayed
        pace, found_bps = self._pace(rows, relayed)
        samples = pace.shape[1]
        edges = np.arange(samples + 1) / samples * self.period_s
        work = np.clip(edges[1:] - np.maximum(edges[:-1], paused[:, None]), 0.0, None)
        iterations = (pace * work).sum(1)
        base = self.base_iterations[relayed.astype(np.int64), decision]
        components = self._components(rows, iterations, base)
        limited = self._limited(rows, paused, found_bps)
        self.decision, self.age, self.since_s = decision + 1, self.age + 1, self.since_s + self.period_s
        truncated = (self.age >= self.rollout.episode_steps) | (self.decision >= trace.segment_end[decision])
        signs = np.array([1.0, 1.0, -1.0])
        reward = (self.twin_weights * signs * components).sum(1)
        return StepResult(reward, components, limited, truncated, iterations, self.situation())

    def _pace(self, rows: PipelineBatch, relayed: Bool) -> tuple[Float, Float]:
        """Returns iterations per second at the samples of the period (E, J), and the bandwidth that messages
        find (E, J, K, K)."""
        links = self.trace.true_bps[self.decision], self.trace.true_latency_s[self.decision]
        ns, found_bps = np.empty(links[0].shape[:2], np.int64), links[0]
        some = np.flatnonzero(~relayed)
        ns[some] = self.timer.iter_ns(rows.take(some), *(x[some] for x in links))
        some = np.flatnonzero(relayed)
        ns[some], found_bps[some] = self.timer.best_relay_ns(rows.take(some), *(x[some] for x in links))
        return rate(ns), found_bps

    def migrate(self, codes: Codes, move: Bool) -> Float:
        """Changes plans where `move`, and adds the pauses; returns the egress of the migrations, USD (E,)."""
        trace, decision = self.trace, self.decision
        usd = np.zeros(self.size)
        moving = np.flatnonzero(move & self.has_plan)
        links = States(trace.true_bps[decision[moving], 0], trace.true_latency_s[decision[moving], 0])
        relayed, (over_relays, _) = self.relayed[moving], self._transfers.best_routes(links)
        bandwidth = np.where(relayed[:, None, None], over_relays.bandwidth_bps, links.bandwidth_bps)
        latency = np.where(relayed[:, None, None], over_relays.latency_s, links.latency_s)
        seconds, moved_usd = self.timer.moves(self.plan.take(moving), codes.take(moving), bandwidth, latency)
        # Over a dead link a move takes ten periods, in place of the time until it is back.
        seconds = np.where(np.isfinite(seconds), seconds, 10 * self.period_s)
        real = moving[seconds >= 0]
        self.pause_s[real] += seconds[seconds >= 0] + self.restart_s
        usd[real] = moved_usd[seconds >= 0]
        changed = np.concatenate([real, np.flatnonzero(move & ~self.has_plan)])
        for array in ("knob", "count", "domain", "layers", "choice"):
            getattr(self.plan, array)[changed] = getattr(codes, array)[changed]
        self.since_s[changed] = 0.0
        self.has_plan |= move
        return usd

    def _components(self, rows: PipelineBatch, iterations: Float, base: Float) -> Float:
        """Components of the reward (E, 3); charges the egress of moves where iterations ran."""
        ran = iterations > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            slower = np.where(ran, base / iterations, np.where(base > 0, np.inf, 1.0))
            usd = self.problem.usd(self.plan) + np.where(ran, self.owed_usd / iterations, 0.0)
        self.owed_usd[ran] = 0.0
        efficiency = np.clip(1 - slower, LOWEST_EFFICIENCY, 1.0)
        utilisation = rows.busy_s * iterations / self.period_s
        cost = np.clip(usd / self.base_usd if self.base_usd > 0 else usd, 0.0, HIGHEST_COST)
        return np.stack([efficiency, utilisation, cost], axis=1)

    def _limited(self, rows: PipelineBatch, paused: Float, found_bps: Float) -> Float:
        """Share of the traffic between domains that finds less than `weak_link_bps`, compute imbalance (the
        busiest stage less the idlest, over the mean), share of the period paused (E, 3)."""
        lines, sent = rows.lines, traffic_bytes(rows.lines, self.problem.k)
        over_weak = (found_bps < self.penalties.weak_link_bps).mean(axis=1) * sent
        weak = over_weak.sum(axis=(1, 2)) / np.maximum(sent.sum(axis=(1, 2)), 1.0)
        live = np.arange(lines.forward.shape[1]) < lines.stages[:, None]
        work = (lines.forward + lines.backward).astype(np.float64)
        mean = np.where(live, work, 0.0).sum(1) / lines.stages
        spread = np.where(live, work, 0.0).max(1) - np.where(live, work, np.inf).min(1)
        imbalance = np.minimum(spread / mean, MOST_UNEVEN)
        return np.stack([weak, imbalance, paused / self.period_s], axis=1)
