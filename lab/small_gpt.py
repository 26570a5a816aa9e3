"""A small GPT by layers, and a stage of it whose operations last as long as the scenario's.

Layer 0 is the embedding, the last one the head, those between are blocks. The weights of a layer depend on
the seed and its number alone, so that every cut of the model is the same model.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class GptSizes:
    """GptSizes of the model: entries of its list of layers, width, sequence and vocabulary in tokens."""

    layers: int
    hidden: int
    sequence: int
    vocabulary: int
    heads: int = 4


class Embedding(nn.Module):
    """Tokens (b, s) to activations (b, s, h), with learned positions."""

    def __init__(self, sizes: GptSizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.positions = nn.Embedding(sizes.sequence, sizes.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the activations."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        found: Tensor = self.tokens(tokens) + self.positions(places)
        return found


class GptBlock(nn.Module):
    """Pre-norm block: causal attention and an MLP of four times the width; (b, s, h) to (b, s, h)."""

    def __init__(self, sizes: GptSizes) -> None:
        super().__init__()
        h = sizes.hidden
        self.heads = sizes.heads
        self.before_attention, self.before_mlp = nn.LayerNorm(h), nn.LayerNorm(h)
        self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the activations after the block."""
        b, s, h = x.shape
        q, k, v = (
            part.view(b, s, self.heads, h // self.heads).transpose(1, 2)
            for part in self.qkv(self.before_attention(x)).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, s, h))
        result: Tensor = x + self.down(nn.functional.gelu(self.up(self.before_mlp(x))))
        return result


class Head(nn.Module):
    """Activations (b, s, h) to logits (b, s, vocabulary)."""

    def __init__(self, sizes: GptSizes) -> None:
        super().__init__()
        self.norm, self.logits = nn.LayerNorm(sizes.hidden), nn.Linear(sizes.hidden, sizes.vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits."""
        found: Tensor = self.logits(self.norm(x))
        return found


def make_layer(sizes: GptSizes, number: int, seed: int) -> nn.Module:
    """Layer `number` of the model, with the weights of the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed * 1_000_003 + number)
        if number == 0:
            return Embedding(sizes)
        return Head(sizes) if number == sizes.layers - 1 else GptBlock(sizes)


def batch(sizes: GptSizes, step: int, sequences: int, seed: int) -> tuple[Tensor, Tensor]:
    """Tokens and the tokens that follow them, (sequences, s) each: a noisy walk that a model can learn."""
    source = torch.Generator().manual_seed(seed * 7_919 + step)
    start = torch.randint(sizes.vocabulary, (sequences, 1), generator=source)
    strides = torch.randint(1, 4, (sequences, 1), generator=source)
    walk = (start + strides * torch.arange(sizes.sequence + 1)) % sizes.vocabulary
    return walk[:, :-1].contiguous(), walk[:, 1:].contiguous()


def loss(logits: Tensor, following: Tensor) -> Tensor:
    """Mean cross-entropy of the next token, nats."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


class _BackwardBegins(torch.autograd.Function):
    """Passes activations on; its backward is the first of the stage and notes the time."""

    @staticmethod
    def forward(context: Any, x: Tensor, stage: "TimedStage") -> Tensor:
        context.stage = stage
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        context.stage.began_s = time.monotonic()
        return gradients[0], None


class _BackwardEnds(torch.autograd.Function):
    """Passes activations on; its backward is the last of the stage and waits until its time is over."""

    @staticmethod
    def forward(context: Any, x: Tensor, stage: "TimedStage") -> Tensor:
        context.stage = stage
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        stage = context.stage
        stage.wait_until(stage.began_s + stage.backward_s)
        return gradients[0], None


class TimedStage(nn.Module):
    """Layers that compute for real and then wait: a forward lasts `forward_s`, a backward `backward_s`.

    So sites of one machine do not take each other's time: a real GPU does not compute on this processor
    either. `late_s` adds up how much longer operations took than they should, because the machine was busy.
    """

    def __init__(self, layers: Sequence[nn.Module], forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.forward_s, self.backward_s = forward_s, backward_s
        self.began_s = self.late_s = 0.0

    def wait_until(self, due_s: float) -> None:
        """Sleeps until `due_s` of the monotonic clock."""
        left_s = due_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        self.late_s += max(0.0, time.monotonic() - due_s)

    def forward(self, x: Tensor) -> Tensor:
        """Returns what the layers make of `x`, after `forward_s`."""
        began_s = time.monotonic()
        for n, layer in enumerate(self.layers):
            if n == 0 and x.requires_grad:
                x = _BackwardEnds.apply(x, self)
            x = layer(x)
            if n == 0 and isinstance(layer, Embedding):
                x = _BackwardEnds.apply(x, self)
        x = _BackwardBegins.apply(x, self)
        self.wait_until(began_s + self.forward_s)
        return x
