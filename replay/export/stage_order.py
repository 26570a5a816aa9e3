"""Operations of every stage in the order of the plan, as the tables that pipeline runtimes read.

A line a stage, an operation `<part><kind><micro-batch>`: F forward, B backward, or I and W, the gradients of
input and weights. Parts count along the way of a micro-batch. It is the compute-only format of
`torch.distributed.pipelining`.
"""

import numpy as np

from replay.export.planned_job import ModelPart, PlannedJob
from twin.core import schedules
from twin.core.domain import LinkState
from twin.pipeline import operation_order
from twin.pipeline.operation_order import BACKWARD, FORWARD

NOMINAL_BPS, NOMINAL_S = 10e9, 0.05
"""Links that an order is made for where the plan's are not known; CrossPipe's alone depends on them."""


def along(job: PlannedJob) -> tuple[ModelPart, ...]:
    """Returns the parts of the model in the order in which a micro-batch passes them."""
    plan, parts = job.plan, job.parts()
    return tuple(parts[n] for n in schedules.way(plan.stages, plan.chunks, plan.schedule))


def lines(job: PlannedJob) -> list[list[str]]:
    """Returns the operations of every stage."""
    timing = job.estimator.pipeline(job.plan, job.links or nominal(len(job.domains)))
    if timing is None:  # a link of that moment was dead
        timing = job.estimator.pipeline(job.plan, nominal(len(job.domains)))
    assert timing is not None, "no nominal link is dead"
    place = {(part.stage, part.chunk): n for n, part in enumerate(along(job))}
    backward = "I" if job.plan.schedule in schedules.SPLIT else "B"
    letters = {FORWARD: "F", BACKWARD: backward}
    return [
        [f"{place[stage, chunk]}{letters.get(kind, 'W')}{k}" for kind, chunk, k in row]
        for stage, row in enumerate(operation_order.operations(timing))
    ]


def table(job: PlannedJob) -> str:
    """Returns `lines` as CSV."""
    return "".join(",".join(line) + "\n" for line in lines(job))


def nominal(size: int) -> LinkState:
    """Returns the same link between all pairs of domains, for plans whose links are not known."""
    same = np.eye(size, dtype=np.bool_)
    return LinkState(np.where(same, np.inf, NOMINAL_BPS), np.where(same, 0.0, NOMINAL_S))
