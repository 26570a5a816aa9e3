"""The Transformer blocks that `twin profile` measures, as torch modules."""

import re
from typing import Any

from twin.core.transformer import Transformer

UNNAMED = "case"
"""Name of a model that is given by its shape alone."""
LABEL = re.compile(r"(gpt|llama)-h(\d+)-a(\d+)-kv(\d+)-f(\d+)-s(\d+)")


def profiled_block(hidden: int, heads: int, kv_heads: int, ffn: int, seq: int, gated: bool) -> Transformer:
    """A model of one block, `gated` of the Llama form (RMSNorm, SiLU gate), else of the GPT form; its name
    is the label under which its profile is stored."""
    label = f"{'llama' if gated else 'gpt'}-h{hidden}-a{heads}-kv{kv_heads}-f{ffn}-s{seq}"
    shape = (hidden, heads, kv_heads, ffn, gated, seq)
    return Transformer(label, 1, *shape, 51200, bias=not gated, layer_norm=not gated)


def shape_of(label: str) -> Transformer | None:
    """Block with the label `label`, None for a label of another form."""
    found = LABEL.fullmatch(label or "")
    if found is None:
        return None
    hidden, heads, kv_heads, ffn, seq = map(int, found.groups()[1:])
    return profiled_block(hidden, heads, kv_heads, ffn, seq, found[1] == "llama")


def label_of(model: Transformer) -> str:
    """Label under which the profile of a block of `model` is stored; `twin profile` measures none with heads
    of another width or with latent attention, so that no profile has theirs."""
    if model.latent is not None or model.head_dim not in (0, model.hidden / model.heads):
        return f"{model.name}, heads of {model.head_width}"
    return profiled_block(model.hidden, model.heads, model.kv_heads, model.ffn, model.seq, model.gated).name


SHAPES = (
    profiled_block(1600, 25, 25, 6400, 1024, gated=False),
    profiled_block(2048, 16, 16, 8192, 2048, gated=False),
    profiled_block(4096, 32, 32, 16384, 2048, gated=False),
    profiled_block(12288, 96, 96, 49152, 2048, gated=False),
    profiled_block(4096, 32, 32, 11008, 4096, gated=True),
    profiled_block(5120, 40, 40, 13824, 4096, gated=True),
    profiled_block(8192, 64, 8, 28672, 4096, gated=True),
    profiled_block(16384, 128, 8, 53248, 8192, gated=True),
)
"""GPT-2 1.5B to GPT-3 175B, Llama-2 7B/13B/70B and Llama-3 405B blocks."""


def build_layer(shape: Transformer, device: str) -> Any:
    """The block as a torch module with bf16 weights on `device`."""
    import torch
    from torch import nn
    from torch.nn import functional

    head = shape.hidden // shape.heads
    kv = shape.kv_heads * head
    wide = (2 if shape.gated else 1) * shape.ffn

    class TransformerBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            norm = nn.RMSNorm if shape.gated else nn.LayerNorm
            self.norm1, self.norm2 = norm(shape.hidden), norm(shape.hidden)
            self.qkv = nn.Linear(
                shape.hidden, (shape.heads + 2 * shape.kv_heads) * head, bias=not shape.gated
            )
            self.out = nn.Linear(shape.hidden, shape.hidden, bias=not shape.gated)
            self.up = nn.Linear(shape.hidden, wide, bias=not shape.gated)
            self.down = nn.Linear(shape.ffn, shape.hidden, bias=not shape.gated)

        def attention(self, x: torch.Tensor) -> torch.Tensor:
            batch, seq, _ = x.shape
            q, k, v = self.qkv(x).split([shape.hidden, kv, kv], dim=-1)
            q, k, v = (t.view(batch, seq, -1, head).transpose(1, 2) for t in (q, k, v))
            mixed = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=shape.kv_heads != shape.heads
            )
            return self.out(mixed.transpose(1, 2).reshape(batch, seq, shape.hidden))

        def mlp(self, x: torch.Tensor) -> torch.Tensor:
            if not shape.gated:
                return self.down(functional.gelu(self.up(x), approximate="tanh"))
            gate, value = self.up(x).chunk(2, dim=-1)
            return self.down(functional.silu(gate) * value)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    return TransformerBlock().to(device=device, dtype=torch.bfloat16)
