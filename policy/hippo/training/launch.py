"""Puts a group of learners together: processes on this machine, or those that torchrun started on several.

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
from policy.hippo.training.gradient_sharing import Learners
from policy.hippo.training.train import Company, train
from twin.scenario.prepare import Setup

TOGETHER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells every process."""


def rank_of(environment: Mapping[str, str] = os.environ) -> int:
    """Which learner this process is: 0 unless a launcher says otherwise."""
    return int(environment["RANK"]) if all(name in environment for name in TOGETHER) else 0


@contextmanager
def learners(
    size: int, setup: Setup, config: HiPpoConfig, out: Path, validation: Setup | None = None
) -> Iterator[Learners]:
    """This process's end of a group of `size`; the others train beside it until the block ends.

    Raises:
        UsageError: a launcher started another number of processes.
    """
    if all(name in os.environ for name in TOGETHER):
        if int(os.environ["WORLD_SIZE"]) != size:
            started = os.environ["WORLD_SIZE"]
            raise UsageError(f"--distributed {size}, but {started} processes were started: give that number")
        peers = Learners(rank_of(), size, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), config)
        yield peers
        peers.close()
        return
    port = _free_port()
    given = size, port, setup, config, out, validation
    others = [
        get_context("spawn").Process(target=_learn, args=(rank, *given), daemon=True)
        for rank in range(1, size)
    ]
    for process in others:
        process.start()
    try:
        peers = Learners(0, size, "127.0.0.1", port, config)
        yield peers
        peers.close()
    finally:
        for process in others:
            process.join(timeout=10)
            process.kill()


def _learn(
    rank: int, size: int, port: int, setup: Setup, config: HiPpoConfig, out: Path, validation: Setup | None
) -> None:
    """Another learner: what it learns, the first one writes, and says when to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    peers = Learners(rank, size, "127.0.0.1", port, config)
    train(setup, config=config, out=out, validation=validation, company=Company(peers=peers))
    peers.close()


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
