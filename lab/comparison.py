"""Predicted against measured, cell by cell: links x plan x schedule; and every move between them."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from ingest.core.progress import SILENT, Progress
from ingest.core.scratch import Scratch
from lab.emulated_wan import EmulatedWan
from lab.miniature import SCHEDULES, Miniature
from lab.one_process import unmoved
from lab.training_job import LabError, Move, Step, TrainingJob
from replay.metrics.formatting import is_synthetic
from twin.core.plan import Plan


@dataclass(frozen=True, slots=True)
class LabCell:
    """One plan under one schedule: medians over its steps, seconds of the lab.

    `predicted_s` has the word of a posted receive cross the link, `kernel_s` has it known at once. Errors
    are predicted over measured, less 1. `late_s`: mean overrun of a step's operations on this machine.
    """

    plan: str
    schedule: str
    steps: int
    measured_s: float
    predicted_s: float
    kernel_s: float
    late_s: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_s / self.measured_s - 1

    @property
    def kernel_error(self) -> float:
        """Relative error of the kernels' prediction."""
        return self.kernel_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class MovePair:
    """A move: measured and predicted pause, seconds of the lab."""

    change: str
    sent_bytes: int
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison over one trace.

    `losses`: nats of all steps in order; `unmoved`: those of the same training in one process, without
    network, cut or move. `time`, `bytes`: the scale.
    """

    scenario: str
    dataset: str
    synthetic: bool
    time: float
    bytes: float
    cells: tuple[LabCell, ...]
    moves: tuple[MovePair, ...]
    losses: tuple[float, ...]
    unmoved: tuple[float, ...]

    @property
    def loss_gap(self) -> float:
        """Largest difference between the two losses of a step, nats."""
        return max(abs(one - other) for one, other in zip(self.losses, self.unmoved, strict=True))

    def to_json(self) -> dict[str, Any]:
        """The answer of `twin lab`, `twin.lab/1`."""
        errors = sorted(abs(cell.error) for cell in self.cells)
        return {
            "schema": "twin.lab/1", "scenario": self.scenario, "dataset": self.dataset,
            "synthetic": self.synthetic, "time_scale": self.time, "bytes_scale": self.bytes,
            "median_error": statistics.median(errors), "worst_error": errors[-1],
            "cells": [
                {**asdict(one), "error": one.error, "kernel_error": one.kernel_error} for one in self.cells
            ],
            "moves": [{**asdict(move), "error": move.error} for move in self.moves],
            "loss_gap": self.loss_gap, "losses": list(self.losses), "unmoved_losses": list(self.unmoved),
        }  # fmt: skip


def three_plans(lab: Miniature) -> tuple[Plan, ...]:
    """An even cut over all sites, an uneven one in another order, and a plan over two of them."""
    sites, layers = lab.job.sites, lab.layers
    even = [layers // sites + (n < layers % sites) for n in range(sites)]
    uneven = [even[0] + 2, *even[1:-1], even[-1] - 2]
    half = layers // 2
    return (
        lab.plan(range(sites), even),
        lab.plan([sites - 1, *range(sites - 1)], uneven),
        lab.plan([0, sites - 1], [half, layers - half]),
    )


def named(lab: Miniature, plan: Plan) -> str:
    """A plan in words: sites in order with their layers."""
    names = [domain.name for domain in lab.prepared.cluster.domains]
    return " > ".join(f"{names[share.domain]} {share.layers}" for share in plan.shares)


def compare(
    lab: Miniature, steps: int, plans: Sequence[Plan] | None = None, progress: Progress = SILENT
) -> Compared:
    """Runs every plan under every schedule for `steps` steps each, in one job that moves between them.

    The first step of a plan is left out of its figures: connections and the pipeline are set up in it.
    """
    chosen = three_plans(lab) if plans is None else tuple(plans)
    queue = [
        lab.plan(one.order, [s.layers for s in one.shares], kind) for one in chosen for kind in SCHEDULES
    ]
    before: list[Plan | None] = [None, *queue]
    instructions = [
        lab.instruction(plan, n * steps, old)
        for n, (old, plan) in enumerate(zip(before, queue, strict=False))
    ]
    done: list[Step] = []
    moved: list[Move] = []
    with Scratch() as scratch:
        if scratch.path is None:
            raise LabError("a lab needs a folder for temporary files that can be written")
        with EmulatedWan(lab.job.sites, lab.links(), scratch.path, lab.prepared.seed) as wan:
            job = TrainingJob(wan, lab.job, instructions[0])
            for instruction in instructions[1:]:
                job.change(instruction)
            job.end(len(queue) * steps)
            job.begin()
            progress.start(len(queue) * steps, "training", "steps")
            for event in job.events():
                if isinstance(event, Step):
                    done.append(event)
                    progress.advance(1)
                else:
                    moved.append(event)
    cells = tuple(
        _cell(lab, plan, [step for step in done if step.plan == n][1:]) for n, plan in enumerate(queue)
    )
    moves = tuple(
        _pair(lab, queue[move.plan - 1], queue[move.plan], move) for move in moved if move.sent_bytes
    )
    data, scale = lab.prepared.dataset, lab.scale
    return Compared(
        lab.prepared.scenario.name, data, is_synthetic(data, lab.prepared.wan.note), scale.time, scale.bytes,
        cells, moves,
        tuple(step.loss for step in done), unmoved(lab.job, lab.prepared.job.global_batch, len(done)),
    )  # fmt: skip


def _cell(lab: Miniature, plan: Plan, steps: Sequence[Step]) -> LabCell:
    predicted, kernel = (
        [_over(lab, plan, step, announced=announced) for step in steps] for announced in (True, False)
    )
    late = [after.late_s - before.late_s for before, after in pairwise(steps)]
    return LabCell(
        named(lab, plan), plan.schedule, len(steps), statistics.median(step.seconds for step in steps),
        statistics.median(predicted), statistics.median(kernel), statistics.fmean(late) if late else 0.0,
    )  # fmt: skip


def _over(lab: Miniature, plan: Plan, step: Step, *, announced: bool) -> float:
    """Predicted seconds of a step: that of the links at its begin and at its end, on average."""
    ends = (lab.step_s(plan, lab.state(at_s), announced=announced) for at_s in (step.began_s, step.ended_s))
    return statistics.fmean(ends)


def _pair(lab: Miniature, old: Plan, new: Plan, move: Move) -> MovePair:
    predicted = lab.move(old, new, move.began_s)
    return MovePair(
        f"{named(lab, old)} -> {named(lab, new)}", move.sent_bytes, move.pause_s, predicted.pause_s
    )
