"""What the GPUs of a stage hold: parameters by the ranks that share them, and bytes at the peak."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.core.transformer import Transformer
from twin.costs import context_exchange, expert_mlp, memory

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Spans = Sequence[tuple[Int, Int]]
"""First layer and past the last (P,) of each chunk that a stage holds."""
Counts = dict[bool, Float]
"""Blocks of a stage (P,) without experts (False) and with (True)."""


class Group(NamedTuple):
    """Parameters of one GPU (P,) of which the data-parallel ranks of a stage hold equal copies, but for
    experts: each of `ep` neighbours has others of its own. `frozen`: they are not trained."""

    parameters: Float
    ep: int = 1
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class Flight:
    """Micro-batches whose activations a stage holds at the peak, of several stages (S, 1), and whose logits
    the last stage holds."""

    activations: float | Float
    logits: float


def of_layers(prefix: Float, held: Spans) -> Float:
    """Sum over the layers that a stage holds (P,), from a prefix sum over layers."""
    (first, past), *others = held
    total: Float = prefix[past] - prefix[first]
    for first, past in others:
        total = total + (prefix[past] - prefix[first])
    return total


def added(values: Sequence[Float]) -> Float:
    """Sum of one or more arrays."""
    return sum(values[1:], values[0])


def prefix_sum(values: Float | list[float]) -> Float:
    """Sums of the first 0..N values (N + 1,)."""
    return np.concatenate([[0.0], np.cumsum(values)])


class Holdings:
    """Sums over the layers of one job's model."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        layers = job.model.layers()
        blocks = layers[1:-1]
        self._whole = prefix_sum([float(layer.parameters - layer.routed) for layer in layers])
        self._trained = prefix_sum([float(layer.trained) for layer in layers])
        self._routed = prefix_sum([float(layer.routed) for layer in layers])
        self._kinds = {
            mixed: prefix_sum([0.0, *(float((layer.routed > 0) == mixed) for layer in blocks), 0.0])
            for mixed in sorted({layer.routed > 0 for layer in blocks})
        }

    def groups(self, held: Spans, tp: int, ep: int) -> tuple[Group, ...]:
        """Parameters of a GPU: those of all ranks, where the model has experts those, and where it has
        adapters these."""
        adapted = self._job.model.adapters is not None
        whole, more = of_layers(self._whole, held) / tp, tuple[Group, ...]()
        if adapted:
            trained = of_layers(self._trained, held) / tp
            whole, more = whole - trained, (Group(trained),)
        if self._job.model.experts is None:
            return (Group(whole, frozen=adapted), *more)
        routed = of_layers(self._routed, held) / (tp * ep)
        return (Group(whole, frozen=adapted), Group(routed, ep, adapted), *more)

    def peak_bytes(
        self, groups: Sequence[Group], held: Spans, tp: int, sketch: Plan, flight: Flight
    ) -> tuple[Float, Float]:
        """Peak bytes per GPU (P,): states, activations of the micro-batches in `flight`, largest temporary,
        workspace; and bytes of one more micro-batch.

        The peak is the first backward: one micro-batch's output layer or one block is worked on, the output
        layers of the others wait. So it grows by the same bytes with every micro-batch in flight.
        """
        model, switches = self._job.model, self._job.switches
        micro_batch = (
            sketch.micro_batch / sketch.context_parallel
        )  # a context rank keeps its part of the tokens
        sharded = sketch.sequence_parallel or switches.shard_activations
        first, last = held[0][0] == 0, held[-1][1] == len(model.layers())
        counts = {mixed: of_layers(prefix, held) for mixed, prefix in self._kinds.items()}
        stored = self._stored(counts, tp, sketch, sharded)
        stored += first * memory.embedding_activation_bytes(model, tp, sharded)
        each = memory.head_activation_bytes(model, tp, sharded, switches.fp32_logits) * micro_batch
        waiting = last * each * (flight.logits - 1)
        adapted = model.adapters is not None
        head = each + memory.unsharded_bytes(model.head_parameters / tp, sketch.zero, adapted)
        temporary = np.maximum(last * head, self._working(counts, tp, sketch, sharded))
        activations = micro_batch * stored * flight.activations + waiting
        states = self._states(groups, first & last, tp, sketch)
        peak: Float = states + activations + temporary + memory.WORKSPACE_BYTES
        return peak, micro_batch * stored + last * each

    def _states(self, groups: Sequence[Group], both_ends: NDArray[np.bool_], tp: int, sketch: Plan) -> Float:
        model, offloaded = self._job.model, self._job.switches.offload_optimiser
        found = []
        for n, (parameters, ep, frozen) in enumerate(groups):
            if n == 0 and model.tied:  # one copy where the first and the last layer share a GPU
                parameters = parameters - both_ends * (model.vocab * model.hidden / tp)
            each = memory.state_bytes_per_parameter(
                sketch.zero, sketch.dp // ep, model.dtype, offloaded, frozen
            )
            found.append(parameters * each)
        return added(found)

    def _stored(self, counts: Counts, tp: int, sketch: Plan, sharded: bool) -> Float:
        """Bytes per sequence (P,) that the blocks store for one micro-batch."""
        return added([
            count * self._block_bytes(tp, sketch.recompute, sharded, mixed) for mixed, count in counts.items()
        ])  # fmt: skip

    def _block_bytes(self, tp: int, recompute: str, sharded: bool, mixed: bool) -> float:
        imbalance = self._job.switches.expert_imbalance
        return memory.block_activation_bytes(self._job.model, tp, recompute, sharded, mixed, imbalance)  # type: ignore[arg-type]

    def _working(self, counts: Counts, tp: int, sketch: Plan, sharded: bool) -> Float:
        """Bytes (P,) of the one block that is worked on, beyond what it stores."""
        model, ranks = self._job.model, sketch.context_parallel
        found: list[Float] = []
        others = context_exchange.held_bytes(model, tp, ranks, self._job.switches.context_exchange)
        for mixed, count in counts.items():
            own = _block_parameters(model, tp, sketch.ep, mixed)
            working = memory.unsharded_bytes(own, sketch.zero, model.adapters is not None)
            if sketch.recompute == "full":
                working += self._block_bytes(tp, "none", sharded, mixed) * sketch.micro_batch / ranks
            working += others * sketch.micro_batch
            found.append(np.where(count > 0, working, 0.0))
        most: Float = found[0] if len(found) == 1 else np.maximum(*found)
        return most

    def delayed_bytes(self, held: Spans, tp: int, sketch: Plan, delayed: Int) -> Float:
        """Bytes (S, P) that the `delayed` micro-batches (S, 1) between input and weight gradient store beyond
        those in flight: with full recompute the inputs of the products, which were made again for the input
        gradient."""
        total: Float = np.zeros(held[0][0].shape)
        sequences = sketch.micro_batch / sketch.context_parallel
        for mixed, count in self._kinds.items():
            kept, now = (
                self._block_bytes(tp, mode, tp > 1, mixed) for mode in ("selective", sketch.recompute)
            )
            total = total + of_layers(count, held) * max(kept - now, 0.0) * (delayed * sequences)
        return total


def _block_parameters(model: Transformer, tp: int, ep: int, mixed: bool) -> float:
    """Parameters of a block, `mixed`: of experts, on one GPU."""
    if not mixed:
        return model.block_parameters / tp
    whole = (model.mixture_parameters - model.routed_parameters) / tp
    return whole + expert_mlp.held_parameters(model, tp, ep)
