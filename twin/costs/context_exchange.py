"""Attention under context parallelism: every GPU of a group holds 1/c of each sequence and sees all keys and
values.

Ring (Liu et al. 2023, arXiv:2310.01889, algorithm 1; `cp_comm_type: p2p` of Megatron-Core): c steps, in which
keys and values travel on to the next rank while the present ones are worked on. Backward the gradients of
keys and values travel behind them, one step later, and take a last hop home. All-gather (Llama 3: Dubey et
al. 2024, section 3.3.2): keys and values are gathered before the core, again before its backward, and their
gradients scattered after it, beside nothing.

Every rank has an equal part of a causal core: sequences are cut into 2 c parts, and a rank holds one from
each end (the same section).
"""

from collections.abc import Sequence

from twin.core.domain import Domain
from twin.core.switches import ContextExchange
from twin.core.transformer import Transformer
from twin.costs.collectives import Level, Path, hierarchical_all_gather_s, levels_of

Ways = tuple[float, float]
"""Seconds forward and backward."""


def context_levels(domain: Domain, tp: int, ranks: int) -> tuple[Level, Level]:
    """Levels of a group of `ranks` neighbouring tensor groups of `tp` GPUs."""
    intra = Path(domain.intra_node_bps, domain.intra_node_latency_s)
    inter = Path(domain.inter_node_bps, domain.inter_node_latency_s)
    return levels_of(ranks, max(1, domain.gpus_per_node // tp), intra, inter)


def block_bytes(model: Transformer, tp: int, micro_batch: int, ranks: int) -> float:
    """Keys and values that a rank holds; a tensor group wider than the key-value heads repeats them."""
    widths = (model.kv_hidden + model.value_hidden) / model.kv_heads * max(1.0, model.kv_heads / tp)
    return model.bytes_per_element * micro_batch * (model.seq / ranks) * widths


def ring_s(piece: Ways, size_bytes: float, levels: Sequence[Level]) -> Ways:
    """Seconds of a core in which each of the c steps takes `piece`, a block of `size_bytes` a hop.

    A ring over nodes is paced by the hop between two of them.
    """
    ranks = levels[0][0] * levels[1][0]
    path = levels[1 if levels[1][0] > 1 else 0][1]
    once, both = (path.latency_s + blocks * size_bytes / path.bytes_s for blocks in (1, 2))
    forward = piece[0] + (ranks - 1) * max(piece[0], once)
    return forward, 2 * max(piece[1], once) + (ranks - 2) * max(piece[1], both) + once


def all_gather_s(core: Ways, size_bytes: float, levels: Sequence[Level]) -> Ways:
    """Seconds of a rank's whole `core` and of what is gathered before and scattered after it."""
    gather_s = hierarchical_all_gather_s(levels[0][0] * levels[1][0] * size_bytes, levels)
    return core[0] + gather_s, core[1] + 2 * gather_s


def collectives(exchange: ContextExchange, ranks: int) -> tuple[int, int]:
    """Messages that the host issues for one block, forward and backward."""
    if ranks == 1:
        return 0, 0
    return (ranks - 1, 2 * ranks - 1) if exchange == "ring" else (1, 2)


def held_bytes(model: Transformer, tp: int, ranks: int, exchange: ContextExchange) -> float:
    """Bytes per sequence of keys and values of others, of the one block that is worked on: a ring holds the
    block in use and the one that arrives."""
    blocks = min(2, ranks - 1) if exchange == "ring" else ranks - 1
    return blocks * block_bytes(model, tp, 1, ranks)
