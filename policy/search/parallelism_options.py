"""What plans may choose from on the GPUs that live: parallel sizes, and what their stages cost.

One menu serves every decision of a run until GPUs come or go. It is tables only, for `policy.scoring` (exact
times) and `policy.pacing` (good splits); all costs are the Estimator's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S, transmission_s
from policy.search.plan_shapes import choices
from twin.core import placement
from twin.costs import tied_embeddings as tied
from twin.core.domain import Domain
from twin.estimate.estimator import Estimator

Int = NDArray[np.int64]
Float = NDArray[np.float64]

FORWARD, BACKWARD, TAIL, BYTES_NONE, BYTES_EACH = range(5)
"""Second axis of `Menu.spans`: seconds of a micro-batch, seconds after the last backward, peak bytes without
activations, bytes of the activations of one micro-batch in flight."""


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes that all domains of a plan share."""

    dp: int
    micro_batch: int
    micro_batches: int


@dataclass(frozen=True, slots=True, eq=False)
class Menu:
    """C sizes x Z classes of domains x Q options (tp, pp) of at most J stages; unused entries are 0.

    `spans` (T, 5, N + 1, N + 1): costs of a stage that runs layers [a, b), one table for each distinct stage;
    `table` (C, Z, Q, J): that of stage j of an option. `inside` (2, C, Z, Q, J): occupancy and latency in ns
    of the boundary after stage j, `around` (C, Z, Q) what the first and the last stage of an option that
    holds the whole model take for a tied embedding. `options` (C, Z) counts; `memory` (Z,) bytes;
    `message_bytes` and `tied_bytes` (C,) of the activations, and of one step of exchanging a tied embedding,
    of all dp pipelines; `class_of` (K,), -1 for a domain without living GPUs.
    """

    sizes: tuple[Size, ...]
    class_of: Int
    options: Int
    tp: Int
    pp: Int
    table: Int
    inside: Int
    around: Int
    spans: Float
    memory: Float
    micro_batches: Int
    message_bytes: Float
    tied_bytes: Float

    def size(self, dp: int, micro_batch: int) -> int | None:
        """The number of a size, None where it is not on the menu."""
        found = [c for c, one in enumerate(self.sizes) if (one.dp, one.micro_batch) == (dp, micro_batch)]
        return found[0] if found else None

    def option(self, size: int, domain: int, tp: int, pp: int) -> int | None:
        """The number of (tp, pp) in a domain under a size, None where it is not on the menu."""
        z = int(self.class_of[domain])
        if z < 0:
            return None
        count = int(self.options[size, z])
        at = np.flatnonzero((self.tp[size, z, :count] == tp) & (self.pp[size, z, :count] == pp))
        return int(at[0]) if len(at) else None


def menu(estimator: Estimator, free_gpus: tuple[int, ...]) -> Menu:
    """The menu of the domains with `free_gpus` (K,) living GPUs."""
    domains, job = estimator.cluster.domains, estimator.job
    kinds = [_kind(domain, free) if free else None for domain, free in zip(domains, free_gpus, strict=True)]
    distinct = list(dict.fromkeys(kind for kind in kinds if kind is not None))
    examples = [kinds.index(kind) for kind in distinct]
    class_of = np.array([-1 if kind is None else distinct.index(kind) for kind in kinds], dtype=np.int64)
    found = [
        (size, [choices(estimator, k, size.dp, free_gpus) for k in examples])
        for size in _sizes(estimator, free_gpus)
    ]
    found = [(size, offers) for size, offers in found if any(offers)]
    stages = _Stages(estimator)
    count = (len(found), len(examples))
    widest = max((len(offer) for _, offers in found for offer in offers), default=0)
    deepest = max((pp for _, offers in found for offer in offers for _, pp in offer), default=0)
    options = np.zeros(count, np.int64)
    tp, pp = (np.zeros((*count, widest), np.int64) for _ in range(2))
    table = np.zeros((*count, widest, deepest), np.int64)
    inside = np.zeros((2, *count, widest, deepest), np.int64)
    around = np.zeros((*count, widest), np.int64)
    for c, (size, offers) in enumerate(found):
        for z, (example, offer) in enumerate(zip(examples, offers, strict=True)):
            options[c, z] = len(offer)
            for q, (width, depth) in enumerate(offer):
                tp[c, z, q], pp[c, z, q] = width, depth
                table[c, z, q, :depth] = [stages.number(example, size, width, j) for j in range(depth)]
                share = estimator.place(example, size.dp, width, depth)
                layout = placement.layout(share, domains[example], size.dp, width, depth)
                sent = job.message_bytes(size.micro_batch) / width
                inside[:, c, z, q, : depth - 1] = _fabric(domains[example], layout.crosses, sent)
                sent = tied.step_bytes(job, depth) / width
                around[c, z, q] = (
                    tied.STEPS * _fabric(domains[example], (layout.around,), sent).sum() * (sent > 0)
                )
    return Menu(
        tuple(size for size, _ in found), class_of, options, tp, pp, table, inside, around, stages.stacked(),
        np.array([float(domains[k].gpu.memory_bytes) for k in examples]),
        np.array([size.micro_batches for size, _ in found], dtype=np.int64),
        np.array([float(size.dp * job.message_bytes(size.micro_batch)) for size, _ in found]),
        np.array([float(size.dp * tied.step_bytes(job, 2)) for size, _ in found]),
    )  # fmt: skip


