"""`twin train --queue`: an order learned from the first part of job logs, as a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core import durable
from ingest.core.durable import DISK
from ingest.core.errors import ExistsError, UsageError
from ingest.core.progress import SILENT, Progress
from ingest.readers import job_logs
from policy.hippo.queue.training import Method, train
from policy.hippo.queue.windows import PoolPart, split
from policy.queue import checkpoint
from policy.queue.checkpoint import LearnedOrder
from replay.logqueue.run_events import digest_of
from twin.queue.rules import PREDICTSIM
from twin.workload.selection import select

SHARE = 0.6
"""Share of each log that is learned from; the later part is left to judge by."""


@dataclass(frozen=True, eq=False)
class OrderTraining:
    """A learned order, its file and the digest of it."""

    path: Path
    digest: str
    order: LearnedOrder

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin train --queue --json`."""
        return {
            "schema": "twin.queue-training/1", "file": str(self.path), "digest": self.digest,
            **self.order.provenance,
        }  # fmt: skip


def train_order(
    logs: Sequence[Path], out: Path, *, method: Method = "ppo", minutes: float = 5.0, seed: int = 0,
    processors: int | None = None, resume: bool = False, progress: Progress = SILENT,
) -> OrderTraining:  # fmt: skip
    """Returns an order learned from the first `SHARE` of the jobs of each log, and writes it.

    After Ctrl-C the best one so far is written. With `resume` training goes on from the weights of the file;
    momenta of the optimisers begin anew.

    Raises:
        InputError: a log cannot be read. ExistsError: the file is there and nothing is to be resumed.
        UsageError: nothing waits, or another method is resumed.
    """
    start = checkpoint.load(out) if resume else None
    if start is not None and start.provenance.get("method") != method:
        raise UsageError(f"{out} was trained by {start.provenance.get('method')}: resume with that --method")
    if start is None and out.exists() and not durable.written_in_place(out):
        raise ExistsError(f"{out} exists: name another --out, or go on with --resume")
    parts = []
    for path in logs:
        log = select(job_logs.read(path), PREDICTSIM, processors)
        parts.append(split(PoolPart(log.jobs.cut_at_estimate(), log.processors), SHARE)[0])
    DISK.foretell((out, "learned order of a queue"))
    order = train(parts, method, seed=seed, minutes=minutes, start=start, progress=progress)
    order.provenance["logs"] = [
        {"log": path.name, "jobs_sha256": digest_of(part.jobs)}
        for path, part in zip(logs, parts, strict=True)
    ]
    return OrderTraining(out, checkpoint.save(out, order), order)
