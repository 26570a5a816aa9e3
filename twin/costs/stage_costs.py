"""Stage costs of many plans at once: seconds and bytes per stage by prefix sums over layers, nothing
link-dependent.

All plans of a batch share the order of domains, dp, the inner (tp, pp) and the micro-batch; only cuts differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from twin.core import schedules
from twin.core.domain import Domain
from twin.core.job import JobSpec
from twin.core.layer_split import stage_start
from twin.core.placement import Layout
from twin.core.plan import Plan, Recompute, Schedule
from twin.core.switches import TensorMode
from twin.core.transformer import Transformer
from twin.costs import memory, optimiser
from twin.costs.collectives import Path, hierarchical_all_gather_s, hierarchical_all_reduces_s
from twin.costs.gradient_reduction import exposed_sync_s
from twin.costs.layer_compute import ComputeModel
from twin.costs.stage_holdings import Flight, Group, Holdings, Spans, added, prefix_sum
from twin.pipeline import operation_order, zero_bubble_order
from twin.pipeline.pipeline import warmup_depths

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Slot:
    """One stage position of the pipeline: its domain and what its share looks like."""

    domain: int
    tp: int
    pp: int
    inner: int  # stage index inside its share
    share: int


@dataclass(frozen=True, slots=True, eq=False)
class StageCosts:
    """Per stage and plan (S, P): seconds of one micro-batch, seconds after the last backward, peak bytes
    per GPU.

    `forward_s` and `backward_s` are (v S, P) where stages hold v chunks, chunk after chunk. `weight_s`: the
    part of the backward that is the weight gradient, where the schedule runs it on its own. `warmup` (S,):
    depths of 1F1B. `flight_bytes`: by how much the peak grows with every micro-batch that a stage holds.
    `filled` (P,): plans that give every stage a layer.
    """

    slots: tuple[Slot, ...]
    forward_s: Float
    backward_s: Float
    sync_s: Float
    update_s: Float
    peak_bytes: Float
    flight_bytes: Float
    warmup: Int
    filled: NDArray[np.bool_]
    weight_s: Float | None = None

    def where(self, chosen: NDArray[np.bool_]) -> "StageCosts":
        """Only the plans `chosen` (P,)."""
        return replace(
            self, forward_s=self.forward_s[:, chosen], backward_s=self.backward_s[:, chosen],
            sync_s=self.sync_s[:, chosen], update_s=self.update_s[:, chosen],
            peak_bytes=self.peak_bytes[:, chosen], flight_bytes=self.flight_bytes[:, chosen],
            filled=self.filled[chosen],
            weight_s=None if self.weight_s is None else self.weight_s[:, chosen],
        )  # fmt: skip

    def deepened(self, plan: Plan) -> "StageCosts":
        """Costs of `plan`, which differs from these plans in its extra warm-up alone."""
        warmup = warmup_of(self.slots, plan.micro_batches, plan.extra_warmup)
        before, held = (
            np.array([[_in_flight(plan, depths, i)] for i in range(len(self.slots))])
            for depths in (self.warmup, warmup)
        )
        peak = self.peak_bytes + (held - before) * self.flight_bytes
        return replace(self, peak_bytes=peak, warmup=warmup)


def slots(order: Sequence[int], inner: Sequence[tuple[int, int]]) -> tuple[Slot, ...]:
    """Stage positions of the pipeline in order."""
    return tuple(
        Slot(domain, tp, pp, q, n)
        for n, (domain, (tp, pp)) in enumerate(zip(order, inner, strict=True))
        for q in range(pp)
    )


def stage_spans(
    cuts: Int, positions: Sequence[Slot], layers: int, chunks: int = 1, schedule: Schedule = "1f1b"
) -> Spans:
    """First layer and past the last (P,) of every part, chunk c of stage i at c S + i, from cuts (P, n + 1)
    of a model of `layers` layers.

    A share splits its layers over the chunks of its stages, in the order in which a micro-batch passes them.
    Where that leads up the stages again the first share has the head as well.
    """
    turns, dealt = schedules.turns(schedule), []
    for slot in positions:
        if slot.inner == 0:  # once a share
            first, past, parts = cuts[:, slot.share], cuts[:, slot.share + 1], slot.pp * chunks
            part, head = np.arange(parts + 1)[:, None], first == 0 if turns else past == layers
            counts = np.diff(stage_start(part, parts, past - first, first == 0, head), axis=0)
            dealt.append(counts[np.argsort(schedules.way(slot.pp, chunks, schedule))])
    held = np.array([dealt[s.share][chunk * s.pp + s.inner] for chunk in range(chunks) for s in positions])
    way = np.array(schedules.way(len(positions), chunks, schedule))
    past_all = np.empty_like(held)
    past_all[way] = cuts[:, 0] + np.cumsum(held[way], axis=0)
    return list(zip(past_all - held, past_all, strict=True))


def warmup_of(positions: Sequence[Slot], micro_batches: int, extra: int) -> Int:
    """1F1B warm-up depths: the standard ones, deeper by `extra` for each wide-area boundary still ahead.

    A depth that is the same at every stage would not help: the last stage would hold the extra
    micro-batches between their forward and backward, and the cycle through the slow link would be as long
    as before.
    """
    share = np.array([slot.share for slot in positions])
    return warmup_depths(len(positions), micro_batches, extra * (share[-1] - share))


def weight_share(model: Transformer) -> Float:
    """Share of each layer's backward, recompute not counted, that is its weight gradient (N,).

    A product costs as much for its weights as for its input; the attention core (twice its FLOPs backward)
    has no weights; the embedding has nothing but its table.
    """
    flops = np.array([layer.forward_flops_per_sequence for layer in model.layers()], np.float64)
    if model.adapters is not None:  # theirs are the only ones
        own = 2.0 * model.seq * model.adapter_parameters
        backward = flops + model.core_flops + own
        adapters: Float = np.full_like(flops, own) / backward
        adapters[[0, -1]] = 0.0
        return adapters
    core = np.zeros_like(flops)
    core[1:-1] = model.core_flops
    share: Float = np.maximum(flops - core, 0.0) / (2 * np.maximum(flops, 1.0))
    share[0] = 1.0
    return share


def _in_flight(sketch: Plan, warmup: Int, stage: int) -> float:
    """Micro-batches of a whole stage whose activations stage i holds at the peak."""
    if sketch.schedule == "interleaved":
        chunks, m = sketch.chunks, sketch.micro_batches
        depth = operation_order.interleaved_warmup(len(warmup), chunks, m, stage)
        return memory.in_flight(depth, chunks * m, "interleaved") / chunks
    if sketch.schedule in schedules.ZERO_BUBBLE:
        return min(len(warmup), sketch.micro_batches)
    depth = int(warmup[0 if sketch.schedule == "crosspipe" else stage])
    return memory.in_flight(depth, sketch.micro_batches, sketch.schedule)


def _logits_in_flight(sketch: Plan, warmup: Int) -> float:
    """Micro-batches whose logits the last stage holds at the peak: those of its activations, one where chunks
    interleave, since there a forward of the last chunk is followed by its own backward."""
    return 1 if sketch.schedule in schedules.CHUNKED else _in_flight(sketch, warmup, len(warmup) - 1)


def _alike(domains: Sequence[Domain]) -> list[int]:
    """Returns a number for each domain (K,), the same where GPUs and networks are."""
    numbers: dict[tuple[object, ...], int] = {}
    return [
        numbers.setdefault(
            (
                one.gpu, one.intra_node_bps, one.intra_node_latency_s, one.inter_node_bps,
                one.inter_node_latency_s,
            ),
            len(numbers),
        )
        for one in domains
    ]  # fmt: skip


class StageModel:
    """Stage costs from cuts, for one job; caches prefix sums over layers."""

    def __init__(self, domains: Sequence[Domain], job: JobSpec, compute: ComputeModel) -> None:
        self._domains = tuple(domains)
        self._job = job
        self._compute = compute
        self._times: dict[tuple[int, int, int, Recompute, TensorMode], tuple[Float, Float, Float]] = {}
        self._machines = _alike(self._domains)
        self._holdings = Holdings(job)
        self._layers = len(job.model.layers())

    def _layer_prefix(self, slot: Slot, sketch: Plan) -> tuple[Float, Float, Float]:
        mode = replace(
            self._job.tensor_mode, sequence_parallel=sketch.sequence_parallel,
            context_parallel=sketch.context_parallel, expert_parallel=sketch.ep,
        )  # fmt: skip
        key = (slot.domain, slot.tp, sketch.micro_batch, sketch.recompute, mode)
        if key not in self._times:
            model, domain = self._job.model, self._domains[slot.domain]
            times = self._compute(model, domain, slot.tp, sketch.micro_batch, sketch.recompute, mode=mode)
            plain = self._compute(model, domain, slot.tp, sketch.micro_batch, "none", mode=mode)
            weight = np.minimum(plain.backward_s * weight_share(model), times.backward_s)
            self._times[key] = (prefix_sum(times.forward_s), prefix_sum(times.backward_s), prefix_sum(weight))
        return self._times[key]

    def costs(
        self, positions: tuple[Slot, ...], cuts: Int, layouts: Sequence[Layout], sketch: Plan
    ) -> StageCosts:
        """Stage costs of the plans `cuts` (P, n + 1), all like `sketch` but for their cuts.

        `layouts` (n,): one per share.
        """
        chunked = (sketch.chunks, len(positions), len(cuts))
        spans = stage_spans(cuts, positions, self._layers, sketch.chunks, sketch.schedule)
        start, past = (np.reshape(each, chunked) for each in zip(*spans, strict=True))
        forward, backward, weight = self._compute_s(positions, start, past, sketch)
        sync, update, peak, flight_bytes = np.empty((4, *chunked[1:]))
        warmup = warmup_of(positions, sketch.micro_batches, sketch.extra_warmup)
        logits = _logits_in_flight(sketch, warmup)
        # Stages that differ in their layers alone are rows of one computation.
        for slot, layout, rows in self._alike_stages(positions, layouts):
            held = list(zip(start[:, rows], past[:, rows], strict=True))
            each = [self._holdings.groups([span], slot.tp, sketch.ep) for span in held]
            if sketch.zero >= 3 and sketch.dp > 1:  # weights come layer by layer, beside the computation
                for chunk, groups in enumerate(each):
                    reduce, gather = self._whole_s(groups, slot, sketch, layout)
                    forward[chunk, rows] = np.maximum(forward[chunk, rows], gather)
                    backward[chunk, rows] = np.maximum(backward[chunk, rows], gather + reduce)
            trained = [kind for kind in zip(*each, strict=True) if not kind[0].frozen]
            sync[rows] = exposed_sync_s(
                [[group.parameters for group in kind] for kind in trained],
                [
                    partial(self.collectives_s, slot=slot, sketch=sketch, shape=layout, ep=kind[0].ep)
                    for kind in trained
                ],
                self._job, sketch, forward[:, rows], backward[:, rows],
            )  # fmt: skip
            groups = each[0] if len(held) == 1 else self._holdings.groups(held, slot.tp, sketch.ep)
            update[rows] = self._update_s(groups, slot, sketch)
            in_flight = np.array([[_in_flight(sketch, warmup, i)] for i in rows])
            peak[rows], flight_bytes[rows] = self._holdings.peak_bytes(
                groups, held, slot.tp, sketch, Flight(in_flight, logits)
            )
            if sketch.schedule in schedules.ZERO_BUBBLE:
                delayed = np.array([[zero_bubble_order.delayed(sketch.micro_batches, i)] for i in rows])
                peak[rows] += self._holdings.delayed_bytes(held, slot.tp, sketch, delayed)
        parts = (sketch.chunks * len(positions), len(cuts))
        return StageCosts(
            positions, forward.reshape(parts), backward.reshape(parts), sync, update, peak, flight_bytes,
            warmup, np.all(past > start, axis=(0, 1)),
            weight.reshape(parts) if sketch.schedule in schedules.SPLIT else None,
        )  # fmt: skip

    def _compute_s(
        self, positions: Sequence[Slot], start: Int, past: Int, sketch: Plan
    ) -> tuple[Float, Float, Float]:
        """Seconds (v, S, P) of the forward, of the backward, and of the weight gradient in it, of the layers
        from `start` to before `past` (v, S, P)."""
        tables, rows = list[tuple[Float, Float, Float]](), dict[tuple[int, int], int]()
        for slot in positions:
            if (slot.domain, slot.tp) not in rows:
                rows[slot.domain, slot.tp] = len(rows)
                tables.append(self._layer_prefix(slot, sketch))
        of_stage = np.array([rows[slot.domain, slot.tp] for slot in positions])[:, None]
        forward, backward, weight = (
            prefix[of_stage, past] - prefix[of_stage, start] for prefix in np.stack(tables, axis=1)
        )
        return forward, backward, weight

    def _alike_stages(
        self, positions: Sequence[Slot], layouts: Sequence[Layout]
    ) -> list[tuple[Slot, Layout, list[int]]]:
        """The stages that run on the same machines in groups of the same widths: one of them, its layout, and
        the numbers of all."""
        found: dict[tuple[int, ...], tuple[Slot, Layout, list[int]]] = {}
        for i, slot in enumerate(positions):
            layout = layouts[slot.share]
            spread = layout.dp_local[slot.inner], layout.dp_nodes[slot.inner]
            key = (self._machines[slot.domain], slot.tp, *spread)
            found.setdefault(key, (slot, layout, []))[2].append(i)
        return list(found.values())

    def _update_s(self, groups: Sequence[Group], slot: Slot, sketch: Plan) -> Float:
        gpu, on_host = self._domains[slot.domain].gpu, self._job.switches.offload_optimiser
        own = [
            parameters / (sketch.dp // ep if sketch.zero >= 1 else 1)
            for parameters, ep, frozen in groups
            if not frozen
        ]
        return (optimiser.on_host_s if on_host else optimiser.on_gpu_s)(gpu, added(own))

    def _whole_s(
        self, groups: Sequence[Group], slot: Slot, sketch: Plan, layout: Layout
    ) -> tuple[Float, Float]:
        """Seconds of reducing the gradients of all groups, and of gathering their weights."""
        found = [
            (reduce * (not frozen), gather)
            for each, ep, frozen in groups
            for reduce, gather in [self.collectives_s(each, slot, sketch, layout, ep)]
        ]
        return added([reduce for reduce, _ in found]), added([gather for _, gather in found])

    def collectives_s(
        self, parameters: Float, slot: Slot, sketch: Plan, shape: Layout, ep: int = 1
    ) -> tuple[Float, Float]:
        """Seconds of the collectives of gradients over dp, each affine in the parameters (P,) of a GPU; over
        dp / ep for those of experts, whose ranks lie ep apart.

        With a sharded optimiser those of reducing (scattering) gradients and of gathering weights, else
        those of an all-reduce by ring and by tree, of which the faster is taken.
        """
        gradient_bytes = self._job.gradient_bytes
        domain = self._domains[slot.domain]
        intra = Path(domain.intra_node_bps, domain.intra_node_latency_s)
        inter = Path(domain.inter_node_bps, domain.inter_node_latency_s)
        local, nodes = shape.dp_local[slot.inner], shape.dp_nodes[slot.inner]
        if ep > 1:
            local = max(1, local // ep)
            nodes = sketch.dp // ep // local
        levels = ((local, intra), (nodes, inter))
        if sketch.zero == 0:
            return hierarchical_all_reduces_s(parameters * gradient_bytes, levels)
        reduce, gather = (
            hierarchical_all_gather_s(parameters * each, levels) for each in (gradient_bytes, 2.0)
        )
        return reduce, gather
