"""Replica groups of `twin export --to torchft`, run on this machine under a real lighthouse.

    python -m tests.real.torchft_groups [H]

Two groups of two stages train a small model of 8 layers for 2 H steps, gloo over loopback. Needs torchft and
about a minute. Prints the losses, and fails where the groups do not hold the same weights after outer steps.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from torchft._torchft import LighthouseServer

from replay.export import registry, writing
from tests.support.planned_jobs import small
from twin.core.plan import Plan, Share, Sync


def main(every: int) -> None:
    plan = Plan(tuple(Share(k, 8, 1, 2, (0, 1)) for k in (0, 2)), 1, 1, 4, zero=0, sync=Sync(every, 4.0))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        writing.export(registry.target("torchft"), small(plan), folder, nearest=False).write(force=False)
        lighthouse = LighthouseServer("127.0.0.1:0", min_replicas=2, join_timeout_ms=30_000)
        shared = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHFT_LIGHTHOUSE": lighthouse.address()}
        command = ["torchrun", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port"]
        try:
            groups = [
                subprocess.Popen(
                    [*command, str(29520 + n), folder / "replica.py", "--tiny", "--steps", str(2 * every)],
                    env={**shared, "REPLICA_GROUP_ID": str(n)}, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
                for n in range(2)
            ]  # fmt: skip
            told = [group.communicate(timeout=300) for group in groups]
        finally:
            lighthouse.shutdown()
    for group, (_, error) in zip(groups, told, strict=True):
        assert group.returncode == 0, error
    lines = [json.loads(line) for out, _ in told for line in out.splitlines() if line.startswith("{")]
    for line in lines:
        print(json.dumps(line))
    held = {(line["group"], line["rank"]): line["weights"] for line in lines if "weights" in line}
    for rank in (0, 1):
        assert abs(held[0, rank] - held[1, rank]) < 1e-4, f"groups differ in process {rank}: {held}"
    print(f"H {every}: both groups hold the same weights after {2 * every} steps")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
