"""1F1B with a deeper warm-up: the order of the kernels, and the losses of the training in one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.deep_warmup import order
from lab.instructions import Instruction, Job, StageTask, write_instruction, write_job
from lab.one_process import unmoved
from tests.support import forked_ranks, lab_ranks
from twin.pipeline.pipeline import warmup_depths


@pytest.mark.parametrize("extra", [0, 1, 3])
def test_stages_run_as_far_ahead_as_the_kernels_say(extra: int) -> None:
    stages, micro_batches = 3, 5
    depths = warmup_depths(stages, micro_batches, [extra * (stages - 1 - place) for place in range(stages)])
    for place, depth in enumerate(depths.tolist()):
        found = list(order(stages, place, micro_batches, extra))
        assert found.index(("B", 0)) == min(depth + 1, micro_batches)  # the forward of its pair comes first
        for kind in "FB":
            assert [number for one, number in found if one == kind] == list(range(micro_batches))


def test_the_losses_are_those_of_the_training_in_one_process(tmp_path: Path) -> None:
    job = Job(4, 16, 8, 32, 1, 0, 3, 1e-2)
    stages = tuple(StageTask(n, *cut, 0.0, 0.0, 0.0) for n, cut in enumerate([(0, 1), (1, 3), (3, 4)]))
    write_job(tmp_path, job)
    # Depths differ by 3: with PyTorch's own waits the stages would wait for each other for ever.
    write_instruction(tmp_path, 0, Instruction(0, stages, "1f1b", 8, (0,) * 4, 0.0, extra_warmup=2))
    write_instruction(tmp_path, 1, Instruction(3, (), "1f1b", 1, (), 0.0))
    (tmp_path / "go").touch()
    done = subprocess.run(
        [sys.executable, forked_ranks.__file__, lab_ranks.__file__, "3", tmp_path],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.replace("}{", "}\n{").splitlines()  # of three processes
    said = [json.loads(line) for line in lines if line.startswith("{")]
    losses = [one["loss"] for one in said if one.get("loss") is not None]
    assert losses == pytest.approx(unmoved(job, 8, 3), abs=1e-5) and losses[2] < losses[0]
