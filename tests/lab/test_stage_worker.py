"""A worker that moves layers: in which order it posts what it sends and receives, without a network."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab import stage_worker
from lab.instructions import Instruction, Job, StageTask

JOB = Job(layers=6, hidden=8, sequence=4, vocabulary=16, micro_batch=1, seed=0, sites=2, learning_rate=1e-3)


def instruction(*cuts: tuple[int, int, int]) -> Instruction:
    stages = tuple(StageTask(site, first, last, 0.0, 0.0, 0.0) for site, first, last in cuts)
    return Instruction(0, stages, "1f1b", 2, (4_000,) * JOB.layers, 0.0)


def test_every_receive_is_posted_before_the_first_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gloo announces a receive over the connection that sends fill: behind them it would wait for all."""
    posted: list[tuple[str, int]] = []

    def post(kind: str) -> Any:
        def one(parcel: Any, peer: int, tag: int) -> Any:
            posted.append((kind, tag))
            return SimpleNamespace(wait=lambda: None)

        return one

    fake = SimpleNamespace(
        get_rank=lambda: 0, new_group=lambda ranks: None, barrier=lambda: None, isend=post("send"),
        irecv=post("receive"),
    )  # fmt: skip
    monkeypatch.setattr(stage_worker, "dist", fake)
    monkeypatch.setattr(stage_worker.Worker, "_join", lambda self, plan: setattr(self, "plan", plan))
    worker = stage_worker.Worker(JOB, tmp_path)
    worker.begin(instruction((0, 0, 3), (1, 3, 6)))
    weights = [max(4_000, 4 * len(worker.layers[number].state())) for number in range(3)]
    sent = worker.move(instruction((1, 0, 3), (0, 3, 6)))  # the sites change places
    assert posted == [("receive", 3), ("receive", 4), ("receive", 5), ("send", 0), ("send", 1), ("send", 2)]
    assert sent == sum(weights) and sorted(worker.layers) == [3, 4, 5]
