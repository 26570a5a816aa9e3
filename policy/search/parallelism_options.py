"""The parallel sizes that a plan may choose on the living GPUs, with the cost of every stage, as arrays.

They stay valid until GPUs fail or return. `policy.search.batch_scoring` computes exact times from them and
`policy.search.bottleneck_split` good splits; every number is the Estimator's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from policy.search.plan_shapes import choices
from twin.core import placement
from twin.core.domain import Domain
from twin.costs.boundary_terms import ends_ns, fabric_terms, wide_area_bytes
from twin.costs.tied_embeddings import step_bytes
from twin.estimation.estimator import Estimator

Int = NDArray[np.int64]
Float = NDArray[np.float64]

FORWARD, BACKWARD, TAIL, BYTES_NONE, BYTES_EACH = range(5)
"""Second axis of `OptionArrays.spans`: seconds of a micro-batch, seconds after the last backward, peak bytes
without activations, bytes of the activations of one micro-batch in flight."""


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes that all domains of a plan share."""

    dp: int
    micro_batch: int
    micro_batches: int
    ep: int


class OptionArrays(NamedTuple):
    """C sizes, Z classes of equal domains, Q options (tp, pp) of at most J stages, N layers; unused entries
    are 0."""

    class_of: Int  # (K,) class of each domain, -1 without living GPUs
    option_count: Int  # (C, Z)
    tp: Int  # (C, Z, Q)
    pp: Int  # (C, Z, Q)
    stage_table: Int  # (C, Z, Q, J) index into `spans` of stage j of an option
    inside: Int  # (2, C, Z, Q, J) occupancy and latency, ns, of the boundary after stage j
    tied_inside_ns: Int  # (C, Z, Q) tied-embedding exchange of an option that holds the whole model
    spans: Float  # (T, 5, N + 1, N + 1) costs of a stage with layers [a, b), see `FORWARD`
    memory_bytes: Float  # (Z,)
    micro_batches: Int  # (C,)
    message_bytes: Float  # (C,) activations of all dp pipelines
    tied_bytes: Float  # (C,) one step of a tied-embedding exchange, all dp pipelines


@dataclass(frozen=True, slots=True, eq=False)
class ParallelismOptions:
    """The C sizes and the arrays over them."""

    sizes: tuple[Size, ...]
    arrays: OptionArrays

    def size(self, dp: int, micro_batch: int, ep: int) -> int | None:
        """Returns the index of a size, None where it is not offered."""
        key = (dp, micro_batch, ep)
        found = [c for c, one in enumerate(self.sizes) if (one.dp, one.micro_batch, one.ep) == key]
        return found[0] if found else None

    def option(self, size: int, domain: int, tp: int, pp: int) -> int | None:
        """Returns the index of (tp, pp) in a domain under a size, None where it is not offered."""
        z = int(self.arrays.class_of[domain])
        if z < 0:
            return None
        count = int(self.arrays.option_count[size, z])
        tps, pps = self.arrays.tp[size, z, :count], self.arrays.pp[size, z, :count]
        found = np.flatnonzero((tps == tp) & (pps == pp))
        return int(found[0]) if len(found) else None


Offers = list[tuple[Size, list[list[tuple[int, int]]]]]
"""Each size with the (tp, pp) of each class."""


def parallelism_options(estimator: Estimator, free_gpus: tuple[int, ...]) -> ParallelismOptions:
    """Returns the options of the domains with `free_gpus` (K,) living GPUs."""
    domains, job = estimator.cluster.domains, estimator.job
    kinds = [_kind(domain, free) if free else None for domain, free in zip(domains, free_gpus, strict=True)]
    distinct = list(dict.fromkeys(kind for kind in kinds if kind is not None))
    examples = [kinds.index(kind) for kind in distinct]
    class_of = np.array([-1 if kind is None else distinct.index(kind) for kind in kinds], dtype=np.int64)
    offers = [
        (size, [choices(estimator, k, size.dp, free_gpus) for k in examples])
        for size in _sizes(estimator, free_gpus)
    ]
    offers = [(size, by_class) for size, by_class in offers if any(by_class)]
    sizes = tuple(size for size, _ in offers)
    wide_area = [wide_area_bytes(job, size.dp, size.micro_batch, 2) for size in sizes]
    arrays = OptionArrays(
        class_of,
        *_option_arrays(estimator, examples, offers),
        np.array([float(domains[k].gpu.memory_bytes) for k in examples]),
        np.array([size.micro_batches for size in sizes], dtype=np.int64),
        *np.array(wide_area, np.float64).reshape(-1, 2).T.copy(),
    )
    return ParallelismOptions(sizes, arrays)


