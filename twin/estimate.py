"""One answer for a plan under given links: time, memory, utilisation, traffic, money, energy, and what binds.

`Estimator` joins the cost models to the kernel. Policies search with it and the world is paced by it, so
both always mean the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ingest.errors import InfeasibleError
from ingest.units import BITS_PER_BYTE, GB, GIB, NS_PER_S, to_s
from twin import cycle, energy, kernel, moving, placement
from twin.compute import ComputeModel, layer_times
from twin.domain import Cluster, LinkState, Matrix
from twin.job import JobSpec
from twin.kernel import DEAD, LONGEST_NS
from twin.moving import Move
from twin.placement import Layout
from twin.plan import Plan, Share
from twin.stages import Slot, StageCosts, StageModel, slots

__all__ = ["DEAD", "Estimate", "Estimator", "Move"]

Int = NDArray[np.int64]
RESTART_S = 11.35
"""Reconfiguration measured by Sailor (SOSP 2025): stop, re-plan, restart of the processes."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """What one iteration of a plan costs. `compute_s` is per share: mean over its stages of busy seconds.

    compute (mean over stages) + bubble_s + exposed_comm_s = iter_s: the bubble is what remains idle with free
    communication, exposed communication is what links and gradient synchronisation add to that.
    """

    iter_ns: int
    iter_s: float
    compute_s: tuple[float, ...]
    utilisation_by_domain: dict[int, float]
    utilisation: float
    bubble_s: float
    exposed_comm_s: float
    wan_bytes: Matrix
    usd: float
    gpu_usd: float
    energy_j: float
    peak_mem_bytes: tuple[int, ...]
    binding: str


@dataclass(frozen=True, slots=True, eq=False)
class _Boundaries:
    """Occupancy and latency nanoseconds of each boundary, downstream and upstream; None where a link is
    dead."""

    of: Int
    lf: Int
    ob: Int
    lb: Int


def _ns(seconds: NDArray[np.float64]) -> Int:
    return np.rint(np.minimum(seconds * NS_PER_S, LONGEST_NS)).astype(np.int64)


class Estimator:
    """Cost models over (cluster, job). Deterministic, without visible state; keeps what it computed."""

    def __init__(
        self,
        cluster: Cluster,
        job: JobSpec,
        *,
        restart_s: float = RESTART_S,
        compute: ComputeModel = layer_times,
    ) -> None:
        self.cluster = cluster
        self.job = job
        self.restart_s = restart_s
        self.n_layers = len(job.model.layer_list)
        self.tokens_per_iteration = job.tokens_per_iteration
        self._model = StageModel(cluster.domains, job, compute)
        self._plan_costs = lru_cache(maxsize=1024)(self._compute_plan_costs)
        self._layout = lru_cache(maxsize=8192)(self._compute_layout)

    # -- what is legal

    def local_choices(self, domain: int, dp: int) -> tuple[tuple[int, int], ...]:
        """Legal (tp, pp) for `dp` replicas in `domain`, those that use most GPUs first."""
        model = self.job.model
        return placement.choices(self.cluster.domains[domain], dp, model.heads, self.n_layers)

    def place(self, domain: int, dp: int, tp: int, pp: int) -> tuple[int, ...]:
        """Default packed placement.

        Raises:
            InfeasibleError: the domain has fewer GPUs.
        """
        owned = self.cluster.domains[domain].gpus
        if dp * tp * pp > owned:
            name = self.cluster.domains[domain].name
            raise InfeasibleError(f"{name}: dp {dp} x tp {tp} x pp {pp} needs {dp * tp * pp} GPUs of {owned}")
        return placement.packed(dp, tp, pp)

    def make(
        self, order: Sequence[int], layer_counts: Sequence[int], dp: int, inner: Sequence[tuple[int, int]],
        micro_batch: int, *, extra_warmup: int | None = None,
    ) -> Plan:  # fmt: skip
        """The plan with default placement and the job's schedule; m follows from the global batch.

        Raises:
            InfeasibleError: too many GPUs, or the batch does not divide.
        """
        count = self.job.micro_batches(dp, micro_batch)
        if count is None:
            raise InfeasibleError(
                f"global batch {self.job.global_batch} is not a multiple of "
                f"dp {dp} x micro-batch {micro_batch}"
            )
        shares = tuple(
            Share(domain, int(layers), tp, pp, self.place(domain, dp, tp, pp))
            for domain, layers, (tp, pp) in zip(order, layer_counts, inner, strict=True)
        )
        job = self.job
        extra = job.extra_warmup if extra_warmup is None else extra_warmup
        return Plan(shares, dp, micro_batch, count, job.schedule, extra, job.p2p, job.recompute, job.zero)

    def problems(self, plan: Plan, free_gpus: Sequence[int] | None = None) -> tuple[str, ...]:
        """Why `plan` cannot run; empty when it can. `free_gpus` (K,): GPUs alive per domain."""
        found = []
        if plan.cuts[-1] != self.n_layers:
            return (f"the plan places {plan.cuts[-1]} layers, the model has {self.n_layers}",)
        batch = plan.dp * plan.micro_batch * plan.micro_batches
        if batch != self.job.global_batch:
            found.append(
                f"dp x micro-batch x micro-batches is {batch}, the global batch {self.job.global_batch}"
            )
        if plan.micro_batch not in self.job.micro_batches_allowed:
            found.append(f"micro-batch {plan.micro_batch} is not one of {self.job.micro_batches_allowed}")
        for share in plan.shares:
            found += self._share_problems(share, plan.dp, free_gpus)
        return tuple(found) if found else self._memory_problems(plan)

    def _share_problems(self, share: Share, dp: int, free_gpus: Sequence[int] | None) -> list[str]:
        if not 0 <= share.domain < self.cluster.size:
            return [f"d{share.domain}: no such domain"]
        domain, found, tag = self.cluster.domains[share.domain], [], f"d{share.domain}"
        free = domain.gpus if free_gpus is None else int(free_gpus[share.domain])
        if len(share.gpus) > free:
            found.append(f"{tag}: needs {len(share.gpus)} GPUs of {free}")
        if min(share.gpus) < 0 or max(share.gpus) >= domain.gpus:
            found.append(f"{tag}: GPU {max(share.gpus)} of {domain.gpus} does not exist")
        elif self._layout(share.domain, share.gpus, dp, share.tp, share.pp).tp_split:
            found.append(f"{tag}: tp {share.tp} does not stay inside a node of {domain.gpus_per_node}")
        if self.job.model.heads % share.tp:
            found.append(f"{tag}: tp {share.tp} does not divide {self.job.model.heads} heads")
        return found

    def _memory_problems(self, plan: Plan) -> tuple[str, ...]:
        found = []
        for stage, (slot, need) in enumerate(zip(self._slots(plan), self.peak_mem_bytes(plan), strict=True)):
            have = self.cluster.domains[slot.domain].gpu.memory_bytes
            if need > have:
                found.append(
                    f"d{slot.domain}: stage {stage} needs {need / GIB:.1f} GiB of {have / GIB:.1f} GiB"
                )
        return tuple(found)

    def peak_mem_bytes(self, plan: Plan) -> tuple[int, ...]:
        """Peak bytes per GPU of each stage, in pipeline order."""
        return tuple(int(x) for x in self._plan_costs(plan).peak_bytes[0])

    # -- one plan

    def iter_ns(self, plan: Plan, links: LinkState, slowdown: NDArray[np.float64] | None = None) -> int:
        """Iteration time in nanoseconds; `DEAD` when a used link has no bandwidth."""
        costs = self._plan_costs(plan)
        boundaries = self._boundaries(plan, links)
        if boundaries is None:
            return DEAD
        total, _ = self._run(costs, boundaries, plan, slowdown)
        return int(total[0])

    def iteration(
        self, plan: Plan, links: LinkState, slowdown: NDArray[np.float64] | None = None
    ) -> Estimate:
        """Everything about one iteration. With a dead link the time is `DEAD`, utilisation 0 and money
        infinite."""
        costs = self._plan_costs(plan)
        busy_s = self._busy_s(costs, plan, slowdown)
        boundaries = self._boundaries(plan, links)
        if boundaries is None:
            return self._describe(plan, costs, busy_s, DEAD, DEAD, "a dead link")
        total, _ = self._run(costs, boundaries, plan, slowdown)
        still = _Boundaries(
            *(np.zeros_like(a) for a in (boundaries.of, boundaries.lf, boundaries.ob, boundaries.lb))
        )
        alone, _ = self._run(costs, still, plan, slowdown, sync=False)
        return self._describe(
            plan,
            costs,
            busy_s,
            int(total[0]),
            int(alone[0]),
            self._binding(plan, costs, boundaries, slowdown),
        )

    def _describe(
        self, plan: Plan, costs: StageCosts, busy_s: NDArray[np.float64], total: int, alone: int, binding: str
    ) -> Estimate:
        iter_s = float("inf") if total == DEAD else to_s(total)
        alone_s = float("inf") if alone == DEAD else to_s(alone)
        compute = tuple(
            float(np.mean([busy_s[i] for i, slot in enumerate(costs.slots) if slot.share == n]))
            for n in range(len(plan.shares))
        )
        by_domain = {share.domain: c / iter_s for share, c in zip(plan.shares, compute, strict=True)}
        sent = self.wan_bytes(plan)
        prices = np.array(self.cluster.usd_per_gb)
        gpu_usd = joules = 0.0
        for share, c in zip(plan.shares, compute, strict=True):
            domain = self.cluster.domains[share.domain]
            gpu_usd += len(share.gpus) * domain.usd_per_gpu_hour * iter_s / 3600.0
            joules += energy.energy_j(domain.gpu, len(share.gpus), c, iter_s)
        stage_mean = float(np.mean(busy_s))
        return Estimate(
            iter_ns=total,
            iter_s=iter_s,
            compute_s=compute,
            utilisation_by_domain=by_domain,
            utilisation=float(np.mean(list(by_domain.values()))),
            bubble_s=max(0.0, alone_s - stage_mean),
            exposed_comm_s=0.0 if total == DEAD else max(0.0, iter_s - alone_s),
            wan_bytes=sent,
            usd=float(np.sum(np.where(sent > 0, sent * prices, 0.0)) / GB),
            gpu_usd=gpu_usd,
            energy_j=joules,
            peak_mem_bytes=tuple(int(x) for x in costs.peak_bytes[0]),
            binding=binding,
        )

    def wan_bytes(self, plan: Plan) -> Matrix:
        """Bytes per directed link (K, K) of one iteration: A dp m each way over each boundary between
        domains."""
        sent = np.zeros((self.cluster.size, self.cluster.size))
        size = self.job.message_bytes(plan.micro_batch) * plan.dp * plan.micro_batches
        for i, j in zip(plan.order, plan.order[1:], strict=False):
            sent[i, j] += size
            sent[j, i] += size
        return sent

    def move(self, old: Plan | None, new: Plan, links: LinkState) -> Move:
        """Bytes and expected seconds from `old` to `new` with constant links, restart included."""
        moved = moving.move_bytes(self.job, old, new, self.cluster.size)
        if not moving.needs_restart(old, new):
            return Move(moved, 0.0)
        return Move(moved, moving.move_s(self.cluster, moved, new, links) + self.restart_s)

    # -- many plans

    def iter_ns_cuts(
        self, order: Sequence[int], cuts: Int, dp: int, inner: Sequence[tuple[int, int]], micro_batch: int,
        links: LinkState, slowdown: NDArray[np.float64] | None = None,
    ) -> Int:  # fmt: skip
        """Iteration times (P,) of the plans `cuts` (P, n + 1) over the domains `order`, default placement.

        `DEAD` where memory does not suffice, a stage stays empty, the batch does not divide or a used link
        is dead.
        """
        dead = np.full(len(cuts), DEAD)
        sketch = self._sketch(order, dp, inner, micro_batch)
        if sketch is None:
            return dead
        boundaries = self._boundaries(sketch, links)
        if boundaries is None:
            return dead
        costs = self._cut_costs(sketch, cuts)
        total, _ = self._run(costs, boundaries, sketch, slowdown, fits=self._fits(costs))
        return total

    def fits_cuts(
        self, order: Sequence[int], cuts: Int, dp: int, inner: Sequence[tuple[int, int]], micro_batch: int
    ) -> NDArray[np.bool_]:
        """Which of the plans `cuts` (P, n + 1) fit in memory with a layer in every stage (P,)."""
        sketch = self._sketch(order, dp, inner, micro_batch)
        return np.zeros(len(cuts), bool) if sketch is None else self._fits(self._cut_costs(sketch, cuts))

    def _sketch(
        self, order: Sequence[int], dp: int, inner: Sequence[tuple[int, int]], micro_batch: int
    ) -> Plan | None:
        """A plan that has everything but the right cuts; None where no cut can make it legal."""
        fits = all(
            dp * tp * pp <= self.cluster.domains[k].gpus for k, (tp, pp) in zip(order, inner, strict=True)
        )
        if not fits or self.job.micro_batches(dp, micro_batch) is None:
            return None
        return self.make(order, [pp for _, pp in inner], dp, inner, micro_batch)

    def _cut_costs(self, sketch: Plan, cuts: Int) -> StageCosts:
        return self._costs(sketch, np.asarray(cuts, dtype=np.int64))

    def _fits(self, costs: StageCosts) -> NDArray[np.bool_]:
        have = np.array([self.cluster.domains[slot.domain].gpu.memory_bytes for slot in costs.slots])
        return costs.filled & np.all(costs.peak_bytes <= have, axis=1)

    # -- parts

    def _slots(self, plan: Plan) -> tuple[Slot, ...]:
        return slots(plan.order, [(share.tp, share.pp) for share in plan.shares])

    def _compute_layout(self, domain: int, gpus: tuple[int, ...], dp: int, tp: int, pp: int) -> Layout:
        return placement.layout(gpus, self.cluster.domains[domain], dp, tp, pp)

    def _compute_plan_costs(self, plan: Plan) -> StageCosts:
        return self._costs(plan, np.array([plan.cuts], dtype=np.int64))

    def _costs(self, plan: Plan, cuts: Int) -> StageCosts:
        layouts = [self._layout(s.domain, s.gpus, plan.dp, s.tp, s.pp) for s in plan.shares]
        return self._model.costs(
            self._slots(plan), cuts, plan.dp, plan.micro_batch, plan.micro_batches, layouts,
            schedule=plan.schedule, recompute=plan.recompute, zero=plan.zero, extra=plan.extra_warmup,
        )  # fmt: skip

    def _boundaries(self, plan: Plan, links: LinkState) -> _Boundaries | None:
        """Boundary costs: dp messages share a wide-area link; inside a domain every GPU sends its tensor
        slice."""
        size = self.job.message_bytes(plan.micro_batch)
        rows: list[tuple[float, float, float, float]] = []
        previous: Share | None = None
        for share in plan.shares:
            if previous is not None:
                i, j = previous.domain, share.domain
                rows.append((*_wan(plan.dp * size, links, i, j), *_wan(plan.dp * size, links, j, i)))
            domain = self.cluster.domains[share.domain]
            for crosses in self._layout(share.domain, share.gpus, plan.dp, share.tp, share.pp).crosses:
                bps = domain.inter_node_bps if crosses else domain.intra_node_bps
                latency = domain.inter_node_latency_s if crosses else domain.intra_node_latency_s
                rows.append((size / share.tp * BITS_PER_BYTE / bps, latency) * 2)
            previous = share
        table = np.array(rows).reshape(-1, 4)
        if not np.all(table * NS_PER_S < LONGEST_NS):
            return None
        return _Boundaries(*(_ns(table[:, c]) for c in range(4)))

    def _durations(
        self, costs: StageCosts, slowdown: NDArray[np.float64] | None, sync: bool
    ) -> tuple[Int, Int, Int]:
        slow = 1.0 if slowdown is None else np.asarray(slowdown)[[slot.domain for slot in costs.slots]]
        tail = costs.update_s + (costs.sync_s if sync else 0.0)
        return _ns(costs.forward_s * slow), _ns(costs.backward_s * slow), _ns(tail)

    def _run(
        self, costs: StageCosts, boundaries: _Boundaries, plan: Plan, slowdown: NDArray[np.float64] | None,
        *, sync: bool = True, fits: NDArray[np.bool_] | None = None,
    ) -> tuple[Int, Int]:  # fmt: skip
        tf, tb, tail = self._durations(costs, slowdown, sync)
        wide = [
            np.broadcast_to(a, (len(tf), len(a)))
            for a in (boundaries.of, boundaries.lf, boundaries.ob, boundaries.lb)
        ]
        return kernel.iteration_ns_batch(
            tf, tb, *wide, tail, micro_batches=plan.micro_batches, schedule=plan.schedule, p2p=plan.p2p,
            warmup=costs.warmup, dead=None if fits is None else ~fits,
        )  # fmt: skip

    def _busy_s(
        self, costs: StageCosts, plan: Plan, slowdown: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """Seconds per iteration that each stage computes (S,): all micro-batches and the update."""
        tf, tb, tail = self._durations(costs, slowdown, sync=False)
        return (plan.micro_batches * (tf[0] + tb[0]) + tail[0]) / NS_PER_S

    def _binding(
        self, plan: Plan, costs: StageCosts, boundaries: _Boundaries, slowdown: NDArray[np.float64] | None
    ) -> str:
        tf, tb, _ = self._durations(costs, slowdown, sync=False)
        rows = (tf[0], tb[0], boundaries.of, boundaries.lf, boundaries.ob, boundaries.lb)
        lists = [[int(x) for x in row] for row in rows]
        blocking = plan.p2p == "blocking"
        if plan.schedule == "gpipe":
            found = cycle.gpipe(*lists, blocking=blocking)
        else:
            found = cycle.one_f_one_b(*lists, [int(w) for w in costs.warmup], blocking=blocking)
        domains = [slot.domain for slot in costs.slots]
        return f"{found} (d{domains[found.first]}" + (
            ")" if domains[found.first] == domains[found.last] else f"-d{domains[found.last]})"
        )


def _wan(size_bytes: float, links: LinkState, i: int, j: int) -> tuple[float, float]:
    """Occupancy and one-way latency in seconds of a message over the directed link (i, j)."""
    bps = float(links.bandwidth_bps[i, j])
    return (size_bytes * BITS_PER_BYTE / bps if bps > 0 else float("inf"), float(links.latency_s[i, j]))
