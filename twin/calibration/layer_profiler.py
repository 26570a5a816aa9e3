"""Measures one Transformer layer on the present device: time of forward, backward and update, and memory.

The result is two tables in canonical columns, `layer_profiles` and `gpu_samples`, which `twin ingest` reads.
A layer is measured in bf16 with tensor parallel width 1. Times are medians over repetitions after a warm-up;
`activation_bytes` are those that the forward pass leaves allocated for the backward pass.
"""

import csv
import io
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ingest.core.durable import replace
from ingest.core.progress import SILENT, Progress
from twin.calibration.gpu_telemetry import GpuSample, telemetry
from twin.calibration.profiled_layers import SHAPES, build_layer
from twin.core.transformer import Transformer

WARM_UPS = 5


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


def _timer(device: str) -> Callable[[], float]:
    """A clock that waits for the device before it reads."""
    import torch

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    return now


def measure(shape: Transformer, micro_batch: int, device: str, repetitions: int) -> LayerProfile:
    """Profile of one layer at one micro-batch size.

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
        shape.name, name, 1, micro_batch, "block", forward_s, backward_s, update_s, 2 * parameters, kept
    )


def device_name(device: str) -> str:
    """Name of the device in profiles."""
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


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


def dataset_toml(name: str, table: str, title: str) -> bytes:
    """Contents of the `dataset.toml` by which `twin ingest` reads a table."""
    return (
        f'name = "{name}"\nreader = "columns"\ntable = "{table}"\ntitle = "{title}"\n'
        f'licence = "Apache-2.0"\ncitation = "recorded with: twin profile"\nsynthetic = false\n'
    ).encode()


def profile(
    out: Path,
    *,
    shapes: Sequence[Transformer] = SHAPES,
    micro_batches: Sequence[int] = (1, 2, 4, 8),
    repetitions: int = 20,
    device: str | None = None,
    progress: Progress = SILENT,
) -> list[LayerProfile]:
    """Measure every shape at every micro-batch size and write two data sets under `out`.

    A size that does not fit into the device ends its shape: the larger ones are not tried.
    """
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[LayerProfile] = []
    progress.start(len(shapes) * len(micro_batches), f"profile {device_name(device)}", "shapes")
    with telemetry(device == "cuda") as samples:
        for shape in shapes:
            rows += _sizes(shape, micro_batches, device, repetitions, progress)
    slug = device_name(device).lower().replace(" ", "-")
    title = f"Transformer layers measured on {device_name(device)}"
    write(out / f"profile-{slug}", rows, "layer_profiles", title)
    if samples:
        write(out / f"telemetry-{slug}", samples, "gpu_samples", f"GPU telemetry of: {title}")
    return rows


def _sizes(
    shape: Transformer, micro_batches: Sequence[int], device: str, repetitions: int, progress: Progress
) -> Iterator[LayerProfile]:
    """Profiles of one shape at every size before the first that does not fit into the device."""
    import torch

    for done, micro_batch in enumerate(micro_batches):
        what = f"{shape.name} mbs {micro_batch}"
        try:
            yield measure(shape, micro_batch, device, repetitions)
        except torch.OutOfMemoryError:
            progress.advance(len(micro_batches) - done, f"{what}: out of memory")
            return
        finally:
            if device == "cuda":
                torch.cuda.empty_cache()
        progress.advance(1, what)


def write(folder: Path, rows: Sequence[Any], table: str, title: str) -> None:
    """Write one data set: the table and its `dataset.toml`."""
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / f"{table}.csv", as_csv(rows))
    replace(folder / "dataset.toml", dataset_toml(folder.name, table, title))