def _option_arrays(
    estimator: Estimator, examples: Sequence[int], offers: Offers
) -> tuple[Int, Int, Int, Int, Int, Int, Float]:
    """Returns `option_count` to `spans` of `OptionArrays`; `examples` holds one domain of each class."""
    stages, count = _StageTables(estimator), (len(offers), len(examples))
    every = [offer for _, by_class in offers for offer in by_class]
    widest = max(map(len, every), default=0)
    deepest = max((pp for offer in every for _, pp in offer), default=0)
    option_count = np.zeros(count, np.int64)
    tp, pp, tied = (np.zeros((*count, widest), np.int64) for _ in range(3))
    table = np.zeros((*count, widest, deepest), np.int64)
    inside = np.zeros((2, *count, widest, deepest), np.int64)
    for c, (size, by_class) in enumerate(offers):
        for z, (example, offer) in enumerate(zip(examples, by_class, strict=True)):
            option_count[c, z] = len(offer)
            for q, (width, depth) in enumerate(offer):
                tp[c, z, q], pp[c, z, q] = width, depth
                table[c, z, q, :depth] = [stages.number(example, size, width, j) for j in range(depth)]
                inside[:, c, z, q, : depth - 1], tied[c, z, q] = _inside(
                    estimator, example, size, width, depth
                )
    return option_count, tp, pp, table, inside, tied, stages.stacked()


def _inside(estimator: Estimator, domain: int, size: Size, tp: int, pp: int) -> tuple[Int, int]:
    """Returns occupancy and latency (2, pp - 1) in ns of the boundaries inside a domain, and the ns of a
    tied-embedding exchange between its first and last stage."""
    machine, job = estimator.cluster.domains[domain], estimator.job
    gpus = estimator.place(domain, size.dp, tp, pp)
    layout = placement.layout(gpus, machine, size.dp, tp, pp)
    sent, tied = job.message_bytes(size.micro_batch) / tp, step_bytes(job, pp) / tp
    boundaries = np.zeros((2, pp - 1), np.int64)
    for j, between_nodes in enumerate(layout.crosses):
        boundaries[:, j] = fabric_terms(machine, between_nodes, sent)[:2]
    step = fabric_terms(machine, layout.around, 0.0, tied).tied
    return boundaries, int(ends_ns(step, step))


def _sizes(estimator: Estimator, free_gpus: Sequence[int]) -> list[Size]:
    job, found = estimator.job, []
    for dp in range(1, max(free_gpus, default=0) + 1):
        for micro_batch in sorted(job.micro_batches_allowed):
            count = job.micro_batches(dp, micro_batch)
            if count is not None:
                found += [Size(dp, micro_batch, count, ep) for ep in job.degrees(dp)]
    return found


def _kind(domain: Domain, free: int) -> tuple[object, ...]:
    """Returns what two domains must have in common to have the same options at the same cost."""
    return (
        domain.gpu, domain.gpus, domain.gpus_per_node, domain.intra_node_bps, domain.inter_node_bps,
        domain.intra_node_latency_s, domain.inter_node_latency_s, free,
    )  # fmt: skip


_Stage = tuple[tuple[object, ...], Size, int, tuple[int, ...]]
"""Machine, size, tp and layout: stages with the same ones cost the same."""
_KNOWN: WeakKeyDictionary[Estimator, dict[_Stage, Float]] = WeakKeyDictionary()
"""Tables of stages, parts of the arrays made so far: GPUs that fail or return leave them as they are."""


class _StageTables:
    """The cost tables of distinct stages, each computed once."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator, self._known = estimator, _KNOWN.setdefault(estimator, {})
        n = estimator.n_layers
        self._spans = np.stack(np.triu_indices(n + 1, 1), axis=1)  # every [a, b)
        self._number: dict[_Stage, int] = {}
        self._tables: list[Float] = []

    def number(self, domain: int, size: Size, tp: int, stage: int) -> int:
        """Returns the index of the table of a stage behind `stage` others of the same size in its domain."""
        machine = self._estimator.cluster.domains[domain]
        gpus = tuple(range(stage * size.dp * tp, (stage + 1) * size.dp * tp))
        layout = placement.layout(gpus, machine, size.dp, tp, 1)
        key = (_kind(machine, 0), size, tp, (*layout.dp_local, *layout.dp_nodes))
        if key not in self._number:
            self._number[key] = len(self._tables)
            known = self._known.get(key)
            self._tables.append(self._table(domain, size, tp, gpus[0]) if known is None else known)
        return self._number[key]

    def _table(self, domain: int, size: Size, tp: int, first_gpu: int) -> Float:
        n, spans = self._estimator.n_layers, self._spans
        one, two = (
            self._estimator.share_costs(
                domain,
                spans,
                size.dp,
                tp,
                1,
                size.micro_batch,
                in_flight=flight,
                first_gpu=first_gpu,
                ep=size.ep,
            )
            for flight in (1, 2)
        )
        each = two.peak_bytes[0] - one.peak_bytes[0]
        table = np.zeros((5, n + 1, n + 1))
        table[:, spans[:, 0], spans[:, 1]] = (
            one.forward_s[0], one.backward_s[0], one.update_s[0] + one.sync_s[0],
            one.peak_bytes[0] - each, each,
        )  # fmt: skip
        return table

    def stacked(self) -> Float:
        """Returns all tables (T, 5, N + 1, N + 1)."""
        n = self._estimator.n_layers
        stacked = np.stack(self._tables) if self._tables else np.zeros((0, 5, n + 1, n + 1))
        for key, number in self._number.items():
            self._known.setdefault(key, stacked[number])
        return stacked
