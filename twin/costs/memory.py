"""Memory of a GPU: model states by ZeRO stage, activations by recompute mode.

Bytes per parameter follow Megatron's mixed precision (the table of its guide to the distributed optimiser):
in bf16 weights 2, fp32 gradients 4, fp32 master and two Adam moments 12 = 18, of which the distributed
optimiser shards the 12; in fp16 weights 2, gradients 2, and beside the 12 an fp32 copy of the gradients, 16
that are sharded: 20 or 4 + 16/dp.
Activations per layer follow Korthikanti et al. 2022, table 2: s b h (34 + 5 a s/h) for the classic block,
here written term by term so that grouped-query attention and gated MLPs come out right. A gated MLP
keeps four tensors of its width: so it was measured on an H200 (traces/profile-nvidia-h200), in
profiles-galvatron (llama) and in profiles-sailor (Llama-3-8B).
"""

from ingest.core.units import GIB, MIB
from twin.core.plan import Recompute, Schedule
from twin.core.transformer import Dtype, Transformer
from twin.costs import expert_mlp

WORKSPACE_BYTES = int(1.5 * GIB)
"""CUDA context, NCCL buffers, cuBLAS workspace and fragmentation: one constant per platform."""


HANDLES = 2
"""cuBLAS handles of a training process: of the thread that runs the forward and of that of the backward."""
CUBLAS_WORKSPACE_BYTES = (8_519_680, 32 * MIB)
"""Workspace of each, which PyTorch takes from its allocator: before Hopper, and from Hopper on
(`parseChosenWorkspaceSize` in aten/src/ATen/cuda/CublasHandlePool.cpp)."""
HOPPER_AND_LATER = ("H100", "H200", "GH200", "GB200", "B200")
MARGIN = 0.08
"""Share of a predicted peak that `twin estimate` keeps free on top of `WORKSPACE_BYTES` (`needed_bytes`):
with both, none of the 108 measured peaks of docs/measured/fidelity.md exceeds the prediction.

Replays and their policies (`twin.estimation.feasibility`, `Estimator`) keep the workspace alone, since in
their world the predicted peak is exact. Six of the measured peaks exceed that rule, by up to 2.2 GiB: check
a plan with `twin estimate` before it runs on real GPUs."""
LOGIT_BYTES = {"bf16": 5.0, "fp16": 5.0, "fp8": 5.0, "fp32": 8.0}
"""Per logit at the loss. Half precision: between Megatron's cross entropy (logits 2 and an fp32 softmax 4,
made in place) and Galvatron's 4.4 (slope over the sequence length in profiles-galvatron); PyTorch's own keeps
some 16. fp32: logits and softmax (8.1 in profiles-sailor/llm_info, OPT-350M head)."""
FP32_LOGIT_BYTES = 16.0
"""The same with PyTorch's cross entropy in half precision: logits 2, in fp32 4, their log-softmax 4,
gradients 4 and 2."""


STATES = {"fp32": (4.0, 4.0, 8.0), "fp16": (2.0, 2.0, 16.0), "bf16": (2.0, 4.0, 12.0)}
"""Bytes of weights, gradients and optimiser states per parameter; fp8 recipes keep those of bf16."""


def workspace_bytes(gpu: str) -> int:
    """Bytes that libraries hold inside the allocator for as long as the process runs."""
    return HANDLES * CUBLAS_WORKSPACE_BYTES[gpu in HOPPER_AND_LATER]


def state_bytes_per_parameter(
    zero: int, dp: int, dtype: Dtype = "bf16", offloaded: bool = False, frozen: bool = False
) -> float:
    """Weights, gradients and optimiser states per parameter on one GPU, ZeRO stage 0-3 over `dp` ranks.

    In fp32 no second copy of the weights is kept: 4 + 4 + 8. `offloaded`: optimiser states lie on the host.
    `frozen`: there are weights alone.
    """
    weights, gradients, optimiser = STATES.get(dtype, STATES["bf16"])
    optimiser = 0.0 if offloaded else optimiser
    gradients, optimiser = (0.0, 0.0) if frozen else (gradients, optimiser)
    return (
        weights / (dp if zero >= 3 else 1)
        + gradients / (dp if zero >= 2 else 1)
        + optimiser / (dp if zero >= 1 else 1)
    )


def attention_matrix_bytes(model: Transformer) -> float:
    """Bytes of stored s x s matrices per sequence and block: 5 a s^2 with dropout, 0 with flash attention."""
    if model.attention == "flash":
        return 0.0
    element = model.bytes_per_element  # softmax output, and with dropout its output and mask
    return float((2 * element + 1 if model.dropout else element) * model.heads * model.seq**2)


