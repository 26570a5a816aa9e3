"""Observations of the networks, from one view or from many twins.

Quantities are relative to the job (a link's bandwidth to the traffic of an iteration, a share to the model),
so that numbers mean the same on every cluster. Columns: `policy.hippo.tables.observation`.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE, GBPS, NS_PER_S
from policy.hippo.tables.batch_timing import Timer
from policy.hippo.tables.history_features import HistoryFeatures
from policy.hippo.tables.observation import CHOICE, Observation
from policy.hippo.tables.planning_tables import Codes, PlanningTables
from twin.core.link_history import LinkHistory
from twin.core.view import View
from twin.pipeline.kernel import DEAD

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Int = NDArray[np.int64]

HORIZONS_S = (60.0, 300.0, 1800.0)
TRIGGERS = ("start", "period", "change", "alarm", "failure", "repair")
DEAD_BPS = 1e3


@dataclass(frozen=True, eq=False)
class Situation:
    """Inputs of B decisions on one cluster; forecasts have H horizons, the first is now."""

    horizons_s: Float  # (H,)
    bandwidth_bps: Float  # (B, H, K, K)
    sd_log: Float  # (B, H, K, K)
    latency_s: Float  # (B, K, K)
    slowdown: Float  # (B, K)
    since_move_s: Float  # (B,)
    trigger: NDArray[np.int64]  # (B,)
    weights: Float  # (B, 3)
    plan: Codes  # (B,) running plan; ignored without `has_plan`
    has_plan: Bool  # (B,)
    may_hold: Bool  # (B,)
    hour: Int  # (B,) of the day, UTC; read only where the past is known

    def take(self, index: NDArray[np.int64]) -> "Situation":
        """Returns the decisions `index`."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("horizons_s", "plan")}
        return replace(self, plan=self.plan.take(index), **{name: a[index] for name, a in arrays.items()})


def situation(
    features: "Features", view: View, weights: tuple[float, float, float], may_hold: bool
) -> Situation:
    """Returns a view as a situation; a running plan that the tables do not offer counts as none."""
    problem = features.problem
    plan = problem.encode(view.plan) if view.plan is not None else None
    nothing = np.zeros((1, problem.k), np.int64)
    there = np.full_like(nothing, np.argmax(np.array(problem.free) > 0))  # a plan needs GPUs
    empty = Codes(np.zeros(1, np.int64), np.ones(1, np.int64), there, nothing, nothing)
    forecast = view.forecast
    return Situation(
        forecast.horizons_s,
        forecast.bandwidth_bps[None],
        forecast.sd_log[None],
        forecast.latency_s[None],
        np.asarray(view.slowdown, dtype=np.float64)[None],
        np.array([view.since_move_s]),
        np.array([TRIGGERS.index(view.trigger)]),
        np.array([weights]),
        plan if plan is not None else empty,
        np.array([plan is not None]),
        np.array([may_hold]),
        np.array([features.hour(view.now_ns)]),
    )


