"""The model of a row of cases: family, heads, experts, adapters."""

from collections.abc import Mapping, Sequence

from ingest.core.errors import UsageError
from twin.calibration.profiled_layers import UNNAMED
from twin.cases.column_definitions import BadCellError, Cell
from twin.core.adapters import Adapters
from twin.core.experts import Experts
from twin.core.latent_attention import Latent
from twin.core.transformer import Transformer

DEFAULT_SEQ = 2048
DEFAULT_VOCAB = 51200
"""GPT's 50,257 padded to a multiple of 1,024, as Megatron's published runs have it."""
OLDER_THAN_AMPERE = ("V100", "T4", "RTX-2080", "TITAN")
WRITES_SCORES = ("V100", "T4", "RTX-2080", "TITAN", "A100", "A10", "A40", "RTX-3090")
"""GPUs whose GPT runs are taken to write the s x s scores to memory; newer GPUs, and newer blocks anywhere,
use fused attention."""
MIXTURE = ("top_k", "expert_ffn", "shared_ffn", "moe_every", "moe_first", "expert_imbalance")
"""Columns of a mixture of experts, beside `experts`."""
LATENT = {"q_lora_rank": 0, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
"""Columns of latent attention beside `kv_lora_rank`, and DeepSeek's widths for empty cells."""
FAULTS = (("latent attention", "kv_lora_rank"), ("lora: ", "lora_targets"), ("kv_heads", "kv_heads"))
"""What the message about a model says, and the column that it is about; else `heads`."""


def model_of(cells: Mapping[str, Cell], kinds: Sequence[str]) -> Transformer:
    """Transformer of the row on GPUs of `kinds`; the family follows from its MLP and its key-value heads.

    A type or a form of attention that one of them needs is that of all stages.
    """
    for name in ("hidden", "layers"):
        if name not in cells:
            raise BadCellError(
                name, f"{name} is missing; give it, or both stage_forward_s and stage_backward_s"
            )
    hidden = cells["hidden"]
    heads = cells.get("heads", hidden // 128 if hidden % 128 == 0 else max(1, hidden // 64))
    latent = _latent(cells)
    experts, adapters = _experts(cells, hidden), _adapters(cells)
    ffn, kv_heads = cells.get("ffn", 4 * hidden), cells.get("kv_heads", heads)
    gated = ffn != 4 * hidden or experts is not None
    classic = not gated and kv_heads == heads and latent is None
    scores = classic and any(kind.startswith(WRITES_SCORES) for kind in kinds)
    older = any(kind.startswith(OLDER_THAN_AMPERE) for kind in kinds)
    dtype = cells.get("dtype", "fp16" if older else "bf16")
    try:
        return Transformer(
            cells.get("profile_model", UNNAMED), cells["layers"], hidden, heads, kv_heads, ffn, gated,
            cells.get("seq", DEFAULT_SEQ), cells.get("vocab", DEFAULT_VOCAB), dtype, bias=classic,
            learned_positions=classic, layer_norm=classic, tied=classic,
            dropout=cells.get("dropout", classic),
            attention=cells.get("attention", "materialised" if scores else "flash"), experts=experts,
            adapters=adapters, head_dim=cells.get("head_dim", 0), latent=latent,
        )  # fmt: skip
    except UsageError as error:
        column = next((name for sign, name in FAULTS if sign in str(error)), "heads")
        raise BadCellError(column, str(error).split(": ", 1)[-1]) from None


def _latent(cells: Mapping[str, Cell]) -> Latent | None:
    """Latent attention of the row's blocks."""
    if "kv_lora_rank" not in cells:
        for name in LATENT:
            if name in cells:
                raise BadCellError(
                    name, f"{name} belongs to latent attention: give kv_lora_rank, or empty this cell"
                )
        return None
    given = {name: cells.get(name, usual) for name, usual in LATENT.items()}
    return Latent(
        given["q_lora_rank"], cells["kv_lora_rank"], given["qk_nope_head_dim"], given["qk_rope_head_dim"],
        given["v_head_dim"],
    )  # fmt: skip


def _adapters(cells: Mapping[str, Cell]) -> Adapters | None:
    """Adapters of LoRA."""
    if "lora_rank" not in cells:
        if "lora_targets" in cells:
            raise BadCellError("lora_targets", "adapters need a rank: give lora_rank, or empty this cell")
        return None
    return Adapters(cells["lora_rank"], cells.get("lora_targets", ("q", "v")))


def _experts(cells: Mapping[str, Cell], hidden: int) -> Experts | None:
    """Experts of the row's blocks."""
    if "experts" not in cells:
        for name in MIXTURE:
            if name in cells:
                raise BadCellError(name, f"{name} belongs to a mixture: give experts, or empty this cell")
        return None
    width = cells.get("expert_ffn", cells.get("ffn", 4 * hidden))
    found = Experts(
        cells["experts"], cells.get("top_k", 2), width, cells.get("shared_ffn", 0), cells.get("moe_every", 1),
        cells.get("moe_first", 0),
    )  # fmt: skip
    if found.fault:
        raise BadCellError("experts", found.fault)
    return found
