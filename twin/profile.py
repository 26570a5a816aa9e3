"""Measure one Transformer layer on the present device: time of forward, backward and update, and memory.

The result is two tables in canonical columns, `layer_profiles` and `gpu_samples`, which `twin ingest` reads.
A layer is measured in bf16 with tensor parallel width 1. Times are medians over repetitions after a warm-up;
`activation_bytes` is what the forward pass leaves allocated for the backward pass.
"""

import csv
import io
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest.durable import replace
from ingest.errors import InputError
from ingest.progress import SILENT, Progress
from ingest.units import MIB

WARM_UPS = 5


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Shape of one block: `gated` selects the Llama form (RMSNorm, SiLU gate), else the GPT form."""

    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    seq: int
    gated: bool

    @property
    def label(self) -> str:
        """Name in the column `model`."""
        kind = "llama" if self.gated else "gpt"
        return f"{kind}-h{self.hidden}-a{self.heads}-kv{self.kv_heads}-f{self.ffn}-s{self.seq}"


SHAPES = (
    LayerShape(1600, 25, 25, 6400, 1024, gated=False),
    LayerShape(2048, 16, 16, 8192, 2048, gated=False),
    LayerShape(4096, 32, 32, 16384, 2048, gated=False),
    LayerShape(12288, 96, 96, 49152, 2048, gated=False),
    LayerShape(4096, 32, 32, 11008, 4096, gated=True),
    LayerShape(5120, 40, 40, 13824, 4096, gated=True),
    LayerShape(8192, 64, 8, 28672, 4096, gated=True),
    LayerShape(16384, 128, 8, 53248, 8192, gated=True),
)
"""GPT-2 1.5B to GPT-3 175B, Llama-2 7B/13B/70B and Llama-3 405B blocks."""


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One row of `layer_profiles`; field names are its columns."""

    model: str
    gpu_model: str
    tp: int
    micro_batch: int
    layer: str
    forward_s: float
    backward_s: float
    update_s: float
    param_bytes: int
    activation_bytes: int | None  # None where the device does not count its memory


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One row of `gpu_samples`; field names are its columns."""

    ts: str
    host: str
    gpu: str
    gpu_model: str
    util: float | None
    mem_used_bytes: int | None
    mem_total_bytes: int | None
    power_w: float | None
    temp_c: float | None
    sm_clock_mhz: float | None


def build_layer(shape: LayerShape, device: str) -> Any:
    """The block as a torch module with bf16 weights on `device`."""
    import torch
    from torch import nn
    from torch.nn import functional

    head = shape.hidden // shape.heads
    kv = shape.kv_heads * head
    wide = (2 if shape.gated else 1) * shape.ffn

    class Block(nn.Module):
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

    return Block().to(device=device, dtype=torch.bfloat16)


def _timer(device: str) -> Callable[[], float]:
    """A clock that waits for the device before it reads."""
    import torch

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    return now


def measure(shape: LayerShape, micro_batch: int, device: str, repetitions: int) -> LayerProfile:
    """Time one layer at one micro-batch size.

    Raises:
        torch.OutOfMemoryError: the device cannot hold it.
    """
    import torch

    now = _timer(device)
    layer = build_layer(shape, device)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-5, fused=device == "cuda")
    x = torch.randn(
        micro_batch, shape.seq, shape.hidden, device=device, dtype=torch.bfloat16, requires_grad=True
    )
    times: list[tuple[float, float, float]] = []
    kept: int | None = None
    for _ in range(WARM_UPS + repetitions):
        before = torch.cuda.memory_allocated() if device == "cuda" else None
        start = now()
        y = layer(x)
        forward = now()
        kept = None if before is None else torch.cuda.memory_allocated() - before
        y.backward(torch.ones_like(y))
        backward = now()
        optimiser.step()
        update = now()
        optimiser.zero_grad(set_to_none=False)
        times.append((forward - start, backward - forward, update - backward))
    forward_s, backward_s, update_s = (
        statistics.median(column) for column in zip(*times[WARM_UPS:], strict=True)
    )
    parameters = sum(p.numel() for p in layer.parameters())
    name = device_name(device)
    return LayerProfile(
        shape.label, name, 1, micro_batch, "block", forward_s, backward_s, update_s, 2 * parameters, kept
    )


def device_name(device: str) -> str:
    """What the profile calls the device."""
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


QUERY = "timestamp,index,name,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu,clocks.sm"


def _number(cell: str, scale: float = 1.0) -> float | None:
    """A cell of nvidia-smi, or nothing where the driver has no value."""
    try:
        return float(cell) * scale
    except ValueError:
        return None


def parse_sample(line: str, host: str) -> GpuSample:
    """One line of `nvidia-smi --query-gpu` (QUERY, noheader, nounits), stamped in UTC by this process.

    Percent become fractions and MiB bytes.

    Raises:
        InputError: the line does not have the nine fields that were asked for.
    """
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(QUERY.split(",")):
        raise InputError(f"nvidia-smi answered {line!r}: {len(cells)} fields of 9; check the driver")
    used, total = _number(cells[4], MIB), _number(cells[5], MIB)
    return GpuSample(
        ts=datetime.now(UTC).isoformat(),
        host=host,
        gpu=cells[1],
        gpu_model=cells[2],
        util=_number(cells[3], 0.01),
        mem_used_bytes=None if used is None else int(used),
        mem_total_bytes=None if total is None else int(total),
        power_w=_number(cells[6]),
        temp_c=_number(cells[7]),
        sm_clock_mhz=_number(cells[8]),
    )


@contextmanager
def telemetry(enabled: bool, interval_ms: int = 200, host: str = "localhost") -> Iterator[list[GpuSample]]:
    """Collect GPU samples in the background while the block runs."""
    samples: list[GpuSample] = []
    if not enabled:
        yield samples
        return
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", f"-lms={interval_ms}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = process.stdout
    thread = threading.Thread(target=lambda: samples.extend(parse_sample(line, host) for line in lines))
    thread.start()
    try:
        yield samples
    finally:
        process.terminate()
        thread.join()


def _cell(value: object) -> object:
    """A value as text: six significant digits, nothing where it is unknown."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value