def _sizes(estimator: Estimator, free_gpus: Sequence[int]) -> list[Size]:
    job, found = estimator.job, []
    for dp in range(1, max(free_gpus, default=0) + 1):
        for micro_batch in sorted(job.micro_batches_allowed):
            count = job.micro_batches(dp, micro_batch)
            if count is not None:
                found.append(Size(dp, micro_batch, count))
    return found


def _kind(domain: Domain, free: int) -> tuple[object, ...]:
    """What two domains must share to have the same options at the same cost."""
    return (
        domain.gpu, domain.gpus, domain.gpus_per_node, domain.intra_node_bps, domain.inter_node_bps,
        domain.intra_node_latency_s, domain.inter_node_latency_s, free,
    )  # fmt: skip


class _Stages:
    """The tables of distinct stages, each computed once."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        n = estimator.n_layers
        self._spans = np.stack(np.triu_indices(n + 1, 1), axis=1)  # every [a, b)
        self._number: dict[tuple[int, int, int, int, tuple[int, ...]], int] = {}
        self._tables: list[Float] = []

    def number(self, domain: int, size: Size, tp: int, stage: int) -> int:
        """The table of a stage behind `stage` others of the same size in its domain."""
        machine = self._estimator.cluster.domains[domain]
        gpus = tuple(range(stage * size.dp * tp, (stage + 1) * size.dp * tp))
        layout = placement.layout(gpus, machine, size.dp, tp, 1)
        key = (domain, size.dp, size.micro_batch, tp, (*layout.dp_local, *layout.dp_nodes))
        if key not in self._number:
            self._number[key] = len(self._tables)
            self._tables.append(self._table(domain, size, tp, gpus[0]))
        return self._number[key]

    def _table(self, domain: int, size: Size, tp: int, first_gpu: int) -> Float:
        n, spans = self._estimator.n_layers, self._spans
        one, two = (
            self._estimator.share_costs(
                domain, spans, size.dp, tp, 1, size.micro_batch, in_flight=flight, first_gpu=first_gpu
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
        """All tables (T, 5, N + 1, N + 1)."""
        n = self._estimator.n_layers
        return np.stack(self._tables) if self._tables else np.zeros((0, 5, n + 1, n + 1))


def _fabric(domain: Domain, crosses: Sequence[bool], size_bytes: float) -> Int:
    """Occupancy and latency in ns (2, B) of messages inside a domain that cross nodes or do not, as
    `twin.boundaries` has them."""
    rows = [
        (transmission_s(size_bytes, domain.inter_node_bps), domain.inter_node_latency_s)
        if far
        else (transmission_s(size_bytes, domain.intra_node_bps), domain.intra_node_latency_s)
        for far in crosses
    ]
    ns: Int = np.rint(np.array(rows).reshape(-1, 2).T * NS_PER_S).astype(np.int64)
    return ns
