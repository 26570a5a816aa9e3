"""Trains a Transformer in the pipeline of a plan; torchrun starts one process a GPU.

    torchrun --nnodes N --node-rank R --nproc-per-node G --master-addr HOST train.py [--tiny] [--steps N]

Beside this file lie `plan.json`, shapes and sizes, and `schedule.csv`, the order of the operations of every
stage. Stages may be as uneven as the plan wants. `--tiny` keeps the layers and the schedule and makes
everything else small, for a trial on processors; `--whole` trains the same model in one process, unsplit: the
losses of both are the same. `batches` makes synthetic tokens; put your data there.

Needs PyTorch 2.6 or later and nothing else.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class ModelShape:
    """Shape of the model: blocks and widths; sequence and vocabulary in tokens."""

    blocks: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    ffn: int
    gated: bool
    bias: bool
    learned_positions: bool
    layer_norm: bool
    tied: bool
    sequence: int
    vocabulary: int

    def tiny(self, tp: int) -> "ModelShape":
        """Returns a shape with as many blocks that a processor trains in no time."""
        heads = max(4, 2 * tp)
        kv_heads = heads if self.kv_heads == self.heads else max(2, tp)
        return replace(
            self, hidden=8 * heads, heads=heads, kv_heads=kv_heads, head_width=8, ffn=64, sequence=16,
            vocabulary=64,
        )  # fmt: skip


class TokenEmbedding(nn.Module):
    """Tokens (b, s) to activations (b, s, h), with learned positions where the model has them."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = nn.Embedding(shape.sequence, shape.hidden) if shape.learned_positions else None
        for one in (self.tokens, self.positions):
            if one is not None:
                nn.init.normal_(one.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the activations."""
        x: Tensor = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return x


class DecoderBlock(nn.Module):
    """Pre-norm block: causal attention with grouped keys, plain or gated MLP; (b, s, h) to (b, s, h)."""

    def __init__(self, shape: ModelShape, recompute: str) -> None:
        super().__init__()
        self.shape, self.recompute = shape, recompute
        h, width, bias = shape.hidden, shape.head_width, shape.bias
        norm = nn.LayerNorm if shape.layer_norm else nn.RMSNorm
        self.before_attention, self.before_mlp = norm(h), norm(h)
        self.query = nn.Linear(h, shape.heads * width, bias)
        self.key, self.value = (nn.Linear(h, shape.kv_heads * width, bias) for _ in range(2))
        self.out = nn.Linear(shape.heads * width, h, bias)
        self.up, self.down = nn.Linear(h, shape.ffn, bias), nn.Linear(shape.ffn, h, bias)
        self.gate = nn.Linear(h, shape.ffn, bias) if shape.gated else None

    def forward(self, x: Tensor) -> Tensor:
        """Returns the activations after the block."""
        if self.recompute == "full":
            found: Tensor = checkpoint(self.compute, x, use_reentrant=False)
            return found
        return self.compute(x)

    def compute(self, x: Tensor) -> Tensor:
        """Returns the same, keeping all activations but perhaps those of the attention core."""
        normed = self.before_attention(x)
        parts = [self._heads(one(normed)) for one in (self.query, self.key, self.value)]
        if self.recompute == "selective":
            mixed = checkpoint(self.attend, *parts, use_reentrant=False)
        else:
            mixed = self.attend(*parts)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        normed = self.before_mlp(x)
        wide = (
            functional.silu(self.gate(normed)) if self.gate is not None else functional.gelu(self.up(normed))
        )
        result: Tensor = x + self.down(wide * self.up(normed) if self.gate is not None else wide)
        return result

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Returns the attention core, causal, of (b, heads, s, width) each."""
        if not self.shape.learned_positions:
            query, key = rotated(query), rotated(key)
        mixed: Tensor = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=key.shape[1] != query.shape[1]
        )
        return mixed

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (-1, self.shape.head_width)).transpose(1, 2)


class OutputHead(nn.Module):
    """Activations (b, s, h) to logits (b, s, vocabulary)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.norm = (nn.LayerNorm if shape.layer_norm else nn.RMSNorm)(shape.hidden)
        self.logits = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits."""
        found: Tensor = self.logits(self.norm(x))
        return found


