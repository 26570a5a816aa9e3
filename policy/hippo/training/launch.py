"""Starts a group of learners: processes on this machine, or those of torchrun on several.

twin train --distributed 4
torchrun --nnodes 2 --nproc-per-node 4 --no-python twin train --distributed 8
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from socket import socket

from ingest.core.errors import UsageError
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.training.gradient_sharing import GlooLearnerGroup
from policy.hippo.training.train import TrainingBackend, train
from twin.scenario.prepare import PreparedScenario

LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets in every process."""


def rank_of(environment: Mapping[str, str] = os.environ) -> int:
    """Returns the rank of this process: 0 without a launcher."""
    return int(environment["RANK"]) if all(name in environment for name in LAUNCHER_VARIABLES) else 0


@contextmanager
def learners(
    size: int,
    setup: PreparedScenario,
    config: HiPpoConfig,
    out: Path,
    validation: PreparedScenario | None = None,
) -> Iterator[GlooLearnerGroup]:
    """Joins a group of `size` learners; those started here train until the block ends.

    Raises:
        UsageError: the launcher started another number of processes.
    """
    if all(name in os.environ for name in LAUNCHER_VARIABLES):
        if int(os.environ["WORLD_SIZE"]) != size:
            started = os.environ["WORLD_SIZE"]
            raise UsageError(f"--distributed {size}, but {started} processes were started: give that number")
        group = GlooLearnerGroup(
            rank_of(), size, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), config
        )
        yield group
        group.close()
        return
    port = _free_port()
    given = size, port, setup, config, out, validation
    others = [
        get_context("spawn").Process(target=_run_learner, args=(rank, *given), daemon=True)
        for rank in range(1, size)
    ]
    for process in others:
        process.start()
    try:
        group = GlooLearnerGroup(0, size, "127.0.0.1", port, config)
        yield group
        group.close()
    finally:
        for process in others:
            process.join(timeout=10)
            process.kill()


def _run_learner(
    rank: int,
    size: int,
    port: int,
    setup: PreparedScenario,
    config: HiPpoConfig,
    out: Path,
    validation: PreparedScenario | None,
) -> None:
    """Trains as learner `rank` > 0; learner 0 stops the group and writes the checkpoint."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    group = GlooLearnerGroup(rank, size, "127.0.0.1", port, config)
    train(setup, config=config, out=out, validation=validation, backend=TrainingBackend(group=group))
    group.close()


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
