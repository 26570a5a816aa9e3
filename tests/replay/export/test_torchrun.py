"""A script that trains in the pipeline of a plan: it runs here, with the losses of the unsplit model."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from replay.export import registry, stage_order, writing
from replay.export.contract import fitted
from replay.export.planned_job import PlannedJob
from replay.export.targets.torchrun import TorchrunTarget
from tests.support import forked_ranks
from tests.support.planned_jobs import KINDS, pipeline, small

TIED = {"gated": False, "bias": True, "learned_positions": True, "layer_norm": True, "tied": True}
TRIAL = ("--tiny", "--steps", "3")
JOBS = {
    "three uneven stages, deeper warm-up, tied": lambda: small(
        pipeline((0, 5, 1, 2), (2, 3, 1, 1), dp=1, micro_batches=8, extra_warmup=1), **TIED
    ),
    "two data ranks, sharded, selective": lambda: small(
        pipeline((0, 2, 1, 1), (1, 6, 1, 1), dp=2, micro_batches=4, recompute="selective")
    ),
}


def losses(job: PlannedJob, folder: Path) -> tuple[list[float], list[float]]:
    """Losses of three steps, unsplit and split."""
    writing.export(TorchrunTarget(), job, folder, nearest=False).write(force=True)
    processes = sum(len(share.gpus) for share in job.plan.shares)
    done = subprocess.run(
        [sys.executable, forked_ranks.__file__, folder / "train.py", str(processes), *TRIAL],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line)["loss"] for line in done.stdout.splitlines()]
    return found[:3], found[3:]


@pytest.mark.parametrize("name", JOBS)
def test_losses_of_the_split_model_are_those_of_the_whole(name: str, tmp_path: Path) -> None:
    whole, split = losses(JOBS[name](), tmp_path)
    assert len(whole) == 3 and whole[2] < whole[0]
    assert split == pytest.approx(whole, abs=2e-5)


def test_the_schedule_is_that_of_the_plan() -> None:
    rows = stage_order.lines(KINDS["deeper warm-up"]())
    assert rows[0][:6] == [
        "0F0",
        "0F1",
        "0F2",
        "0F3",
        "0F4",
        "0B0",
    ]  # S - 1 - i = 2, and 2 more before the WAN
    assert rows[2][:4] == ["2F0", "2B0", "2F1", "2B1"]
    assert [len(row) for row in rows] == [32, 32, 32]


def test_zero_bubble_schedules_part_the_backward() -> None:
    rows = stage_order.lines(KINDS["zb-h1"]())
    assert rows[2][:4] == ["2F0", "2I0", "2F1", "2I1"]
    kinds = {kind: sum(kind in one for one in rows[0]) for kind in "FIWB"}
    assert kinds == {"F": 16, "I": 16, "W": 16, "B": 0}


def test_parts_of_zb_v_lead_down_and_up_again() -> None:
    files = TorchrunTarget().files(KINDS["zb-v"]())
    parts = json.loads(files["plan.json"])["parts"]
    assert [part["stage"] for part in parts] == [0, 1, 2, 2, 1, 0]
    assert (parts[0]["first"], parts[-1]["past"]) == (0, 34)
    assert all(a["past"] == b["first"] for a, b in pairwise(parts))


def test_every_schedule_is_expressed_as_it_is() -> None:
    for kind in ("gpipe", "zb-h1", "zb-v", "crosspipe", "interleaved", "deeper warm-up"):
        assert fitted(registry.target("torchrun"), KINDS[kind](), nearest=False).changed == ()
