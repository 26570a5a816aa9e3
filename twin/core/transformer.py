"""Decoder-only Transformers: exact parameters and FLOPs per layer, grouped-query and latent attention, gated
or plain MLP, mixtures of experts. A tensor group divides all of them evenly; norms of queries and keys are
left out (2 x head width in a block)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from ingest.core.errors import UsageError
from twin.core.adapters import Adapters
from twin.core.experts import Experts
from twin.core.latent_attention import Latent

Dtype = Literal["bf16", "fp16", "fp8", "fp32"]
Attention = Literal["flash", "materialised"]
BYTES_PER_ELEMENT: dict[str, int] = {"bf16": 2, "fp16": 2, "fp8": 2, "fp32": 4}
"""Bytes of one activation element as it is stored and sent; fp8 recipes keep activations in bf16."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One unit of a split: the embedding, a block, or the output head.

    `parameters` are those that the layer holds, `routed` of them those of experts that a router picks,
    `frozen` those that are not trained; `forward_flops_per_sequence` counts a multiply-add as two, of experts
    those that a token passes.
    """

    kind: Literal["embedding", "block", "head"]
    parameters: int
    forward_flops_per_sequence: float
    routed: int = 0
    frozen: int = 0

    @property
    def trained(self) -> int:
        """Parameters that have a gradient."""
        return self.parameters - self.frozen


@dataclass(frozen=True)
class Transformer:
    """Shape of a model with `blocks` Transformer blocks. `seq` and `vocab` belong to it because layer costs
    depend on them.

    `bias`, `learned_positions`, `layer_norm`, `tied` and `dropout` distinguish the GPT family (all true) from
    the Llama family (all false). `attention` materialised: the s x s score matrix is written to memory.

    `experts`: those of a mixture; `ffn` is then the width of the blocks that have none. Experts are gated as
    the MLP is, and have no biases. `adapters`: those of LoRA, which alone are trained then. `head_dim`: width
    of a head where it is not hidden / heads (0: it is). `latent`: attention of DeepSeek's form.
    """

    name: str
    blocks: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    gated: bool
    seq: int
    vocab: int
    dtype: Dtype = "bf16"
    bias: bool = False
    learned_positions: bool = False
    layer_norm: bool = False
    tied: bool = False
    attention: Attention = "flash"
    dropout: bool = False
    experts: Experts | None = None
    adapters: Adapters | None = None
    head_dim: int = 0
    latent: Latent | None = None

    def __post_init__(self) -> None:
        for name in ("blocks", "hidden", "heads", "kv_heads", "ffn", "seq", "vocab"):
            if getattr(self, name) < 1:
                raise UsageError(f"model {self.name}: {name} must be at least 1")
        if fault := self._head_fault():
            raise UsageError(f"model {self.name}: {fault}")
        if self.experts is not None and (fault := self.experts.fault):
            raise UsageError(f"model {self.name}: {fault}")
        narrowest = min(self.kv_hidden, self.ffn)
        if self.adapters is not None and (
            fault := self.adapters.fault(self.gated, self.experts is not None, narrowest)
        ):
            raise UsageError(f"model {self.name}: {fault}")

    def _head_fault(self) -> str | None:
        """Reason why attention cannot have these heads; None if it can."""
        if self.latent is not None:
            if self.kv_heads != self.heads or self.head_dim:
                return "latent attention has as many kv_heads as heads, and no head_dim"
            if self.adapters is not None:
                return "lora: adapters of latent attention have no model"
            return self.latent.fault
        if self.head_dim < 0:
            return f"head_dim {self.head_dim} is below 0"
        if not self.head_dim and self.hidden % self.heads:
            return f"hidden {self.hidden} is not divisible by {self.heads} heads; else give head_dim"
        if self.heads % self.kv_heads:
            return f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly; change one of them"
        return None

    @property
    def head_width(self) -> int:
        """Width of one head: of its query and key."""
        return self.latent.query_key if self.latent else self.head_dim or self.hidden // self.heads

    @property
    def query_hidden(self) -> int:
        """Width of the queries of all heads: hidden, where no `head_dim` says otherwise."""
        return self.heads * self.head_width

    @property
    def kv_hidden(self) -> int:
        """Width of the keys of all key-value heads (and of the values, unless latent)."""
        return self.kv_heads * self.head_width

    @property
    def result_hidden(self) -> int:
        """Width of what the heads give together, and of the values that each has."""
        return self.heads * self.latent.value if self.latent else self.query_hidden

    @property
    def value_hidden(self) -> int:
        """Width of the values of all key-value heads."""
        return self.result_hidden if self.latent else self.kv_hidden

    @property
    def attention_weights(self) -> int:
        """Elements of the matrices of a block's attention."""
        if self.latent is not None:
            return self.latent.weights(self.hidden, self.heads)
        return self.hidden * (self.query_hidden + 2 * self.kv_hidden + self.result_hidden)

    @property
    def attention_products(self) -> int:
        """Products of a block's attention but for its core."""
        return 2 if self.latent is None else self.latent.products

    @property
    def bytes_per_element(self) -> int:
        """Bytes of one activation element."""
        return BYTES_PER_ELEMENT[self.dtype]

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: a scale, and a shift for LayerNorm."""
        return self.hidden * (2 if self.layer_norm else 1)

    @property
    def mlp_matrices(self) -> int:
        """Matrices of an MLP: gate, value and product, or two."""
        return 3 if self.gated else 2

    @property
    def block_parameters(self) -> int:
        """Parameters of one block without experts: two norms, attention projections, MLP."""
        biases = (self.ffn * (self.mlp_matrices - 1) + self.hidden) if self.bias else 0
        return self._attention_parameters + self._mlp_parameters(self.ffn) + biases

    @property
    def routed_parameters(self) -> int:
        """Parameters of the experts of one block that a router picks; 0 without a mixture."""
        return 0 if self.experts is None else self.experts.count * self._mlp_parameters(self.experts.ffn)

    @property
    def mixture_parameters(self) -> int:
        """Parameters of one block with experts: norms and attention, router, shared and routed experts."""
        assert self.experts is not None, "the model has no experts"
        router = self.hidden * self.experts.count
        shared = self._mlp_parameters(self.experts.shared)
        return self._attention_parameters + router + shared + self.routed_parameters

    @property
    def adapter_widths(self) -> tuple[tuple[int, int], ...]:
        """Input and output width of every matrix of a block that has an adapter."""
        h, q, kv, f = self.hidden, self.query_hidden, self.kv_hidden, self.ffn
        widths = {
            "q": (h, q), "k": (h, kv), "v": (h, kv), "o": (q, h),
            "gate": (h, f), "up": (h, f), "down": (f, h),
        }  # fmt: skip
        return () if self.adapters is None else tuple(widths[name] for name in self.adapters.targets)

    @property
    def adapter_parameters(self) -> int:
        """Parameters of the adapters of one block: r (d_in + d_out) each."""
        return 0 if self.adapters is None else self.adapters.rank * sum(map(sum, self.adapter_widths))

    @property
    def trained_parameters(self) -> int:
        """Parameters of the model that have a gradient, a tied matrix counted once."""
        if self.adapters is None:
            return self.parameters
        return sum(layer.trained for layer in self._layers)

    @property
    def _attention_parameters(self) -> int:
        """Parameters of a block but for its MLP."""
        biases = self.query_hidden + 2 * self.kv_hidden + self.hidden if self.bias else 0
        norms = 2 * self.norm_parameters + (self.latent.ranks if self.latent else 0)
        return self.attention_weights + biases + norms

    def _mlp_parameters(self, width: int) -> int:
        """Parameters of the matrices of an MLP."""
        return self.hidden * width * self.mlp_matrices

    @property
    def embedding_parameters(self) -> int:
        """Token embedding, and learned positions where the model has them."""
        return self.vocab * self.hidden + (self.seq * self.hidden if self.learned_positions else 0)

    @property
    def head_parameters(self) -> int:
        """Final norm and output matrix; a pipeline keeps its own copy of a tied matrix."""
        return self.norm_parameters + self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of the model, a tied matrix counted once."""
        held = sum(layer.parameters for layer in self._layers)
        return held - (self.vocab * self.hidden if self.tied else 0)

    @property
    def block_flops(self) -> float:
        """Forward FLOPs of one block without experts and sequence; 24 s h^2 (1 + s/(6h)) for the classic
        block.

        The full s x s attention product is counted, causal or not, as is usual.
        """
        return self._attention_flops + 2.0 * self.seq * self._mlp_parameters(self.ffn)

    @property
    def mixture_flops(self) -> float:
        """The same of a block with experts: the router, shared experts, and `top_k` of the others."""
        assert self.experts is not None, "the model has no experts"
        passed = self.experts.shared + self.experts.top_k * self.experts.ffn
        router = self.hidden * self.experts.count
        return self._attention_flops + 2.0 * self.seq * (router + self._mlp_parameters(passed))

    @property
    def core_flops(self) -> float:
        """Those of the attention core, which has no weights: 4 s^2 h in the usual block, scores and
        their products with the values."""
        return 2.0 * self.seq**2 * (self.query_hidden + self.result_hidden)

    @property
    def _attention_flops(self) -> float:
        return 2.0 * self.seq * self.attention_weights + self.core_flops

    @property
    def head_flops(self) -> float:
        """Forward FLOPs of the output matrix for one sequence."""
        return 2.0 * self.seq * self.hidden * self.vocab

    @property
    def flops_per_sequence(self) -> float:
        """Model FLOPs (forward and backward, no recompute) of one sequence: the numerator of MFU."""
        done = 3.0 * sum(layer.forward_flops_per_sequence for layer in self._layers)
        if self.adapters is None:
            return done
        has_weights = sum(layer.forward_flops_per_sequence for layer in self._layers)
        has_weights -= self.blocks * (self.core_flops + 2.0 * self.seq * self.adapter_parameters)
        return done - has_weights  # frozen matrices have no weight gradient

    def layers(self) -> tuple[Layer, ...]:
        """Embedding, blocks, head: the N = blocks + 2 units of a split."""
        return self._layers

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        blocks = [Layer("block", self.block_parameters, self.block_flops)] * self.blocks
        if self.experts is not None:
            mixture = Layer("block", self.mixture_parameters, self.mixture_flops, self.routed_parameters)
            blocks = [mixture if self.experts.lie_in(n) else block for n, block in enumerate(blocks)]
        layers = (
            Layer("embedding", self.embedding_parameters, 0.0),
            *blocks,
            Layer("head", self.head_parameters, self.head_flops),
        )
        return layers if self.adapters is None else tuple(self._adapted(layer) for layer in layers)

    def _adapted(self, layer: Layer) -> Layer:
        """`layer` frozen, with its adapters."""
        more = self.adapter_parameters if layer.kind == "block" else 0
        flops = layer.forward_flops_per_sequence + 2.0 * self.seq * more
        return replace(
            layer, parameters=layer.parameters + more, forward_flops_per_sequence=flops,
            frozen=layer.parameters,
        )  # fmt: skip


def classic(
    name: str, blocks: int, hidden: int, heads: int, seq: int, vocab: int, dtype: Dtype
) -> Transformer:
    """Model of the GPT family: 4h MLP, biases, LayerNorm, learned positions, tied output, materialised
    attention."""
    return Transformer(
        name, blocks, hidden, heads, heads, 4 * hidden, False, seq, vocab, dtype,
        bias=True, learned_positions=True, layer_norm=True, tied=True, attention="materialised",
        dropout=True,
    )  # fmt: skip
