"""Time products in bf16 and fp8 and fused attention on this GPU: python -m benchmarks.twin.operators DIR

Writes rows of `layer_profiles` that `twin ingest` reads and `twin calibrate` fits. A row's `model` says what
was timed: `matmul-bf16-t2048-n4096-k4096` is (2,048 x 4,096) times (4,096 x 4,096);
`attention-b1-a32-s2048-d128` is causal attention of 32 heads of size 128. Medians of 20.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.nn import functional

TOKENS = (1024, 2048, 4096, 8192, 16384)
COLUMNS = (
    (4096, 4096), (6144, 6144), (12288, 12288), (4608, 12288), (12288, 6144), (16384, 8192), (28672, 8192),
)  # fmt: skip
ATTENTION = (
    (1, 32, 2048, 128), (4, 32, 2048, 128), (2, 24, 2048, 128), (4, 48, 4096, 128), (4, 6, 4096, 128),
    (1, 64, 8192, 128), (2, 32, 1024, 64), (8, 16, 1024, 64),
)  # fmt: skip


def median_s(run: Callable[[], object], repetitions: int = 20) -> float:
    for _ in range(5):
        run()
    times = []
    for _ in range(repetitions):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return sorted(times)[len(times) // 2]


def products() -> Iterator[tuple[str, str, float, str]]:
    one = torch.ones((), device="cuda")
    for tokens in TOKENS:
        for n, k in COLUMNS:
            a = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
            b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
            size = f"t{tokens}-n{n}-k{k}"
            yield f"matmul-bf16-{size}", "matmul", median_s(lambda a=a, b=b: a @ b.t()), ""
            a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
            fp8 = median_s(
                lambda a=a8, b=b8: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
            )
            yield f"matmul-fp8-{size}", "matmul", fp8, ""


def attention() -> Iterator[tuple[str, str, float, str]]:
    for b, a, s, d in ATTENTION:
        q, k, v = (
            torch.randn(b, a, s, d, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
        )

        def forward(q=q, k=k, v=v) -> torch.Tensor:  # type: ignore[no-untyped-def]
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        out = forward()
        grad = torch.randn_like(out)
        back = median_s(lambda o=out, x=(q, k, v), g=grad: torch.autograd.grad(o, x, g, retain_graph=True))
        yield f"attention-b{b}-a{a}-s{s}-d{d}", "attention", median_s(forward), f"{back:.6g}"


def main() -> None:
    name = torch.cuda.get_device_name()
    lines = ["model,gpu_model,tp,micro_batch,layer,forward_s,backward_s"]
    for rows in (products(), attention()):
        lines += [f"{model},{name},1,1,{layer},{forward:.6g},{back}" for model, layer, forward, back in rows]
    (Path(sys.argv[1]) / "layer_profiles.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
