"""Experts of a block that a router picks: seconds on a GPU, what the ranks that share them send each other,
parameters and activations.

The ep ranks of an expert group, neighbours in the data-parallel order, hold E / ep experts each, and each
expert is divided over the tensor group (Megatron-Core's defaults). Every rank sends each of its tokens to the
`top_k` experts that the router picked, and gets the results back: two all-to-alls forward, two backward
(Lepikhin et al. 2020, arXiv:2006.16668, section 3; Rajbhandari et al. 2022, arXiv:2201.05596). With
sequence parallelism a GPU sends its 1/tp of the tokens, and its tensor group gathers the copies of all before
the experts and scatters the results behind them (the `alltoall` dispatcher of Megatron-Core). Without it
every GPU sends all tokens of its group, and the group sums the results of every token.

Tokens are spread evenly over the ranks, `expert_imbalance` times as many on the busiest one, for which the
others wait. No token is dropped.
"""

from twin.core.domain import Domain
from twin.core.switches import TensorMode
from twin.core.transformer import Transformer
from twin.costs.collectives import all_to_all_s, hierarchical_all_gather_s, hierarchical_all_reduces_s
from twin.costs.context_exchange import Ways, context_levels
from twin.costs.gpu_rates import Rates, matmul_flops_s
from twin.costs.kernel_times import CLASSIC, GATED, GRADIENT_BYTES, element_size, matmul_s, memory_s

ROUTE_BYTES, SORT_BYTES = 14.0, 8.0
"""Per copy of a token and hidden element in half precision, each way, as megatron/core/transformer/moe reads
and writes them: 4 to gather the copies, 4 to weigh the results, 6 to add them up (`moe_utils.permute`,
`unpermute`), on the GPU that sends them; 4 each to sort them by expert and back where a rank has several
(`sort_chunks_by_idxs`), on all GPUs of the tensor group."""
ROUTE_KERNELS = 6
"""Softmax and choice of the router, counts of tokens, order of the copies there and back, sum."""


def _experts(model: Transformer) -> tuple[int, int, int]:
    """Number, width and `top_k` of the experts."""
    assert model.experts is not None, "the model has no experts"
    return model.experts.count, model.experts.ffn, model.experts.top_k


def held_parameters(model: Transformer, tp: int, ep: int) -> float:
    """Parameters of a block's routed experts on one GPU."""
    return model.routed_parameters / (tp * ep)


def collectives(mode: TensorMode) -> int:
    """All-to-alls that the host issues for one block, each way."""
    return 2 if mode.expert_parallel > 1 else 0


def routed_s(
    model: Transformer, domain: Domain, rates: Rates, tp: int, tokens: float, mode: TensorMode
) -> Ways:
    """Forward and backward seconds of router and routed experts of one block, collectives included."""
    computed, sent = (
        _computed_s(model, domain, rates, tp, tokens, mode),
        _sent_s(model, domain, tp, tokens, mode),
    )
    return computed[0] + sent, computed[1] + sent


def _computed_s(
    model: Transformer, domain: Domain, rates: Rates, tp: int, tokens: float, mode: TensorMode
) -> Ways:
    """Seconds on the GPU. A grouped product takes as long as its FLOPs, or as its weights to be read."""
    gpu, (count, width, top_k) = domain.gpu, _experts(model)
    copies = tokens * top_k * mode.expert_imbalance
    own = tokens / tp if mode.sequence_parallel else tokens
    weights = held_parameters(model, tp, mode.expert_parallel)
    flops = 2.0 * copies * model.hidden * width * model.mlp_matrices / tp
    size = element_size(model)
    read_s = 2.0 * size * weights / gpu.memory_bandwidth_bytes_s
    once = max(flops / matmul_flops_s(gpu, rates, model.dtype), read_s)
    router_s = matmul_s(gpu, rates, 2.0 * own * model.hidden * count, 1, model.dtype)
    sort = SORT_BYTES if count > mode.expert_parallel else 0.0
    routing = (ROUTE_BYTES * own / tokens + sort) * copies * model.hidden * size
    passes = [copies * per_f * width / tp * size for per_f in (GATED if model.gated else CLASSIC).ffn]
    forward = router_s + 2 * rates.start_s + once + memory_s(gpu, routing + passes[0], ROUTE_KERNELS + 1)
    trained = model.adapters is None
    moved = routing + passes[1] + GRADIENT_BYTES * weights * trained
    products_s = (2 if trained else 1) * (router_s + 2 * rates.start_s + once)
    return forward, products_s + memory_s(gpu, moved, ROUTE_KERNELS + 1)


def _sent_s(model: Transformer, domain: Domain, tp: int, tokens: float, mode: TensorMode) -> float:
    """Seconds of a block's collectives for its routed experts, each way."""
    _, _, top_k = _experts(model)
    message = float(tokens * model.hidden * model.bytes_per_element)
    copies = message * top_k * mode.expert_imbalance
    levels = context_levels(domain, tp, mode.expert_parallel)
    group = context_levels(domain, 1, tp)
    if mode.sequence_parallel:
        return 2 * all_to_all_s(copies / tp, levels) + 2 * hierarchical_all_gather_s(copies, group)
    return 2 * all_to_all_s(copies, levels) + min(hierarchical_all_reduces_s(message, group))


def activation_bytes(model: Transformer, tp: int, sharded: bool, imbalance: float = 1.0) -> float:
    """Bytes that the routed experts of a block store per sequence: of each copy of a token its input, which
    every GPU of the tensor group has, what an MLP keeps, and its output, for the gradient of the router."""
    _, width, top_k = _experts(model)
    inside = width * (4 if model.gated else 2) / tp
    output = model.hidden / (tp if sharded else 1)
    copies = model.seq * top_k * imbalance
    return model.bytes_per_element * copies * (model.hidden + inside + output)
