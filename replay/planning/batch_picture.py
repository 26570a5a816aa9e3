"""`twin batch --out`: memory over the micro-batch, and goodput over the batch.

Left, the predicted peak of the fullest GPU for each kind of recomputation, beside the line of what fits with
the margin of the memory model. Right, samples a second and goodput, what is left of them by statistical
efficiency, for each batch; of one batch for each micro-batch. Of a profile, which has no memory, the right
side alone.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.core.errors import UsageError
from ingest.core.terminal import visible
from ingest.core.units import GB
from ingest.lake.plot import FORMATS
from twin.costs.memory import MARGIN, WORKSPACE_BYTES
from twin.goodput.application_profile import ProfileAnswer
from twin.goodput.batch_choice import RECOMPUTE, BatchAnswer

COLOURS = {"none": "#b3541e", "selective": "#5a8f29", "full": "#2b6ca3"}
RED, BLUE, GREY = "#c81e1e", "#2b6ca3", "#94a3b8"
MOST_SHOWN = 1.6
"""Memory of a GPU beyond which peaks are not drawn."""


def picture(found: BatchAnswer | ProfileAnswer, path: Path) -> bytes:
    """Returns the picture in the format that the name of `path` asks for; equal answers give equal bytes.

    Raises:
        UsageError: another format than SVG or PNG.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--out {path}: the name must end in {' or '.join(FORMATS)}")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    form, constant = FORMATS[path.suffix.lower()]
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "twin", "text.parse_math": False}):
        panels = 2 if isinstance(found, BatchAnswer) else 1
        figure = Figure(figsize=(5 * panels, 3.4), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)[0]
        if isinstance(found, BatchAnswer):
            _memory(axes[0], found)
            _of_model(axes[1], found)
        else:
            _of_profile(axes[0], found)
        figure.suptitle(visible(_title(found)), fontsize=9)
        out = io.BytesIO()
        figure.savefig(out, format=form, metadata=constant, dpi=120)
    return out.getvalue()


def _title(found: BatchAnswer | ProfileAnswer) -> str:
    if isinstance(found, ProfileAnswer):
        where = f"{found.application} on {found.gpu}, GPUs a node {found.placement}"
        return f"{where}: batch {found.chosen.batch:,}"
    asked, chosen = found.question, found.chosen
    how = f"batch {chosen.batch:,} as {chosen.micro_batch} x {chosen.accumulation} x {asked.dp}"
    where = f"{asked.model} on {asked.gpus} x {asked.gpu}"
    return f"{where}: {how}, recompute {chosen.recompute}, zero {chosen.zero}"


def _memory(axis: Any, found: BatchAnswer) -> None:
    """Draws the peaks under the chosen ZeRO stage, of each micro-batch the largest of all batches."""
    chosen, most = found.chosen, MOST_SHOWN * found.gpu_bytes
    peaks: dict[str, dict[int, int]] = {recompute: {} for recompute in RECOMPUTE}
    for one in found.choices:
        if one.zero == chosen.zero and one.peak_bytes <= most:
            held = peaks[one.recompute]
            held[one.micro_batch] = max(held.get(one.micro_batch, 0), one.peak_bytes)
    for recompute, held in peaks.items():
        micro = sorted(held)
        peak = [held[size] / GB for size in micro]
        axis.plot(micro, peak, "o-", ms=3, lw=1, color=COLOURS[recompute], label=f"recompute {recompute}")
    room = (found.gpu_bytes - WORKSPACE_BYTES) / (1 + MARGIN) + WORKSPACE_BYTES
    axis.axhline(found.gpu_bytes / GB, color=RED, lw=1, label=f"{found.question.gpu}")
    axis.axhline(room / GB, color=RED, lw=1, ls="--", label=f"with a margin of {MARGIN:.0%}")
    _mark(axis, chosen.micro_batch, chosen.peak_bytes / GB)
    _scale(axis, sorted({size for held in peaks.values() for size in held}))
    axis.set_xlabel("micro-batch, samples")
    axis.set_ylabel("predicted peak of a GPU, GB")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=7, framealpha=0.9, edgecolor="none")


def _of_model(axis: Any, found: BatchAnswer) -> None:
    if len(found.best) > 1:
        label = "batch, samples"
        rows = [(one.batch, one.samples_s, one.goodput) for one in found.best]
        chosen = found.chosen.batch
    else:
        label = f"micro-batch of batch {found.chosen.batch:,}, samples"
        rows = [
            (one.micro_batch, one.samples_s, one.goodput)
            for one in found.choices
            if one.way == found.chosen.way and one.fits
        ]
        chosen = found.chosen.micro_batch
    _goodput(axis, rows, label, chosen, found.chosen.goodput)


def _of_profile(axis: Any, found: ProfileAnswer) -> None:
    rows = [(one.batch, one.samples_s, one.goodput) for one in found.batches]
    _goodput(axis, rows, "batch, samples", found.chosen.batch, found.chosen.goodput)


def _goodput(
    axis: Any, rows: Sequence[tuple[int, float, float]], label: str, chosen: int, most: float
) -> None:
    """Draws samples a second and goodput of rows (size, samples/s, goodput)."""
    size, speed, goodput = zip(*rows, strict=True)
    axis.plot(size, speed, "o--", ms=3, lw=1, color=GREY, label="samples/s")
    axis.plot(size, goodput, "o-", ms=3, lw=1.5, color=BLUE, label="goodput: samples/s x efficiency")
    _mark(axis, chosen, most)
    _scale(axis, size)
    axis.set_xlabel(label)
    axis.set_ylabel("samples a second")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=7, framealpha=0.9, edgecolor="none")


def _mark(axis: Any, x: float, y: float) -> None:
    """Draws a ring around what is taken."""
    axis.plot([x], [y], "o", ms=9, mfc="none", mec="black", mew=1.2, label="taken")


def _scale(axis: Any, sizes: Sequence[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(sizes), [f"{one:,}" for one in sizes], rotation=45 if len(sizes) > 8 else 0)
    axis.minorticks_off()