def as_csv(rows: Sequence[LayerProfile] | Sequence[GpuSample]) -> bytes:
    """Rows as CSV under their canonical column names; an unknown value is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [field.name for field in fields(rows[0])]
    writer.writerow(columns)
    for row in rows:
        writer.writerow(_cell(getattr(row, column)) for column in columns)
    return text.getvalue().encode()


def dataset_toml(name: str, table: str, title: str, command: str) -> bytes:
    """The `dataset.toml` that tells `twin ingest` what lies beside it."""
    return (
        f'name = "{name}"\nreader = "columns"\ntable = "{table}"\ntitle = "{title}"\n'
        f'licence = "Apache-2.0"\ncitation = "recorded with: {command}"\nsynthetic = false\n'
    ).encode()


def profile(
    out: Path,
    *,
    shapes: Sequence[LayerShape] = SHAPES,
    micro_batches: Sequence[int] = (1, 2, 4, 8),
    repetitions: int = 20,
    device: str | None = None,
    command: str = "twin profile",
    progress: Progress = SILENT,
) -> list[LayerProfile]:
    """Measure every shape at every micro-batch size and write two data sets under `out`.

    A size that does not fit into the device ends its shape: the larger ones are not tried.
    """
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[LayerProfile] = []
    progress.start(len(shapes) * len(micro_batches), f"profile {device_name(device)}")
    with telemetry(device == "cuda") as samples:
        for shape in shapes:
            for done, micro_batch in enumerate(micro_batches):
                try:
                    rows.append(measure(shape, micro_batch, device, repetitions))
                except torch.OutOfMemoryError:
                    progress.advance(
                        len(micro_batches) - done, f"{shape.label} mbs {micro_batch}: out of memory"
                    )
                    break
                finally:
                    if device == "cuda":
                        torch.cuda.empty_cache()
                progress.advance(1, f"{shape.label} mbs {micro_batch}")
    slug = device_name(device).lower().replace(" ", "-")
    title = f"Transformer layers measured on {device_name(device)}"
    write(out / f"profile-{slug}", rows, "layer_profiles", title, command)
    if samples:
        write(out / f"telemetry-{slug}", samples, "gpu_samples", f"GPU telemetry of: {title}", command)
    return rows


def write(folder: Path, rows: Sequence[Any], table: str, title: str, command: str) -> None:
    """One data set: the table and its `dataset.toml`."""
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / f"{table}.csv", as_csv(rows))
    replace(folder / "dataset.toml", dataset_toml(folder.name, table, title, command))


if __name__ == "__main__":
    import sys

    profile(Path(sys.argv[1]), command="python -m twin.profile traces")
