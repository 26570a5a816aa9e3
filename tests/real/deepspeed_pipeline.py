"""An export of `twin export --to deepspeed`, trained by DeepSpeed on processors.

    python -m tests.real.deepspeed_pipeline

Two stages of 5 and 3 layers train a small model for three steps, gloo over loopback. Needs DeepSpeed. Prints
the losses, and fails where DeepSpeed does not end.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from replay.export import registry, writing
from tests.support.planned_jobs import pipeline, small


def main() -> None:
    job = small(pipeline((0, 5, 1, 1), (2, 3, 1, 1), dp=1, micro_batches=8))
    with tempfile.TemporaryDirectory() as place:
        found = writing.export(registry.target("deepspeed"), job, Path(place), nearest=False)
        found.write(force=False)
        done = subprocess.run(
            ["torchrun", "--standalone", "--nproc-per-node", "2", f"{place}/train.py", "--tiny",
             "--steps", "3"],
            env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
            capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    print("\n".join(line for line in done.stdout.splitlines() if line.startswith("{")))


if __name__ == "__main__":
    main()
