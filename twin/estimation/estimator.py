"""Estimates of a plan under given links: time, memory, utilisation, traffic, money, energy, critical cycle.

`Estimator` joins the cost models to the kernel. Policies search with it and the world runs by it, so that
both use the same times.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S, to_s
from twin.core import placement
from twin.core.domain import Cluster, LinkState, Matrix
from twin.core.job import JobSpec
from twin.core.placement import Layout
from twin.core.plan import Plan, Share
from twin.core.plan_text import with_names
from twin.costs import migration, replica_sync
from twin.costs.layer_compute import ComputeModel, layer_times
from twin.costs.migration import Migration
from twin.costs.stage_boundaries import BoundaryCosts, crossings
from twin.costs.stage_costs import Slot, StageCosts, StageModel, slots
from twin.estimation import feasibility, iteration_estimate, pipeline_durations, plan_builder
from twin.estimation.iteration_estimate import IterationEstimate
from twin.estimation.pipeline_durations import Slowdown
from twin.pipeline import critical_cycle, kernel
from twin.pipeline.kernel import DEAD, LONGEST_NS
from twin.pipeline.pipeline import Pipeline

__all__ = ["DEAD", "Estimator", "IterationEstimate", "Migration"]

Int = NDArray[np.int64]
RESTART_S = 11.35
"""Seconds of a reconfiguration measured by Sailor (SOSP 2025): stop, re-plan, restart of the processes."""


class Estimator:
    """Cost models of a cluster and a job. Deterministic; caches its results."""

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
        self.compute = compute
        self.n_layers = len(job.model.layers())
        self.tokens_per_iteration = job.tokens_per_iteration
        self._model = StageModel(cluster.domains, job, compute)
        self._make_caches()

    def _make_caches(self) -> None:
        self._plan_costs = lru_cache(maxsize=1024)(self._compute_plan_costs)
        self._layout = lru_cache(maxsize=8192)(self._compute_layout)

    def __getstate__(self) -> dict[str, Any]:
        """State without the caches, which cannot go to another process."""
        return {name: value for name, value in vars(self).items() if name not in ("_plan_costs", "_layout")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore in another process, with empty caches."""
        vars(self).update(state)
        self._make_caches()

    # -- what is legal

    def local_choices(self, domain: int, dp: int) -> tuple[tuple[int, int], ...]:
        """Legal (tp, pp) for `dp` replicas in `domain`, by GPUs used, most first."""
        model = self.job.model
        return placement.choices(self.cluster.domains[domain], dp, model.heads, self.n_layers)

    def place(self, domain: int, dp: int, tp: int, pp: int) -> tuple[int, ...]:
        """GPUs of the default packed placement.

        Raises:
            InfeasibleError: the domain has fewer GPUs.
        """
        return plan_builder.place(self.cluster, domain, dp, tp, pp)

    def make(
        self, order: Sequence[int], layer_counts: Sequence[int], dp: int, inner: Sequence[tuple[int, int]],
        micro_batch: int, *, extra_warmup: int | None = None, ep: int = 0,
    ) -> Plan:  # fmt: skip
        """Plan with default placement and the job's schedule; see `twin.estimation.plan_builder.make`.

        Raises:
            InfeasibleError: too many GPUs, or the batch does not divide.
        """
        extra = self.job.extra_warmup if extra_warmup is None else extra_warmup
        return plan_builder.make(
            self.cluster, self.job, order, layer_counts, dp, inner, micro_batch, extra, ep
        )

    def problems(self, plan: Plan, free_gpus: Sequence[int] | None = None) -> tuple[str, ...]:
        """Reasons why `plan` cannot run, in the notation of the log; empty when it can.

        `free_gpus` (K,): GPUs alive per domain.
        """
        found = feasibility.shape_problems(self.cluster, self.job, plan, free_gpus)
        if found:
            return found
        return feasibility.memory_problems(self.cluster, self._slots(plan), self.peak_mem_bytes(plan))

    def problem_texts(self, plan: Plan) -> tuple[str, ...]:
        """The same reasons with the names of the sites, for people."""
        names = [domain.name for domain in self.cluster.domains]
        return tuple(with_names(text, names) for text in self.problems(plan))

    def tokens(self, plan: Plan) -> int:
        """Tokens of an iteration of `plan`, with local SGD the equivalent tokens of synchronous training."""
        if plan.sync is None:
            return self.tokens_per_iteration
        parameters, steps = self.job.model.parameters, plan.sync.inner_steps
        return round(
            self.tokens_per_iteration * replica_sync.token_efficiency(parameters, steps, plan.replicas)
        )

    def peak_mem_bytes(self, plan: Plan) -> tuple[int, ...]:
        """Peak bytes per GPU of each stage, in pipeline order, replica after replica."""
        if plan.sync is not None:
            return self._peaks_of_replicas(plan)
        return tuple(int(x) for x in self._plan_costs(plan).peak_bytes[:, 0])

    def stage_slots(self, plan: Plan) -> tuple[Slot, ...]:
        """Place of each stage, in the order of `peak_mem_bytes`."""
        if plan.sync is not None:
            return tuple(slot for n in range(plan.replicas) for slot in self._slots(plan.replica(n)))
        return self._slots(plan)

    def wan_bytes(self, plan: Plan) -> Matrix:
        """Bytes per directed link (K, K) of one iteration; see
        `twin.estimation.iteration_estimate.wan_bytes`."""
        return iteration_estimate.wan_bytes(self.job, plan, self.cluster.size)

    # -- one plan

    def stage_costs(self, plan: Plan) -> StageCosts:
        """Costs of every stage of `plan`, links aside."""
        return self._plan_costs(plan)

    def share_costs(
        self, domain: int, spans: Int, dp: int, tp: int, pp: int, micro_batch: int, in_flight: int,
        first_gpu: int = 0, ep: int = 0,
    ) -> StageCosts:  # fmt: skip
        """Costs of the stages of one domain that runs the layers `spans` (P, 2), first and past the last.

        Every stage holds the activations of `in_flight` micro-batches; GPUs are packed from `first_gpu` on.

        Raises:
            InfeasibleError: the domain has fewer GPUs.
        """
        gpus = tuple(first_gpu + gpu for gpu in self.place(domain, dp, tp, pp))
        share = Share(domain, pp, tp, pp, gpus)
        job = self.job
        sketch = Plan(
            (share,), dp, micro_batch, in_flight, "gpipe", 0, job.p2p, job.recompute, job.zero,
            sequence_parallel=job.sequence_parallel, context_parallel=job.context_parallel,
            ep=ep or job.ep_of(dp),
        )  # fmt: skip
        return self._costs(sketch, spans)

    def iter_ns(self, plan: Plan, links: LinkState, slowdown: Slowdown = None) -> int:
        """Iteration time in nanoseconds; `DEAD` when a used link has no bandwidth."""
        if plan.sync is not None:
            return self._replicas_ns(plan, links, slowdown)[0]
        timing = self.pipeline(plan, links, slowdown)
        return DEAD if timing is None else int(kernel.iteration_ns(timing)[0])

    def iter_ns_deepened(
        self, plans: Sequence[Plan], links: LinkState, slowdown: Slowdown = None
    ) -> list[int]:
        """Iteration times of pipelines that differ in their warm-up depth alone, as `iter_ns` has them."""
        across = self._crossings(plans[0], links) if plans else None
        if across is None:
            return [DEAD] * len(plans)
        timings = (
            pipeline_durations.pipeline(plan, self._plan_costs(plan), across, slowdown) for plan in plans
        )
        return [int(kernel.iteration_ns(timing)[0]) for timing in timings]

    def pipeline(
        self, plan: Plan, links: LinkState, slowdown: Slowdown = None, *, exchange: bool = True
    ) -> Pipeline | None:
        """Every duration of one iteration of a pipeline; None: a used link is dead.

        Replicas have one pipeline each (`Plan.replica`). Without `exchange` the first and the last domain
        send each other nothing for a tied embedding: the caller adds it for other links.
        """
        assert plan.sync is None, "replicas are no pipeline"
        across = self._crossings(plan, links)
        if across is None:
            return None
        if not exchange and len(plan.shares) > 1:
            across = replace(across, tied_ns=0)
        return pipeline_durations.pipeline(plan, self._plan_costs(plan), across, slowdown)

    def iteration(self, plan: Plan, links: LinkState, slowdown: Slowdown = None) -> IterationEstimate:
        """Estimate of one iteration; with a dead link the time is infinite and utilisation 0."""
        if plan.sync is not None:
            return self._replicas(plan, links, slowdown)
        costs = self._plan_costs(plan)
        nothing = BoundaryCosts.none(plan)
        free = pipeline_durations.pipeline(plan, costs, nothing, slowdown, sync=False)
        busy_s = (free.busy_ns + free.tail)[:, 0] / NS_PER_S
        across = self._crossings(plan, links)
        if across is None:
            return self._describe(plan, costs, busy_s, DEAD, DEAD, "a dead link")
        timing = pipeline_durations.pipeline(plan, costs, across, slowdown)
        total, alone = int(kernel.iteration_ns(timing)[0]), int(kernel.iteration_ns(free)[0])
        return self._describe(plan, costs, busy_s, total, alone, self._binding(timing, costs))

    def _binding(self, timing: Pipeline, costs: StageCosts) -> str:
        found = critical_cycle.binding(timing)
        first, last = (
            self.cluster.domains[costs.slots[end].domain].name for end in (found.first, found.last)
        )
        return f"{found} ({first})" if first == last else f"{found} ({first} to {last})"

    def _describe(
        self, plan: Plan, costs: StageCosts, busy_s: NDArray[np.float64], total: int, alone: int, binding: str
    ) -> IterationEstimate:
        share_of = np.array([slot.share for slot in costs.slots])
        return iteration_estimate.priced(
            self.cluster, self.job, plan, total,
            compute_s=tuple(float(np.mean(busy_s[share_of == n])) for n in range(len(plan.shares))),
            bubble_s=0.0 if total == DEAD else to_s(alone) - float(np.mean(busy_s)),
            exposed_comm_s=float("inf") if total == DEAD else to_s(total - alone),
            peak_mem_bytes=tuple(int(x) for x in costs.peak_bytes[:, 0]),
            binding=binding,
        )  # fmt: skip

    def move(self, old: Plan | None, new: Plan, links: LinkState) -> Migration:
        """Bytes and expected seconds from `old` to `new` with constant links, restart included."""
        moved = _moved(self, old, new)
        if not migration.needs_restart(old, new):
            return Migration(moved, 0.0)
        return Migration(moved, migration.move_s(self.cluster, moved, new, links) + self.restart_s)

    # -- replicas

    def _peaks_of_replicas(self, plan: Plan) -> tuple[int, ...]:
        return tuple(
            peak + outer
            for n in range(plan.replicas)
            for peak, outer in zip(
                self.peak_mem_bytes(plan.replica(n)), replica_sync.outer_bytes(self.job, plan, n), strict=True
            )
        )

    def _replicas_ns(self, plan: Plan, links: LinkState, slowdown: Slowdown) -> tuple[int, int]:
        """Iteration time of replicas, and its part that is exchange: all wait for the slowest one first."""
        exchange = replica_sync.exchange_s(self.cluster, self.job, plan, links) * NS_PER_S
        if exchange >= LONGEST_NS:
            return DEAD, DEAD
        slowest = max(self.iter_ns(plan.replica(n), links, slowdown) for n in range(plan.replicas))
        return slowest + round(exchange), round(exchange)

    def _replicas(self, plan: Plan, links: LinkState, slowdown: Slowdown) -> IterationEstimate:
        total, exchange = self._replicas_ns(plan, links, slowdown)
        alone = [self.iteration(plan.replica(n), links, slowdown) for n in range(plan.replicas)]
        slowest = max(alone, key=lambda one: one.iter_ns)
        compute = tuple(one.compute_s[0] for one in alone)
        bubble = 0.0 if total == DEAD else float(np.mean([one.bubble_s for one in alone]))
        return iteration_estimate.priced(
            self.cluster, self.job, plan, total,
            compute_s=compute,
            bubble_s=bubble,
            exposed_comm_s=float("inf") if total == DEAD else to_s(total) - float(np.mean(compute)) - bubble,
            peak_mem_bytes=self.peak_mem_bytes(plan),
            binding=(
                "a dead link" if total == DEAD
                else "exchange between replicas" if 2 * exchange > total else slowest.binding
            ),
        )  # fmt: skip

    # -- many plans

    def iter_ns_cuts(
        self, order: Sequence[int], cuts: Int, dp: int, inner: Sequence[tuple[int, int]], micro_batch: int,
        links: LinkState, slowdown: Slowdown = None, ep: int = 0,
    ) -> Int:  # fmt: skip
        """Iteration times (P,) of the plans `cuts` (P, n + 1) over the domains `order`, default placement.

        `DEAD` where memory does not suffice, a stage stays empty, the batch does not divide or a used link is
        dead.
        """
        times, depths = np.full(len(cuts), DEAD), [self.job.extra_warmup]
        for timing, fits in self.pipelines(
            order, cuts, dp, inner, micro_batch, links, depths, slowdown, ep=ep
        ):
            times[fits] = kernel.iteration_ns(timing)
        return times

    def pipelines(
        self, order: Sequence[int], cuts: Int, dp: int, inner: Sequence[tuple[int, int]], micro_batch: int,
        links: LinkState, depths: Sequence[int], slowdown: Slowdown = None, *, exchange: bool = True,
        ep: int = 0,
    ) -> list[tuple[Pipeline, NDArray[np.bool_]]]:  # fmt: skip
        """For each extra warm-up of `depths` the durations of the plans `cuts` (P, n + 1) that fit, and
        which do (P,). Depths with which none fits are left out, and all depths if a used link is dead.
        `exchange` as in `pipeline`; `ep` as in `make`."""
        sketch = plan_builder.sketch(self.cluster, self.job, order, dp, inner, micro_batch, ep)
        across = None if sketch is None else self._crossings(sketch, links)
        if sketch is None or across is None:
            return []
        if not exchange and len(order) > 1:
            across = replace(across, tied_ns=0)
        costs, found = self._costs(sketch, np.asarray(cuts, dtype=np.int64)), []
        for depth in depths:
            deep = replace(sketch, extra_warmup=depth)
            known = costs if deep == sketch else costs.deepened(deep)
            fits = self._fits(known)
            if fits.any():
                known = known.where(fits)
                found.append((pipeline_durations.pipeline(deep, known, across, slowdown), fits))
        return found

    def fits_cuts(
        self, order: Sequence[int], cuts: Int, dp: int, inner: Sequence[tuple[int, int]], micro_batch: int,
        extra_warmup: int | None = None,
    ) -> NDArray[np.bool_]:  # fmt: skip
        """True (P,) for plans `cuts` (P, n + 1) that fit in memory with a layer in every stage;
        `extra_warmup` None is the job's."""
        sketch = plan_builder.sketch(self.cluster, self.job, order, dp, inner, micro_batch)
        if sketch is None:
            return np.zeros(len(cuts), dtype=np.bool_)
        if extra_warmup is not None:
            sketch = replace(sketch, extra_warmup=extra_warmup)
        return self._fits(self._costs(sketch, np.asarray(cuts, dtype=np.int64)))

    def _fits(self, costs: StageCosts) -> NDArray[np.bool_]:
        have = np.array([self.cluster.domains[slot.domain].gpu.memory_bytes for slot in costs.slots])
        enough: NDArray[np.bool_] = np.all(costs.peak_bytes <= have[:, None], axis=0)
        return costs.filled & enough

    # -- parts

    def _slots(self, plan: Plan) -> tuple[Slot, ...]:
        return slots(plan.order, [(share.tp, share.pp) for share in plan.shares])

    def _compute_layout(self, domain: int, gpus: tuple[int, ...], dp: int, tp: int, pp: int) -> Layout:
        return placement.layout(gpus, self.cluster.domains[domain], dp, tp, pp)

    def _layouts(self, plan: Plan) -> list[Layout]:
        return [self._layout(s.domain, s.gpus, plan.dp, s.tp, s.pp) for s in plan.shares]

    def _compute_plan_costs(self, plan: Plan) -> StageCosts:
        # Routes and depth change often, and of a stage only memory depends on them.
        straight = replace(plan, routes=(), extra_warmup=0)
        if plan == straight:
            return self._costs(plan, np.array([plan.cuts], dtype=np.int64))
        costs = self._plan_costs(straight)
        return costs.deepened(plan) if plan.extra_warmup else costs

    def _costs(self, sketch: Plan, cuts: Int) -> StageCosts:
        return self._model.costs(self._slots(sketch), cuts, self._layouts(sketch), sketch)

    def _crossings(self, plan: Plan, links: LinkState) -> BoundaryCosts | None:
        return crossings(self.cluster, self.job, plan, self._layouts(plan), links)


@lru_cache(maxsize=8192)
def _moved(estimator: Estimator, old: Plan | None, new: Plan) -> Matrix:
    """`migration.move_bytes`; the same pairs of plans come again at every decision."""
    moved = migration.move_bytes(estimator.job, old, new, estimator.cluster.size)
    moved.setflags(write=False)
    return moved