class Features:
    """Observations of one cluster and job; without `history` its columns are 0."""

    def __init__(
        self,
        problem: PlanningTables,
        restart_s: float,
        period_s: float,
        history: LinkHistory | None = None,
    ):
        self._history, self._past = history, HistoryFeatures(problem.estimator, history)
        self.problem, self.timer, self.restart_s = problem, Timer(problem), restart_s
        job, cluster = problem.estimator.job, problem.estimator.cluster
        size = job.model.seq * job.model.hidden * job.model.bytes_per_element
        self._traffic_bits = float(job.global_batch * size * BITS_PER_BYTE)
        self._alone_s, pace, room = self._static()
        self._pace, self._room = pace, room
        free = np.array(problem.free, dtype=np.float64)
        self._node = np.stack(
            [
                np.log2(np.maximum(free, 1)) / 6,
                free / free.sum(),
                room,
                pace,
                np.log2([d.gpus_per_node for d in cluster.domains]) / 4,
                np.log1p([d.usd_per_gpu_hour for d in cluster.domains]) / 3,
            ],
            axis=1,
        )
        self._price = np.array(cluster.usd_per_gb) * 5
        self._knobs = self._knob_table()
        self._diagonal = np.eye(problem.k, dtype=np.bool_)
        self._fixed = [restart_s / period_s, np.log2(problem.k) / 6, np.log2(problem.n) / 7]

    def hour(self, now_ns: int) -> int:
        """Returns the hour of the day, UTC, at a time of the run; 0 where the past is unknown."""
        return 0 if self._history is None else self._history.hour(now_ns)

    def _static(self) -> tuple[float, Float, Float]:
        """Returns seconds of an iteration on the mean domain alone (memory aside), seconds per layer relative
        to it, and the share of the layers that fits into each domain as the last one; (K,)."""
        problem, t = self.problem, self.problem.tables
        best, room = np.full(problem.k, np.inf), np.zeros(problem.k)
        limit = problem.masks.limit
        for k in range(problem.k):
            y, z = problem.kind_of[k], problem.class_of[k]
            for c in np.flatnonzero(problem.knob_mask):
                for q in range(len(problem.choices[c][z])):
                    work = (t.forward[c, y, q, -1] + t.backward[c, y, q, -1]) / t.pp[c, z, q]
                    best[k] = min(best[k], work * t.micro_batches[c])
                    room[k] = max(room[k], limit[c, z, q, problem.n, 0] / problem.n)
        mean = float(best[np.isfinite(best)].mean())
        return mean, np.where(np.isfinite(best), best / mean, 10.0), room

    def _knob_table(self) -> Float:
        """Features of every knob, (C, KNOB), without "current"."""
        problem, t = self.problem, self.problem.tables
        rows = []
        for c, knob in enumerate(problem.knobs):
            work, use = [], []
            for k in range(problem.k):
                y, z = problem.kind_of[k], problem.class_of[k]
                inner = problem.choices[c][z]
                seconds = [
                    (t.forward[c, y, q, -1] + t.backward[c, y, q, -1]) / pp * (t.micro_batches[c] + pp - 1)
                    for q, (_, pp) in enumerate(inner)
                ]
                if seconds:
                    work.append(min(seconds))
                    use.append(max(knob.dp * tp * pp for tp, pp in inner) / problem.free[k])
            n = len(work)
            # Balanced over n equal domains: m + n - 1 slots of a domain's share each.
            full = float(np.mean(work)) / n * (knob.micro_batches + n - 1) / knob.micro_batches
            alone = float(np.mean(work))
            rows.append(
                [
                    np.log2(knob.dp) / 5,
                    np.log2(knob.micro_batch) / 3,
                    np.log2(knob.micro_batches) / 9,
                    0.0,
                    float(np.mean(use)),
                    n / problem.k,
                    full,
                    alone,
                ]
            )
        table = np.array(rows)
        table[:, 6:] = np.log(table[:, 6:] / table[:, 6:].min(axis=0))
        return table

    def observe(self, s: Situation) -> Observation:
        """Returns the networks' input for B situations."""
        problem, batch = self.problem, len(s.has_plan)
        plan_now, plan_late, busy = self._plan_seconds(s)
        used, begin, end, position, current = self._shares(s)
        share = np.where(begin >= 0, (end - begin) / problem.n, 0.0)
        utilisation = np.where(begin >= 0, (busy / plan_now)[:, None], 0.0)
        room = np.clip(share / np.maximum(self._room, 1e-3), 0, 2)
        pace = self._pace * s.slowdown
        nodes = np.concatenate(
            [
                np.stack([utilisation, room, share, position, s.slowdown - 1], axis=-1),
                np.broadcast_to(self._node, (batch, *self._node.shape)),
            ],
            axis=-1,
        )
        knobs = np.repeat(self._knobs[None], batch, axis=0)
        current_knob = np.where(s.has_plan, s.plan.knob, -1)
        knobs[s.has_plan, s.plan.knob[s.has_plan], 3] = 1.0
        return Observation(
            nodes=_tensor(nodes),
            edges=_tensor(self._edges(s, used)),
            globals=_tensor(self._globals(s, plan_now, plan_late)),
            knobs=_tensor(knobs),
            knob_mask=torch.from_numpy(problem.knob_mask).expand(batch, -1),
            may_hold=torch.from_numpy(s.may_hold),
            begin=torch.from_numpy(begin),
            end=torch.from_numpy(end),
            pace=_tensor(pace),
            current=torch.from_numpy(current),
            current_knob=torch.from_numpy(current_knob),
        )

    def _plan_seconds(self, s: Situation) -> tuple[Float, Float, Float]:
        """Iteration seconds of the running plans now and under the last forecast, and compute seconds;
        (B,)."""
        rows = self.timer.rows(s.plan, s.slowdown)
        ends = [0, s.bandwidth_bps.shape[1] - 1]
        latency = np.repeat(s.latency_s[:, None], 2, axis=1)
        ns = self.timer.iter_ns(rows, s.bandwidth_bps[:, ends], latency)
        seconds = np.where(ns == DEAD, 100 * self._alone_s, ns / NS_PER_S)
        seconds[~s.has_plan] = self._alone_s
        return seconds[:, 0], seconds[:, 1], rows.busy_s

    def _shares(
        self, s: Situation
    ) -> tuple[Float, NDArray[np.int64], NDArray[np.int64], Float, NDArray[np.int64]]:
        """Links used (B, K, K); per domain first layer, one past the last, position, inner configuration (B,
        K).
        """
        batch, k = s.plan.domain.shape
        used = np.zeros((batch, k, k))
        begin, end, current = (np.full((batch, k), -1, np.int64) for _ in range(3))
        position = np.zeros((batch, k))
        edges = np.concatenate([np.zeros((batch, 1), np.int64), np.cumsum(s.plan.layers, axis=1)], axis=1)
        live = (np.arange(k) < s.plan.count[:, None]) & s.has_plan[:, None]
        b, i = np.nonzero(live)
        d = s.plan.domain[b, i]
        begin[b, d], end[b, d], current[b, d] = edges[b, i], edges[b, i + 1], s.plan.choice[b, i]
        position[b, d] = (i + 1) / s.plan.count[b]
        b, i = np.nonzero(live[:, 1:])
        used[b, s.plan.domain[b, i], s.plan.domain[b, i + 1]] = 1.0
        return used, begin, end, position, current

    def _edges(self, s: Situation, used: Float) -> Float:
        now = np.maximum(s.bandwidth_bps[:, 0], DEAD_BPS)
        later = [np.maximum(s.bandwidth_bps[:, _nearest(s.horizons_s, h)], DEAD_BPS) for h in HORIZONS_S]
        with np.errstate(invalid="ignore", divide="ignore"):  # the diagonal is infinite, and cleared below
            load = np.log(self._traffic_bits / now / self._alone_s)
            shifts = [np.clip(np.log(f / now), -3, 3) for f in later]
        columns = [
            np.log(now / GBPS) / 3,
            (s.bandwidth_bps[:, 0] <= 0).astype(np.float64),
            s.latency_s * 5,
            np.broadcast_to(self._price, now.shape),
            *shifts,
            s.sd_log[:, 0],
            s.sd_log[:, -1],
            used,
            np.clip(load / 2, -3, 5),
            *self._past.columns(now, s.hour, (s.weights[:, 1:] == 0.0).all(axis=1)),
        ]
        edges = np.stack(columns, axis=-1)
        edges[:, self._diagonal] = 0.0
        return edges

    def _globals(self, s: Situation, now: Float, late: Float) -> Float:
        batch, has = len(s.has_plan), s.has_plan
        speed = np.log(np.maximum(s.bandwidth_bps[:, 0][:, ~self._diagonal], DEAD_BPS)).mean(1)
        load = np.log(self._traffic_bits / self._alone_s) - speed
        trigger = np.eye(len(TRIGGERS))[s.trigger]
        since = np.log1p(np.minimum(s.since_move_s, 1e5)) / 8
        columns = [
            has.astype(np.float64),
            np.where(has, since, 0.0),
            np.where(has, np.clip(np.log(now / self._alone_s), -3, 5), 0.0),
            np.where(has, np.clip(np.log(late / now), -3, 3), 0.0),
            *(np.full(batch, value) for value in self._fixed),
            load,
        ]
        return np.concatenate([np.stack(columns, axis=-1), s.weights, trigger], axis=-1)


def choice_features(
    fixed: NDArray[np.float32], pp: Int, layers: Int, behind: Int, current: Int, n_layers: int
) -> NDArray[np.float32]:
    """Returns the features (R, Q, CHOICE) of every inner configuration of R shares.

    `fixed` (R, Q, CHOICE - 4) are the constant ones, `pp` is (R, Q), the others are (R,).
    """
    out = np.empty((*pp.shape, CHOICE), dtype=np.float32)
    out[:, :, :-4] = fixed
    out[:, :, -4] = (layers / n_layers)[:, None]
    out[:, :, -3] = layers[:, None] / np.maximum(pp, 1) / n_layers
    out[:, :, -2] = (behind / 8)[:, None]
    out[:, :, -1] = np.arange(pp.shape[1]) == current[:, None]
    return out


def _nearest(horizons_s: Float, wanted: float) -> int:
    return int(np.argmin(np.abs(horizons_s - wanted)))


def _tensor(values: Float) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
