"""Losses of plans exported to torchrun, split over processes, beside those of the same model unsplit.

    python -m benchmarks.replay.export_losses

A model of 8 layers trains three steps for every schedule and way to share it out, gloo over loopback; about a
minute of a processor. Synthetic tokens.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from replay.export import registry, writing
from replay.export.planned_job import PlannedJob
from tests.support import forked_ranks
from tests.support.planned_jobs import pipeline, small

STEPS = 3
TIED = {"gated": False, "bias": True, "learned_positions": True, "layer_norm": True, "tied": True}
THREE = ((0, 5, 1, 2), (2, 3, 1, 1))
"""Stages of 3, 2 and 3 layers in two domains."""


def plans() -> Iterator[tuple[str, PlannedJob]]:
    three = {"dp": 1, "micro_batches": 8}
    yield "1f1b", small(pipeline(*THREE, **three))
    yield "1f1b, 2 deeper", small(pipeline(*THREE, **three, extra_warmup=2))
    yield "gpipe", small(pipeline(*THREE, **three, schedule="gpipe"))
    yield "zb-h1", small(pipeline(*THREE, **three, schedule="zb-h1"))
    yield "crosspipe", small(pipeline(*THREE, **three, schedule="crosspipe"))
    two = pipeline((0, 5, 1, 1), (1, 3, 1, 1), **three, schedule="zb-v", chunks=2)
    yield "zb-v", small(two)
    yield (
        "interleaved",
        small(pipeline((0, 4, 1, 1), (1, 4, 1, 1), **three, schedule="interleaved", chunks=2)),
    )
    yield "1f1b, tied", small(pipeline(*THREE, **three), **TIED)
    yield "no recomputation", small(pipeline(*THREE, **three, recompute="none"))
    yield "selective", small(pipeline(*THREE, **three, recompute="selective"))
    shared = pipeline((0, 6, 1, 1), (1, 2, 1, 1), dp=2, micro_batches=4)
    for zero in (0, 1, 3):
        yield f"2 data ranks, ZeRO {zero}", small(replace(shared, zero=zero))
    yield "2 tensor ranks", small(pipeline((0, 6, 2, 1), (1, 2, 2, 1), **three))


def losses(job: PlannedJob) -> tuple[list[float], list[float]]:
    """Losses unsplit, and split."""
    processes = sum(len(share.gpus) for share in job.plan.shares)
    with tempfile.TemporaryDirectory() as folder:
        found = writing.export(registry.target("torchrun"), job, Path(folder), nearest=False)
        found.write(force=False)
        done = subprocess.run(
            [sys.executable, forked_ranks.__file__, f"{folder}/train.py", str(processes), "--tiny",
             "--steps", str(STEPS)],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    told = [json.loads(line)["loss"] for line in done.stdout.splitlines()]
    return told[:STEPS], told[STEPS:]


def main() -> None:
    print("| plan | processes | layers of the stages | last loss, whole | largest difference |")
    print("| --- | --- | --- | --- | --- |")
    for name, job in plans():
        whole, split = losses(job)
        worst = max(abs(a - b) for a, b in zip(whole, split, strict=True))
        parts = " ".join(str(part.past - part.first) for part in job.parts())
        count = sum(len(share.gpus) for share in job.plan.shares)
        print(f"| {name} | {count} | {parts} | {whole[-1]:.6f} | {worst:.1e} |", flush=True)


if __name__ == "__main__":
    main()
