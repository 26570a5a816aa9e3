import time

import pytest
import torch

from lab.instructions import Job
from lab.one_process import unmoved
from lab.small_gpt import GptSizes, TimedStage, batch, loss, make_layer
from lab.stage_worker import MovableLayer

SIZES = GptSizes(layers=4, hidden=16, sequence=8, vocabulary=32, heads=2)


def test_stages_compute_what_the_whole_model_does() -> None:
    layers = [make_layer(SIZES, n, seed=3) for n in range(4)]
    tokens, following = batch(SIZES, 0, 2, seed=3)
    whole = loss(torch.nn.Sequential(*(make_layer(SIZES, n, seed=3) for n in range(4)))(tokens), following)

    first, last = TimedStage(layers[:1], 0, 0), TimedStage(layers[1:], 0, 0)

    assert torch.equal(loss(last(first(tokens)), following), whole)


def test_operations_of_a_stage_last_as_long_as_told() -> None:
    stage = TimedStage([make_layer(SIZES, n, 0) for n in range(4)], forward_s=0.05, backward_s=0.1)
    tokens, following = batch(SIZES, 0, 1, 0)
    began_s = time.monotonic()
    found = loss(stage(tokens), following)
    middle_s = time.monotonic()
    found.backward()

    assert middle_s - began_s >= 0.05
    assert time.monotonic() - middle_s >= 0.1


def test_a_layer_that_moves_goes_on_as_if_it_had_stayed() -> None:
    tokens, following = batch(SIZES, 0, 2, 0)
    layers = [MovableLayer(make_layer(SIZES, n, 0), 1e-2) for n in range(4)]

    def train(chosen: list[MovableLayer]) -> float:
        x = tokens
        for layer in chosen:
            layer.optimizer.zero_grad()
            x = layer.module(x)
        found = loss(x, following)
        found.backward()
        for layer in chosen:
            layer.optimizer.step()
        return float(found.detach())

    train(layers)
    moved = [MovableLayer(make_layer(SIZES, n, seed=9), 1e-2) for n in range(4)]
    for here, there in zip(layers, moved, strict=True):
        there.take(here.state().clone())

    assert [train(layers) for _ in range(3)] == [train(moved) for _ in range(3)]


def test_training_in_one_process_learns() -> None:
    job = Job(4, 16, 8, 32, 2, 0, 3, 1e-2)
    losses = unmoved(job, micro_batches=2, steps=40)

    assert len(losses) == 40
    assert sum(losses[-10:]) < sum(losses[:10]) - 2
    assert losses[0] == pytest.approx(3.5, abs=0.3)  # ln 32, no knowledge yet