def block_activation_bytes(
    model: Transformer, tp: int, recompute: Recompute, sharded: bool, mixed: bool = False,
    imbalance: float = 1.0,
) -> float:  # fmt: skip
    """Bytes that one block, `mixed`: of experts, stores per sequence and micro-batch in flight, on one of
    `tp` GPUs.

    `sharded`: sequence parallelism, or shards of what lies between the products. `full` keeps the
    block's input, `selective` everything but the attention matrices, `none` all. `imbalance`: that of
    experts.
    """
    s, h, f, element = model.seq, model.hidden, model.ffn, model.bytes_per_element
    around = tp if sharded else 1
    if recompute == "full":
        return float(element * s * h / around)
    masks = 2 if model.dropout else 0  # two dropout masks of one byte
    norm_inputs, gemm_inputs = 2 * element, element * _kept_inputs(model)
    whole = s * h * (norm_inputs + gemm_inputs + masks) / around
    attention = element * s * _attention_elements(model) / tp
    if mixed and model.experts is not None:
        f = model.experts.shared
    product = 1 if model.adapters is None or "down" in model.adapters.targets else 0
    mlp = element * s * f * ((3 if model.gated else 1) + product) / tp  # gate, its SiLU, value, product
    matrices = 0.0 if recompute == "selective" else attention_matrix_bytes(model) / tp
    routed = expert_mlp.activation_bytes(model, tp, sharded, imbalance) if mixed else 0.0
    return whole + attention + mlp + matrices + routed


def _attention_elements(model: Transformer) -> int:
    """Elements a token that attention keeps: queries, keys and values, output, and latent ones."""
    narrow = model.latent.stored() if model.latent else 0
    return model.query_hidden + model.kv_hidden + model.value_hidden + model.result_hidden + narrow


def _kept_inputs(model: Transformer) -> int:
    """Inputs of the products behind the norms that are kept for weight gradients: both, or with adapters
    those of theirs."""
    if model.adapters is None:
        return 2
    named = set(model.adapters.targets)
    return bool(named & {"q", "k", "v"}) + bool(named & {"gate", "up"})


def head_activation_bytes(model: Transformer, tp: int, sharded: bool, fp32_logits: bool = False) -> float:
    """Bytes of the output layer per sequence: norm and GEMM inputs, and the logits of the loss.

    Kept from its forward to its backward (Korthikanti et al. 2022, section 4.3): for one micro-batch in 1F1B
    and interleaved, where the last stage turns round at once, for all m in GPipe, which stashes what every
    micro-batch needs (Narayanan et al., SC 2021, section 2.2), and for CrossPipe's budget.
    """
    kept = 2.0 if model.adapters is None else 1.0  # a frozen matrix needs no input for its gradient
    inputs = kept * model.bytes_per_element * model.seq * model.hidden / (tp if sharded else 1)
    each = FP32_LOGIT_BYTES if fp32_logits and model.dtype != "fp32" else LOGIT_BYTES[model.dtype]
    return inputs + each * model.seq * model.vocab / tp


def embedding_activation_bytes(model: Transformer, tp: int, sharded: bool) -> float:
    """Bytes that the embedding stores per sequence: its dropout mask, if any."""
    return model.seq * model.hidden / (tp if sharded else 1) if model.dropout else 0.0


def unsharded_bytes(parameters: float, zero: int, frozen: bool = False) -> float:
    """Bytes of a layer that ZeRO 3 holds whole: its gathered weights and its gradient until it is reduced."""
    return (2.0 if frozen else 4.0) * parameters if zero >= 3 else 0.0


def in_flight(warmup: int, micro_batches: int, schedule: Schedule) -> int:
    """Micro-batches whose activations a stage holds at the peak: warm-up depth + 1 in 1F1B, all in GPipe.

    With the standard depth of stage i (from 0) that is min(m, S - i). Interleaved, depth and micro-batches
    are those of single chunks. CrossPipe gives every stage the budget of the first (`warmup` is its depth).
    """
    return micro_batches if schedule == "gpipe" else min(warmup + 1, micro_batches)


def needed_bytes(allocated: float, context: int = WORKSPACE_BYTES) -> float:
    """Bytes that a GPU needs for a predicted peak of the allocator: with margin and what lies outside it."""
    return allocated * (1 + MARGIN) + context
