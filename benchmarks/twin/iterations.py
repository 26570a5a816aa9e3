"""Train small Transformers on this GPU and time whole iterations: python -m benchmarks.twin.iterations DIR

One GPU, gradient accumulation, Megatron's mixed precision: bf16 weights, gradients accumulated in fp32,
fused AdamW over an fp32 master copy, Megatron's cross entropy; fused attention. Writes iterations.csv: the
columns of `twin estimate`, and what was measured (median time of an iteration, the allocator's peak, mean
power of the board while iterating). fidelity.py uses it as truth that nothing is fitted to.
"""

import csv
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from twin.calibration.profiled_layers import build_layer, profiled_block

WARM_UPS, REPETITIONS = 3, 8


@dataclass(frozen=True)
class Setting:
    """One run: `gated` selects the Llama form of the block."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    seq: int
    vocab: int
    micro_batch: int
    micro_batches: int
    recompute: str

    @property
    def gated(self) -> bool:
        return self.ffn != 4 * self.hidden


SMALL_LLAMA, LLAMA = (16, 2048, 16, 5504, 2048, 32000), (8, 4096, 32, 11008, 4096, 32000)
SMALL_GPT, GPT = (24, 2048, 16, 8192, 2048, 50304), (8, 4096, 32, 16384, 2048, 50304)
SETTINGS = (
    Setting(*SMALL_LLAMA, 4, 4, "none"),
    Setting(*SMALL_LLAMA, 8, 2, "full"),
    Setting(*SMALL_LLAMA, 1, 8, "none"),
    Setting(*LLAMA, 1, 4, "none"),
    Setting(*LLAMA, 2, 4, "none"),
    Setting(*LLAMA, 2, 4, "full"),
    Setting(*SMALL_GPT, 4, 2, "none"),
    Setting(*SMALL_GPT, 8, 2, "full"),
    Setting(*SMALL_GPT, 1, 8, "none"),
    Setting(*GPT, 2, 4, "none"),
    Setting(*GPT, 4, 2, "none"),
    Setting(*GPT, 4, 2, "full"),
)


class CrossEntropy(torch.autograd.Function):
    """Megatron's: one fp32 copy of the logits becomes the softmax in place, and the gradient in place."""

    @staticmethod
    def forward(ctx, logits, targets):  # type: ignore[no-untyped-def]
        softmax = logits.float()
        softmax -= softmax.amax(dim=-1, keepdim=True)
        chosen = softmax.gather(1, targets[:, None]).squeeze(1).clone()
        total = softmax.exp_().sum(dim=-1)
        softmax /= total[:, None]
        ctx.save_for_backward(softmax, targets)
        return (total.log() - chosen).mean()

    @staticmethod
    def backward(ctx, scale):  # type: ignore[no-untyped-def]
        softmax, targets = ctx.saved_tensors
        softmax[torch.arange(len(targets), device=targets.device), targets] -= 1.0
        softmax *= scale / len(targets)
        return softmax.to(torch.bfloat16), None


class Model(nn.Module):
    """Embedding, blocks of `twin profile`, head; the loss is cross entropy."""

    def __init__(self, of: Setting) -> None:
        super().__init__()
        shape = profiled_block(of.hidden, of.heads, of.heads, of.ffn, of.seq, of.gated)
        self.embedding = nn.Embedding(of.vocab, of.hidden)
        self.blocks = nn.ModuleList(build_layer(shape, "cuda") for _ in range(of.layers))
        self.norm = nn.LayerNorm(of.hidden)
        self.head = nn.Linear(of.hidden, of.vocab, bias=False)
        self.to(device="cuda", dtype=torch.bfloat16)
        self.recompute = of.recompute == "full"

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return CrossEntropy.apply(self.head(self.norm(x)).view(tokens.numel(), -1), tokens.view(-1))


class Power:
    """Mean power of the board between start and stop, watts, from nvidia-smi each 100 ms."""

    def __init__(self) -> None:
        command = ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits", "-lms=100"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.samples: list[float] = []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.samples.append(float(line))

    def stop(self) -> float:
        self.process.terminate()
        self.thread.join()
        return sum(self.samples) / max(1, len(self.samples))


def reduce(weight: torch.Tensor, total: torch.Tensor) -> None:
    """Add a finished gradient to its fp32 sum and let it go."""
    assert weight.grad is not None
    total.add_(weight.grad)
    weight.grad = None


def run(of: Setting) -> tuple[float, int, float]:
    """Median seconds of an iteration, peak bytes, mean watts."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = Model(of)
    weights = list(model.parameters())
    master = [weight.detach().float().requires_grad_() for weight in weights]
    for weight, copy in zip(weights, master, strict=True):
        copy.grad = torch.zeros_like(copy)
        weight.register_post_accumulate_grad_hook(lambda w, total=copy.grad: reduce(w, total))
    optimiser = torch.optim.AdamW(master, lr=1e-5, fused=True)
    tokens = torch.randint(of.vocab, (of.micro_batch, of.seq), device="cuda")

    def iterate() -> float:
        start = time.perf_counter()
        for _ in range(of.micro_batches):
            model(tokens).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)
        with torch.no_grad():
            torch._foreach_copy_(weights, master)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    for _ in range(WARM_UPS):
        iterate()
    power = Power()
    times = sorted(iterate() for _ in range(REPETITIONS))
    return times[len(times) // 2], torch.cuda.max_memory_allocated(), power.stop()


def main() -> None:
    head = [
        "gpu_model", "layers", "hidden", "heads", "ffn", "seq", "vocab", "micro_batch", "micro_batches",
        "recompute",
        "measured_iter_s", "measured_peak_bytes", "measured_power_w",
    ]  # fmt: skip
    with (Path(sys.argv[1]) / "iterations.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        for of in SETTINGS:
            seconds, peak, watts = run(of)
            writer.writerow([
                torch.cuda.get_device_name(), of.layers, of.hidden, of.heads, of.ffn, of.seq, of.vocab,
                of.micro_batch, of.micro_batches, of.recompute, f"{seconds:.6g}", peak, f"{watts:.1f}",
            ])  # fmt: skip
            file.flush()
            print(of, seconds, peak, watts, flush=True)


if __name__ == "__main__":
    main()
