"""Tables of one cluster, job and set of GPUs alive: the choices and their costs.

Costs are those of the Estimator's stage model, so `policy.hippo.tables.batch_timing` gives the Estimator's
times (tested). Index names: c knob, y kind of domain, z class of domains, q inner configuration, j stage
inside a share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.errors import InfeasibleError, UsageError
from ingest.core.units import GB
from policy.hippo.tables.masks import Masks, Space, merge_classes
from policy.hippo.tables.observation import CHOICE
from policy.hippo.tables.option_costs import Knob, OptionCosts
from twin.core import placement
from twin.core.plan import Plan
from twin.costs.boundary_terms import wide_area_bytes
from twin.costs.tied_embeddings import STEPS
from twin.estimation.estimator import Estimator

Int = NDArray[np.int64]
Float = NDArray[np.float64]

LEAST_USE = 0.5
"""Inner configurations that use less than this share of a domain's GPUs are not offered."""


class PlanArrays(NamedTuple):
    """P plans as arrays for compiled code, shares in pipeline order; see `Codes`."""

    knob: Int  # (P,)
    shares: Int  # (P,) number of shares
    domain: Int  # (P, K), -1 pads
    layers: Int  # (P, K), 0 pads
    choice: Int  # (P, K) inner configuration, 0 pads


@dataclass(frozen=True, eq=False)
class Codes:
    """P plans as integers, shares in pipeline order; -1 and 0 pad up to K shares."""

    knob: Int  # (P,)
    count: Int  # (P,) number of shares
    domain: Int  # (P, K)
    layers: Int  # (P, K)
    choice: Int  # (P, K)

    def __len__(self) -> int:
        return len(self.knob)

    @property
    def arrays(self) -> PlanArrays:
        """The plans as arrays for compiled code."""
        return PlanArrays(self.knob, self.count, self.domain, self.layers, self.choice)

    def take(self, index: Int | Sequence[int]) -> "Codes":
        """Returns the plans `index`."""
        at = np.asarray(index, dtype=np.int64)
        return Codes(self.knob[at], self.count[at], self.domain[at], self.layers[at], self.choice[at])

    def key(self, row: int) -> tuple[int, ...]:
        """Returns a hashable identity of one plan."""
        n = int(self.count[row])
        return (
            int(self.knob[row]),
            *self.domain[row, :n].tolist(),
            *self.layers[row, :n].tolist(),
            *self.choice[row, :n].tolist(),
        )


def concatenate(parts: Sequence[Codes]) -> Codes:
    """Concatenates plans."""
    return Codes(
        *(
            np.concatenate([getattr(p, n) for p in parts])
            for n in ("knob", "count", "domain", "layers", "choice")
        )
    )


class ShareShapes(NamedTuple):
    """Sizes of every inner configuration as arrays for compiled code; few, since each call copies its
    tuples."""

    class_of: Int  # (K,)
    tp: Int  # (C, Z, Q), 0: no such configuration
    pp: Int  # (C, Z, Q)


class CostTables(NamedTuple):
    """Costs of every choice as arrays for compiled code; index names as in this module's first lines."""

    kind_of: Int  # (K,)
    class_of: Int  # (K,)
    pp: Int  # (C, Z, Q)
    forward: Float  # (C, Y, Q, N + 1) seconds of the first 0..N layers
    backward: Float  # (C, Y, Q, N + 1)
    collective: Float  # (2, 2, C, Y, Q, J) seconds: the two of `collectives_s`, each fixed and per parameter
    update_per_parameter: Float  # (C, Y, Q, J) seconds
    inner_occupancy_ns: Int  # (C, Y, Q, J)
    inner_latency_ns: Int  # (C, Y, Q, J)
    parameters: Float  # (N + 1,) prefix sum of parameters per layer, one tensor rank's share is / tp
    tp: Int  # (C, Z, Q)
    micro_batches: Int  # (C,)
    message_bytes: Float  # (C,) one activation of all dp pipelines
    tied_bytes: Float  # (C,) a step of the exchange for a tied embedding between two domains
    tied_inside_ns: Int  # (C, Y, Q) the whole exchange inside a share