def rotated(x: Tensor) -> Tensor:
    """Returns queries or keys (b, heads, s, width) with rotary positions (Su et al. 2021)."""
    half = x.shape[-1] // 2
    speeds = 10_000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[2], device=x.device)[:, None] * speeds
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def make_layers(shape: ModelShape, first: int, past: int, recompute: str, seed: int) -> nn.Sequential:
    """Returns layers `first` to `past` - 1: 0 is the embedding, the last one the head. The weights of a layer
    depend on the seed and its number alone, so that every split of the model is the same model."""
    layers: list[nn.Module] = []
    for number in range(first, past):
        torch.manual_seed(seed * 1_000_003 + number)
        if number == 0:
            layers.append(TokenEmbedding(shape))
        elif number == shape.blocks + 1:
            layers.append(OutputHead(shape))
            if shape.tied:  # the pipeline keeps its own copy of a tied matrix
                torch.manual_seed(seed * 1_000_003)
                layers[-1].logits.weight = TokenEmbedding(shape).tokens.weight
        else:
            layers.append(DecoderBlock(shape, recompute))
    return nn.Sequential(*layers)


def batches(shape: ModelShape, sequences: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields tokens and the tokens that follow them, (sequences, s) each: SYNTHETIC walks that a model can
    learn. Put your data here; every process gets the whole batch of an iteration."""
    source = torch.Generator().manual_seed(seed)
    while True:
        start = torch.randint(shape.vocabulary, (sequences, 1), generator=source)
        strides = torch.randint(1, 4, (sequences, 1), generator=source)
        walk = (start + strides * torch.arange(shape.sequence + 1)) % shape.vocabulary
        yield walk[:, :-1].contiguous(), walk[:, 1:].contiguous()


def loss(logits: Tensor, following: Tensor) -> Tensor:
    """Returns the mean cross-entropy of the next token, nats."""
    return functional.cross_entropy(logits.float().flatten(0, 1), following.flatten())


class SplitModel:
    """The stages of this process with their optimizer, and the schedule that runs them."""

    def __init__(self, plan: dict[str, Any], shape: ModelShape, device: torch.device, seed: int) -> None:
        sizes = (plan["stages"], plan["data_parallel"], plan["tensor_parallel"])
        mesh = init_device_mesh(device.type, sizes, mesh_dim_names=("pp", "dp", "tp"))
        self.place, self.data, _ = (mesh.get_local_rank(name) for name in ("pp", "dp", "tp"))
        self.data_group, self.plan = mesh.get_group("dp"), plan
        self.sharded = plan["zero"] > 0 and plan["data_parallel"] > 1
        mine = [n for n, part in enumerate(plan["parts"]) if part["stage"] == self.place]
        self.modules = {}
        for n in mine:
            part = plan["parts"][n]
            layers = make_layers(shape, part["first"], part["past"], plan["recompute"], seed).to(device)
            if plan["tensor_parallel"] > 1:
                split_tensors(layers, mesh["tp"])
            if self.sharded:
                self._shard(layers, mesh["dp"])
            self.modules[n] = layers
        count = len(plan["parts"])
        stages = [
            PipelineStage(layers, n, count, device, group=mesh.get_group("pp"))
            for n, layers in self.modules.items()
        ]
        self.is_first, self.is_last = 0 in self.modules, count - 1 in self.modules
        self.schedule = _PipelineScheduleRuntime(stages, plan["micro_batches"], loss_fn=loss)
        self.schedule._load_csv(str(HERE / plan["schedule"]))
        self.tied_group = self._tied_group(mesh) if shape.tied and plan["stages"] > 1 else None
        weights = [weight for layers in self.modules.values() for weight in layers.parameters()]
        self.optimizer = torch.optim.AdamW(weights, lr=3e-3)

    def step(self, tokens: Tensor, following: Tensor) -> float | None:
        """Trains the sequences of this pipeline; their mean loss where the last layer lies, else None."""
        self.optimizer.zero_grad()
        losses: list[Tensor] = []
        given = (tokens,) if self.is_first else ()
        target = {"target": following, "losses": losses} if self.is_last else {}
        self.schedule.step(*given, **target, return_outputs=False)
        self._reduce()
        if self.exchange():
            self.optimizer.step()
        if not losses:
            return None
        mean = torch.stack(losses).detach().mean()
        dist.all_reduce(mean, group=self.data_group)
        return float(mean) / float(self.plan["data_parallel"])

    def exchange(self) -> bool:
        """Returns True: the gradients are whole. Replicas of the model would average theirs here."""
        return True

    def _reduce(self) -> None:
        """Averages gradients over data ranks, unless they are sharded, and adds those of a tied matrix."""
        if not self.sharded:
            for layers in self.modules.values():
                for weight in layers.parameters():
                    gradient = local(weight.grad)
                    dist.all_reduce(gradient, group=self.data_group)
                    gradient /= self.plan["data_parallel"]
        if self.tied_group is not None:
            for n, weight in ((0, "0.tokens.weight"), (len(self.plan["parts"]) - 1, "logits.weight")):
                if n in self.modules:
                    named = dict(self.modules[n].named_parameters())
                    found = next(value for name, value in named.items() if name.endswith(weight))
                    dist.all_reduce(local(found.grad), group=self.tied_group)

    def _shard(self, layers: nn.Sequential, mesh: Any) -> None:
        """Shards weights, gradients and optimizer states; ZeRO 1 and 2 keep the weights after forward."""
        whole = self.plan["zero"] == 3
        for layer in layers:
            fully_shard(layer, mesh=mesh, reshard_after_forward=whole)
        fully_shard(layers, mesh=mesh, reshard_after_forward=whole)

    def _tied_group(self, mesh: Any) -> Any:
        """Returns the group of the two processes that hold the same piece of a tied matrix."""
        ends = sorted({self.plan["parts"][0]["stage"], self.plan["parts"][-1]["stage"]})
        pairs = mesh.mesh[ends].flatten(1).T.tolist()
        groups = [dist.new_group(pair) for pair in pairs]
        mine = [group for pair, group in zip(pairs, groups, strict=True) if dist.get_rank() in pair]
        return mine[0] if mine and len(ends) > 1 else None


def split_tensors(layers: nn.Sequential, mesh: Any) -> None:
    """Splits the matrices of every layer over a tensor group (Shoeybi et al. 2019, section 3)."""
    wide, narrow = ColwiseParallel(), RowwiseParallel()
    block = dict.fromkeys(("query", "key", "value", "up", "gate"), wide) | {"out": narrow, "down": narrow}
    for layer in layers:
        if isinstance(layer, DecoderBlock):
            parallelize_module(layer, mesh, {n: s for n, s in block.items() if getattr(layer, n) is not None})
        elif isinstance(layer, OutputHead):
            parallelize_module(layer, mesh, {"logits": ColwiseParallel(output_layouts=Replicate())})


def local(gradient: Any) -> Tensor:
    """Returns the piece of a gradient that this process holds."""
    piece: Tensor = gradient.to_local() if isinstance(gradient, DTensor) else gradient
    return piece


def train_whole(plan: dict[str, Any], shape: ModelShape, steps: int, seed: int) -> None:
    """Trains the unsplit model in this process, micro-batch after micro-batch, and prints the losses."""
    layers = make_layers(shape, 0, shape.blocks + 2, plan["recompute"], seed)
    if shape.tied:
        layers[-1].logits.weight = layers[0].tokens.weight
    optimizer = torch.optim.AdamW(layers.parameters(), lr=3e-3)
    rows, source = plan["micro_batch"], batches(shape, plan["global_batch"], seed)
    for step in range(steps):
        optimizer.zero_grad()
        losses = []
        pairs = zip(*(one.split(rows) for one in next(source)), strict=True)
        for tokens, following in pairs:
            found = loss(layers(tokens), following)
            (found * rows / plan["global_batch"]).backward()
            losses.append(found.detach())
        optimizer.step()
        print(json.dumps({"step": step, "loss": float(torch.stack(losses).mean())}), flush=True)


def train_split(plan: dict[str, Any], shape: ModelShape, steps: int, seed: int, device: torch.device) -> None:
    """Trains the stages of this process; the first process with the last layer prints the losses."""
    model = SplitModel(plan, shape, device, seed)
    mine = plan["global_batch"] // plan["data_parallel"]
    source = batches(shape, plan["global_batch"], seed)
    for step in range(steps):
        part = slice(model.data * mine, (model.data + 1) * mine)
        tokens, following = (one[part].to(device) for one in next(source))
        found = model.step(tokens, following)
        if found is not None and dist.get_rank() % (plan["data_parallel"] * plan["tensor_parallel"]) == 0:
            print(json.dumps({"step": step, "loss": found}), flush=True)


def main() -> None:
    """Reads the plan beside this file and trains."""
    parser = argparse.ArgumentParser(description="Train in the pipeline of a plan.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="a small model of as many layers")
    parser.add_argument("--whole", action="store_true", help="unsplit, in one process")
    asked = parser.parse_args()
    plan = json.loads((HERE / "plan.json").read_text())
    shape = ModelShape(**plan["model"])
    shape = shape.tiny(plan["tensor_parallel"]) if asked.tiny else shape
    if asked.whole:
        train_whole(plan, shape, asked.steps, asked.seed)
        return
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if plan["dtype"] == "bf16":
            torch.set_default_dtype(torch.bfloat16)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        train_split(plan, shape, asked.steps, asked.seed, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
