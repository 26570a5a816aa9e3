"""Stage costs of many plans at once: seconds and bytes per stage by prefix sums over layers, nothing
link-dependent.

All plans of a batch share the order of domains, dp, the inner (tp, pp) and the micro-batch; only cuts differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin import memory
from twin.collectives import Path, all_gather_s
from twin.compute import ComputeModel
from twin.domain import Domain
from twin.job import JobSpec
from twin.kernel import warmup_depths
from twin.placement import Layout
from twin.plan import Recompute

Float = NDArray[np.float64]
Int = NDArray[np.int64]

OPTIMISER_BYTES = 30.0
"""Memory traffic of Adam per parameter: read gradient, master, two moments (16), write three and the weight
(14)."""
OPTIMISER_MEMORY_EFFICIENCY = 0.75


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
    """Seconds per micro-batch and stage (P, S), tail seconds after the last backward, warm-up depths (S,),
    peak bytes per GPU (P, S), and which plans give every stage a layer (P,)."""

    slots: tuple[Slot, ...]
    forward_s: Float
    backward_s: Float
    sync_s: Float
    update_s: Float
    warmup: Int
    peak_bytes: Float
    filled: NDArray[np.bool_]


def slots(order: Sequence[int], inner: Sequence[tuple[int, int]]) -> tuple[Slot, ...]:
    """Stage positions of the pipeline in order."""
    return tuple(
        Slot(domain, tp, pp, q, n)
        for n, (domain, (tp, pp)) in enumerate(zip(order, inner, strict=True))
        for q in range(pp)
    )


def stage_bounds(cuts: Int, positions: Sequence[Slot]) -> tuple[Int, Int]:
    """First and past-the-last layer (P, S) of every stage: shares split evenly, the remainder to the last
    stages."""
    columns = []
    for slot in positions:
        start, count = cuts[:, slot.share], cuts[:, slot.share + 1] - cuts[:, slot.share]
        base, rest = np.divmod(count, slot.pp)
        columns.append(start + slot.inner * base + np.maximum(0, slot.inner - (slot.pp - rest)))
    starts = np.stack(columns, axis=1)
    return starts, np.concatenate([starts[:, 1:], cuts[:, -1:]], axis=1)


def warmup_of(positions: Sequence[Slot], micro_batches: int, extra: int) -> Int:
    """1F1B warm-up depths: the standard ones, deeper by `extra` for each wide-area boundary still ahead.

    A depth that is the same at every stage would not help: the last stage would hold the extra
    micro-batches between their forward and backward, and the cycle through the slow link would be as long
    as before.
    """
    share = np.array([slot.share for slot in positions])
    return warmup_depths(len(positions), micro_batches, extra * (share[-1] - share))


def _prefix(values: Float | list[float]) -> Float:
    return np.concatenate([[0.0], np.cumsum(values)])


class StageModel:
    """Turns cuts into stage costs for one job; keeps the prefix sums it has made."""

    def __init__(self, domains: Sequence[Domain], job: JobSpec, compute: ComputeModel) -> None:
        self._domains = tuple(domains)
        self._job = job
        self._compute = compute
        self._times: dict[tuple[int, int, int, Recompute], tuple[Float, Float]] = {}
        model = job.model
        self._parameters = _prefix([float(layer.parameters) for layer in model.layer_list])
        blocks = np.zeros(len(model.layer_list))
        blocks[1:-1] = 1.0
        self._blocks = _prefix(blocks)

    def _layer_prefix(
        self, domain: int, tp: int, micro_batch: int, recompute: Recompute
    ) -> tuple[Float, Float]:
        key = (domain, tp, micro_batch, recompute)
        if key not in self._times:
            times = self._compute(self._job.model, self._domains[domain], tp, micro_batch, recompute)
            self._times[key] = (_prefix(times.forward_s), _prefix(times.backward_s))
        return self._times[key]

    def costs(
        self, positions: tuple[Slot, ...], cuts: Int, dp: int, micro_batch: int, micro_batches: int,
        layouts: Sequence[Layout], *, schedule: str, recompute: Recompute, zero: int, extra: int,
    ) -> StageCosts:  # fmt: skip
        """Stage costs of the plans `cuts` (P, n + 1), whose shares have `layouts` (n,)."""
        starts, ends = stage_bounds(cuts, positions)
        ends = np.maximum(ends, starts)
        forward, backward = np.empty(starts.shape), np.empty(starts.shape)
        sync, update = np.empty(starts.shape), np.empty(starts.shape)
        for i, slot in enumerate(positions):
            first, past = starts[:, i], ends[:, i]
            prefix_f, prefix_b = self._layer_prefix(slot.domain, slot.tp, micro_batch, recompute)
            forward[:, i] = prefix_f[past] - prefix_f[first]
            backward[:, i] = prefix_b[past] - prefix_b[first]
            parameters = (self._parameters[past] - self._parameters[first]) / slot.tp
            sync[:, i] = self._sync_s(parameters, slot, dp, zero, layouts[slot.share])
            speed = self._domains[slot.domain].gpu.memory_bandwidth_bytes_s * OPTIMISER_MEMORY_EFFICIENCY
            update[:, i] = parameters / (dp if zero >= 1 else 1) * OPTIMISER_BYTES / speed
        warmup = warmup_of(positions, micro_batches, extra)
        flight = (
            np.full(len(positions), micro_batches)
            if schedule == "gpipe"
            else np.minimum(warmup + 1, micro_batches)
        )
        peak = self._peak_bytes(positions, starts, ends, dp, micro_batch, flight, recompute, zero)
        return StageCosts(
            positions, forward, backward, sync, update, warmup, peak, np.all(ends > starts, axis=1)
        )

    def _sync_s(self, parameters: Float, slot: Slot, dp: int, zero: int, shape: Layout) -> Float:
        """Gradients reduced over dp, weights gathered where the optimiser is sharded: reduce-scatter +
        all-gather."""
        if dp == 1:
            return np.zeros_like(parameters)
        gradient_bytes = (
            2.0 if self._job.model.dtype == "fp16" else 4.0
        )  # Megatron reduces bf16 gradients in fp32
        gathered_bytes = 2.0 if zero >= 1 else gradient_bytes
        domain = self._domains[slot.domain]
        intra = Path(domain.intra_node_bps, domain.intra_node_latency_s)
        inter = Path(domain.inter_node_bps, domain.inter_node_latency_s)
        local, nodes = shape.dp_local[slot.inner], shape.dp_nodes[slot.inner]
        size = parameters * (gradient_bytes + gathered_bytes)
        fixed = 2 * (all_gather_s(0.0, local, intra) + all_gather_s(0.0, nodes, inter))
        per_byte = (local - 1) / local / intra.bytes_s + (nodes - 1) / nodes / local / inter.bytes_s
        return fixed + size * per_byte

    def _peak_bytes(
        self, positions: tuple[Slot, ...], starts: Int, ends: Int, dp: int, micro_batch: int,
        flight: Int, recompute: Recompute, zero: int,
    ) -> Float:  # fmt: skip
        """Peak bytes per GPU (P, S): states, activations in flight, the largest temporary, workspace."""
        model = self._job.model
        n = len(model.layer_list)
        per_parameter = memory.state_bytes_per_parameter(zero, dp)
        peak = np.empty(starts.shape)
        for i, slot in enumerate(positions):
            first, past = starts[:, i], ends[:, i]
            parameters = (self._parameters[past] - self._parameters[first]) / slot.tp
            if model.tied:  # one copy where the first and the last layer share a GPU
                parameters -= np.where((first == 0) & (past == n), model.vocab * model.hidden / slot.tp, 0.0)
            blocks = self._blocks[past] - self._blocks[first]
            sharded = slot.tp > 1
            stored = blocks * memory.block_activation_bytes(model, slot.tp, recompute, sharded)
            stored += (first == 0) * memory.embedding_activation_bytes(model, slot.tp)
            temporary = (past == n) * memory.head_activation_bytes(model, slot.tp)
            if recompute == "full":
                working = memory.recompute_working_bytes(model, slot.tp, sharded)
                temporary = np.maximum(temporary, (blocks > 0) * working)
            activations = micro_batch * (stored * flight[i] + temporary)
            peak[:, i] = parameters * per_parameter + activations + memory.WORKSPACE_BYTES
        return peak
