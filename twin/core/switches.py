"""Switches of a training framework that a plan does not choose: what is sharded, overlapped and kept."""

from dataclasses import dataclass
from typing import Literal

GradientDtype = Literal["bf16", "fp16", "fp32"]
ContextExchange = Literal["ring", "all-gather"]


@dataclass(frozen=True, slots=True)
class TensorMode:
    """Mode in which GPUs share a block.

    `sequence_parallel`: norms, dropout and residuals run on 1/tp of the tokens, and a reduce-scatter and an
    all-gather take the place of each all-reduce (Korthikanti et al. 2022, section 4.2.2). `overlapped`: its
    collectives run in tp pieces beside the block's products (Wang et al., ASPLOS 2023; Transformer Engine's
    user buffers, NeMo's ub_tp_comm_overlap).

    `context_parallel`: ranks that split each sequence, whose keys and values go round by `context_exchange`
    (`twin.costs.context_exchange`).

    `expert_parallel`: ranks that share the experts of a block (`twin.costs.expert_mlp`); `expert_imbalance`:
    tokens of the busiest of them over the mean.
    """

    sequence_parallel: bool = False
    overlapped: bool = False
    context_parallel: int = 1
    context_exchange: ContextExchange = "ring"
    expert_parallel: int = 1
    expert_imbalance: float = 1.0


PLAIN = TensorMode()


@dataclass(frozen=True, slots=True)
class Switches:
    """Switches of a job, the same for all of its plans.

    `shard_activations`: what a tensor group holds twice is kept in shards even without sequence parallelism
    (partitioned activations: Rajbhandari et al. 2020, section 6.1; --distribute-saved-activations of
    Megatron).

    `gradient_dtype` of reductions, None: fp16 as it is, all else in fp32 (Megatron). `overlap_reduction`:
    gradients are reduced beside the last backward, None: with the distributed optimiser, as in Megatron.
    `bucket_bytes`: size of a bucket of gradients, None: an eighth of a chunk's.

    `fp32_logits`: the loss keeps its logits in fp32 (PyTorch's cross entropy). `context_bytes`: what a
    process holds besides the allocator's blocks, None: `twin.costs.memory.WORKSPACE_BYTES`.

    `tp_overlap`, `context_exchange`, `expert_imbalance`: those of `TensorMode`. `offload_optimiser`:
    optimiser states and Adam are the host's.
    """

    shard_activations: bool = True
    gradient_dtype: GradientDtype | None = None
    overlap_reduction: bool | None = None
    bucket_bytes: float | None = None
    fp32_logits: bool = False
    context_bytes: int | None = None
    tp_overlap: bool = False
    offload_optimiser: bool = False
    context_exchange: ContextExchange = "ring"
    expert_imbalance: float = 1.0


DEFAULT = Switches()