class PlanningTables:
    """Choices, masks and costs on one cluster; `free_gpus` are those alive per domain (default all).

    Raises:
        InfeasibleError: no plan fits. UsageError: a schedule other than 1f1b and gpipe, or a model with
            experts or adapters.
    """

    def __init__(self, estimator: Estimator, free_gpus: Sequence[int] | None = None):
        if estimator.job.schedule not in ("1f1b", "gpipe"):
            raise UsageError(
                f"hippo plans under schedule 1f1b or gpipe, not {estimator.job.schedule}: change job.schedule"
                " in the scenario, or take another policy, such as mpc"
            )
        if estimator.job.model.experts is not None:
            raise UsageError(
                f"hippo has no tables for the experts of {estimator.job.model.name}: take another policy, "
                "such as mpc"
            )
        if estimator.job.model.adapters is not None:
            raise UsageError("hippo has no tables for LoRA: take another policy, such as mpc")
        self.estimator, cluster = estimator, estimator.cluster
        self.free = tuple(free_gpus) if free_gpus is not None else tuple(d.gpus for d in cluster.domains)
        self.k, self.n = cluster.size, estimator.n_layers
        kinds = [
            (d.gpu.name, free, d.gpus_per_node, d.intra_node_bps, d.inter_node_bps)
            for d, free in zip(cluster.domains, self.free, strict=True)
        ]
        self._members = sorted(set(kinds))
        self.kind_of = np.array([self._members.index(kind) for kind in kinds], dtype=np.int64)
        groups = merge_classes(kinds)
        self.class_of = np.empty(self.k, dtype=np.int64)
        for z, group in enumerate(groups):
            self.class_of[group] = z
        self._example = [kinds.index(kind) for kind in self._members]
        self._inner: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.knobs = self._knobs(groups)
        if not self.knobs:
            raise InfeasibleError(
                "no dp, tp and pp suit the GPUs and the global batch; change global_batch or the GPUs"
            )
        self.choices = [[self._inner[c.dp, z] for z in range(len(groups))] for c in self.knobs]
        self.tables, space = self._tabulate(len(groups))
        self.shapes = ShareShapes(self.class_of, self.tables.tp, self.tables.pp)
        self.masks = Masks(space)
        self.knob_mask = self.masks.knobs()
        if not self.knob_mask.any():
            raise InfeasibleError(
                f"no plan fits {estimator.job.model.name} into {sum(self.free)} GPUs of {self.k} domains; "
                "add GPUs, take a smaller model or allow a smaller micro-batch"
            )
        self.choice_table = self._choice_table()
        self._usd_per_gb = np.array(cluster.usd_per_gb)

    @property
    def open_knobs(self) -> tuple[bool, ...]:
        """True where the model fits under each knob (C,)."""
        return tuple(bool(fits) for fits in self.knob_mask)

    # -- choices

    def _knobs(self, groups: Sequence[Sequence[int]]) -> list[Knob]:
        job, found = self.estimator.job, []
        for dp in range(1, max(self.free) + 1):
            for z, group in enumerate(groups):
                legal = [set(self._legal(k, dp)) for k in group]
                self._inner[dp, z] = sorted(set.intersection(*legal), reverse=True)
            if not any(self._inner[dp, z] for z in range(len(groups))):
                continue
            for size in sorted(job.micro_batches_allowed):
                m = job.micro_batches(dp, size)
                if m is not None:
                    found.append(Knob(dp, size, m))
        return found

    def _legal(self, k: int, dp: int) -> list[tuple[int, int]]:
        free = self.free[k]
        return [
            (tp, pp)
            for tp, pp in self.estimator.local_choices(k, dp)
            if LEAST_USE * free <= dp * tp * pp <= free
        ]

    def encode(self, plan: Plan) -> Codes | None:
        """Returns the plan as integers; None where it is not among the choices offered here."""
        knob = [c for c, k in enumerate(self.knobs) if (k.dp, k.micro_batch) == (plan.dp, plan.micro_batch)]
        other = plan.routes or plan.sync or plan.extra_warmup or plan.schedule != self.estimator.job.schedule
        if not knob or other:
            return None
        domain, layers, choice = (np.zeros((1, self.k), dtype=np.int64) for _ in range(3))
        domain[:] = -1
        for i, share in enumerate(plan.shares):
            inner = self.choices[knob[0]][self.class_of[share.domain]]
            packed = share.gpus == placement.packed(plan.dp, share.tp, share.pp)
            if (share.tp, share.pp) not in inner or not packed:
                return None
            domain[0, i], layers[0, i] = share.domain, share.layers
            choice[0, i] = inner.index((share.tp, share.pp))
        return Codes(np.array(knob[:1]), np.array([len(plan.shares)]), domain, layers, choice)

    def plan(self, codes: Codes, row: int) -> Plan:
        """Returns plan number `row`, packed by `Estimator.make`."""
        n, c = int(codes.count[row]), int(codes.knob[row])
        order = [int(k) for k in codes.domain[row, :n]]
        inner = [
            self.choices[c][self.class_of[k]][q] for k, q in zip(order, codes.choice[row, :n], strict=True)
        ]
        counts = [int(x) for x in codes.layers[row, :n]]
        knob = self.knobs[c]
        return self.estimator.make(order, counts, knob.dp, inner, knob.micro_batch, extra_warmup=0)

    # -- costs

    def _tabulate(self, classes: int) -> tuple[CostTables, Space]:
        c_, y_ = len(self.knobs), len(self._members)
        q_ = max(len(inner) for row in self.choices for inner in row)
        j_ = max(pp for row in self.choices for inner in row for _, pp in inner)
        pp, tp = np.zeros((c_, classes, q_), np.int64), np.zeros((c_, classes, q_), np.int64)
        seconds = np.zeros((2, c_, y_, q_, self.n + 1))
        collective, update = np.zeros((2, 2, c_, y_, q_, j_)), np.zeros((c_, y_, q_, j_))
        fabric, tied_inside = np.zeros((2, c_, y_, q_, j_), np.int64), np.zeros((c_, y_, q_), np.int64)
        most = max(k.micro_batches for k in self.knobs)
        gpipe = self.estimator.job.schedule == "gpipe"
        flights = most if gpipe else min(most, j_ * self.k)
        capacity = np.full((c_, classes, q_, flights, 2, 2), self.n, np.int64)
        costs = OptionCosts(self.estimator)
        for c, knob in enumerate(self.knobs):
            for y, k in enumerate(self._example):
                z = self.class_of[k]
                for q, (t, p) in enumerate(self.choices[c][z]):
                    tp[c, z, q], pp[c, z, q] = t, p
                    one = costs.all(k, t, p, knob, flights)
                    seconds[:, c, y, q], update[c, y, q, :p] = one.layer_seconds, one.update
                    collective[:, :, c, y, q, :p] = one.collectives
                    fabric[:, c, y, q, : p - 1], tied_inside[c, y, q] = one.fabric, one.tied
                    capacity[c, z, q] = np.minimum(capacity[c, z, q], one.capacity)
        parameters = np.array([float(layer.parameters) for layer in self.estimator.job.model.layers()])
        m = np.array([k.micro_batches for k in self.knobs], dtype=np.int64)
        sizes = [wide_area_bytes(self.estimator.job, k.dp, k.micro_batch, 2) for k in self.knobs]
        message_bytes, tied_bytes = np.array(sizes, np.float64).T.copy()
        prefix = np.concatenate([[0.0], np.cumsum(parameters)])
        tables = CostTables(
            self.kind_of,
            self.class_of,
            pp,
            seconds[0],
            seconds[1],
            collective,
            update,
            fabric[0],
            fabric[1],
            prefix,
            tp,
            m,
            message_bytes,
            tied_bytes,
            tied_inside,
        )
        return tables, Space(self.n, m, self.class_of, tp, pp, capacity, gpipe)

    # -- features

    def _choice_table(self) -> NDArray[np.float32]:
        """Constant features of every inner configuration, (C, Z, Q, CHOICE - 4)."""
        tables = self.tables
        out = np.zeros((*tables.pp.shape, CHOICE - 4), dtype=np.float32)
        for c, knob in enumerate(self.knobs):
            fastest = min(
                float(tables.forward[c, y, q, -1]) / tables.pp[c, self.class_of[k], q]
                for y, k in enumerate(self._example)
                for q in range(len(self.choices[c][self.class_of[k]]))
            )
            for z, inner in enumerate(self.choices[c]):
                k = int(np.flatnonzero(self.class_of == z)[0])
                for q, (tp, pp) in enumerate(inner):
                    used = knob.dp * tp * pp
                    pace = float(tables.forward[c, self.kind_of[k], q, -1]) / pp / fastest
                    out[c, z, q] = [
                        np.log2(tp) / 3,
                        np.log2(pp) / 3,
                        used / self.free[k],
                        np.log(pace),
                        pp / knob.micro_batches,
                    ]
        return out

    def usd(self, codes: Codes) -> Float:
        """Egress in USD of one iteration of each plan, (P,)."""
        usd = np.empty(len(codes))
        _usd(codes.arrays, self.tables, self._usd_per_gb, usd)
        return usd


@njit(cache=True, nogil=True)
def _usd(plans, tables, usd_per_gb, out):  # type: ignore[no-untyped-def]
    """Fills `out` (P,): USD of what domains send one another at boundaries and for a tied embedding."""
    domain = plans.domain
    for p in range(len(out)):
        c, n, price = plans.knob[p], plans.shares[p], 0.0
        for i in range(n - 1):
            a, b = domain[p, i], domain[p, i + 1]
            price += usd_per_gb[a, b] + usd_per_gb[b, a]
        total = price * (tables.message_bytes[c] * tables.micro_batches[c])
        if n > 1:
            a, b = domain[p, 0], domain[p, n - 1]
            total += (usd_per_gb[a, b] + usd_per_gb[b, a]) * (STEPS * tables.tied_bytes[c])
        out[p] = total / GB
