"""Seconds and layer capacity of stages of (tp, pp) in a domain under a knob, by the Estimator's stage
model."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from twin.core import placement
from twin.core.layer_split import stage_layers
from twin.core.plan import Plan, Share
from twin.costs.boundary_terms import ends_ns, fabric_terms
from twin.costs.stage_costs import StageCosts, slots
from twin.costs.tied_embeddings import step_bytes
from twin.estimation.estimator import Estimator

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Knob:
    """dp and micro-batch size, common to all domains of a plan, and the number of micro-batches."""

    dp: int
    micro_batch: int
    micro_batches: int


class CostsOfOption(NamedTuple):
    """Costs of one option, by the names of the methods of `OptionCosts`."""

    layer_seconds: Float
    collectives: Float
    update: Float
    fabric: Int
    tied: int
    capacity: Int


_KNOWN: WeakKeyDictionary[Estimator, dict[tuple[object, ...], CostsOfOption]] = WeakKeyDictionary()
"""GPUs that fail or return leave the costs of the others as they are."""


class OptionCosts:
    """Costs of `pp` stages of `tp` GPUs in domain `k` under a knob."""

    def __init__(self, estimator: Estimator):
        self._estimator, self._model, self._n = estimator, estimator._model, estimator.n_layers

    def all(self, k: int, tp: int, pp: int, knob: Knob, flights: int) -> CostsOfOption:
        """Returns all costs of an option, computed once for equal domains of an estimator."""
        d = self._estimator.cluster.domains[k]
        machine = (
            d.gpu, d.gpus_per_node, d.intra_node_bps, d.inter_node_bps, d.intra_node_latency_s,
            d.inter_node_latency_s,
        )  # fmt: skip
        known, key = _KNOWN.setdefault(self._estimator, {}), (machine, tp, pp, knob, flights)
        if key not in known:
            known[key] = CostsOfOption(
                self.layer_seconds(k, tp, knob), self.collectives(k, tp, pp, knob),
                self.update(k, tp, pp, knob), self.fabric(k, tp, pp, knob), self.tied(k, tp, pp, knob),
                self.capacity(k, tp, knob, flights),
            )  # fmt: skip
        return known[key]

    def layer_seconds(self, k: int, tp: int, knob: Knob) -> Float:
        """Forward and backward seconds of the first 0..N layers, (2, N + 1)."""
        position = slots((k,), ((tp, 1),))[0]
        forward, backward = self._model._layer_prefix(position, self._single_share_plan(k, tp, 1, knob, 1))[
            :2
        ]
        return np.stack([forward, backward])

    def collectives(self, k: int, tp: int, pp: int, knob: Knob) -> Float:
        """Seconds of a stage's gradient collectives, affine in the parameters of its GPUs: (2, 2, pp) as in
        `CostTables.collective`; 0 where dp is 1.
        """
        if knob.dp == 1:
            return np.zeros((2, 2, pp))
        plan = self._single_share_plan(k, tp, pp, knob, 1)
        shape = self._layout(k, tp, pp, knob)
        held = np.array([0.0, 1e9])
        seconds = [self._model.collectives_s(held, slot, plan, shape) for slot in slots((k,), ((tp, pp),))]
        ends = np.array(seconds)  # (pp, 2, 2): stage, reduce or gather, without and with parameters
        return np.stack([ends[:, :, 0], (ends[:, :, 1] - ends[:, :, 0]) / held[1]], axis=-1).transpose(
            1, 2, 0
        )

    def update(self, k: int, tp: int, pp: int, knob: Knob) -> Float:
        """Seconds of the optimiser per parameter of a GPU, (pp,)."""
        costs = self._costs(k, tp, pp, knob, np.array([[0, self._n]]))
        result: Float = costs.update_s[:, 0] / (_stage_parameters(self._estimator, self._n, pp) / tp)
        return result

    def fabric(self, k: int, tp: int, pp: int, knob: Knob) -> Int:
        """Occupancy and latency of the boundaries inside a share, ns (2, pp - 1)."""
        domain, size = self._estimator.cluster.domains[k], self._estimator.job.message_bytes(knob.micro_batch)
        rows = [fabric_terms(domain, far, size / tp)[:2] for far in self._layout(k, tp, pp, knob).crosses]
        ns: Int = np.array(rows, np.int64).reshape(-1, 2).T
        return ns

    def tied(self, k: int, tp: int, pp: int, knob: Knob) -> int:
        """Ns of the exchange for a tied embedding inside a share that holds the whole model."""
        domain, around = self._estimator.cluster.domains[k], self._layout(k, tp, pp, knob).around
        step_ns = fabric_terms(domain, around, 0.0, step_bytes(self._estimator.job, pp) / tp).tied
        return int(ends_ns(step_ns, step_ns))

    def capacity(self, k: int, tp: int, knob: Knob, flights: int) -> Int:
        """Largest number of layers of one stage with 1..F micro-batches in flight, without and with the
        embedding and the head, (F, 2, 2). Memory is affine in the micro-batches in flight."""
        memory = self._estimator.cluster.domains[k].gpu.memory_bytes
        n = self._n
        counts = np.arange(1, n)
        starts = {(0, 0): np.ones_like(counts), (1, 0): np.zeros_like(counts), (0, 1): n - counts}
        result = np.zeros((flights, 2, 2), np.int64)
        flight = np.arange(1, flights + 1)[:, None]
        for (first, last), start in starts.items():
            cuts = np.stack([start, start + counts], axis=1)[: n - 2 if (first, last) == (0, 0) else None]
            one, two = (self._costs(k, tp, 1, knob, cuts, flight=f).peak_bytes[0] for f in (1, 2))
            fits = one + (flight - 1) * (two - one) <= memory
            result[:, first, last] = np.where(fits.all(1), fits.shape[1], fits.argmin(1))
        whole = np.array([[0, n]])
        one, two = (self._costs(k, tp, 1, knob, whole, flight=f).peak_bytes[0] for f in (1, 2))
        result[:, 1, 1] = np.where((one + (flight - 1) * (two - one) <= memory)[:, 0], n, 0)
        return result

    def _costs(self, k: int, tp: int, pp: int, knob: Knob, cuts: Int, flight: int = 1) -> StageCosts:
        """Stage costs of a single share with exactly `flight` micro-batches in flight (GPipe)."""
        plan = self._single_share_plan(k, tp, pp, knob, flight)
        layout = self._layout(k, tp, pp, knob)
        return self._model.costs(slots((k,), ((tp, pp),)), cuts, [layout], plan)

    def _layout(self, k: int, tp: int, pp: int, knob: Knob) -> placement.Layout:
        domain = self._estimator.cluster.domains[k]
        return placement.layout(placement.packed(knob.dp, tp, pp), domain, knob.dp, tp, pp)

    def _single_share_plan(self, k: int, tp: int, pp: int, knob: Knob, flight: int) -> Plan:
        job = self._estimator.job
        return Plan(
            (Share(k, pp, tp, pp, placement.packed(knob.dp, tp, pp)),),
            knob.dp,
            knob.micro_batch,
            flight,
            schedule="gpipe",
            p2p=job.p2p,
            recompute=job.recompute,
            zero=job.zero,
            sequence_parallel=job.sequence_parallel,
            context_parallel=job.context_parallel,
            ep=job.ep_of(knob.dp),
        )


def _stage_parameters(estimator: Estimator, layers: int, pp: int) -> Float:
    """Parameters of each of `pp` stages of a model of `layers` layers."""
    parameters = [float(layer.parameters) for layer in estimator.job.model.layers()]
    edges = np.concatenate([[0], np.cumsum(stage_layers(pp, layers, True, True))])
    return np.array([sum(parameters[a:b]) for a, b in pairwise(edges)])
