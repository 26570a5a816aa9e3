"""Iteration-time formulas of other systems over the same stage and boundary times, for comparison.

They read the same `Pipeline`, so that a difference to the kernel is one of composition, not of constants
(`docs/measured/fidelity.md`). No decision of the twin uses them but that of the planner `sailor`.
"""

from collections.abc import Callable

import numpy as np

from twin.pipeline import critical_cycle, kernel
from twin.pipeline.pipeline import Pipeline


def sailor_ns(pipeline: Pipeline, plan: int = 0) -> int:
    """Sailor's iteration time (Strati et al., SOSP 2025).

    T = (m - 1) max_i (comp_i + comm_i) + sum comm + sum comp + max (update + sync). An interior stage
    communicates its activation and its gradient; the first one its activation, twice where there are more
    than three stages; the last one its gradient, twice, as the published code does.
    """
    one = pipeline.column(plan)
    stages = one.stages
    compute = one.busy_ns[:, 0] // one.micro_batches
    down, up = ((row + late)[: stages - 1, 0] for row, late in ((one.of, one.lf), (one.ob, one.lb)))
    talk = np.zeros(stages, np.int64)
    if stages > 1:
        talk[:-1] += down
        talk[1:] += up
        talk[-1] += up[-1]
        talk[0] += down[0] if stages > 3 else 0
    slowest = int(np.max(compute + talk))
    return (one.micro_batches - 1) * slowest + int(np.sum(talk) + np.sum(compute) + np.max(one.tail))


def sailor_bytes(parameters: float, act_elements: float, micro_batch: int, stages: int, stage: int) -> float:
    """Sailor's memory of stage `stage` of `stages`: 24 B per parameter and fp32 activations in flight.

    `act_elements`: stored elements of the stage's layers per sample.
    """
    return 24.0 * parameters + act_elements * micro_batch * 4.0 * (stages - stage)


def additive_ns(pipeline: Pipeline, plan: int = 0) -> int:
    """Additive form T_compute + T_comm + T_bubble + slowest tail: the slowest stage over m + S - 1
    micro-batches, each boundary crossed once each way."""
    one = pipeline.column(plan)
    slowest = int(np.max(one.busy_ns)) // one.micro_batches
    comm = sum(int(np.sum(row)) for row in (one.of, one.lf, one.ob, one.lb))
    return (one.micro_batches + one.stages - 1) * slowest + comm + int(np.max(one.tail))


def cycle_ns(pipeline: Pipeline, plan: int = 0) -> int:
    """Closed form of `twin.pipeline.critical_cycle`, and the slowest tail."""
    return round(critical_cycle.iteration_ns(pipeline, plan)) + int(np.max(pipeline.tail[:, plan]))


def kernel_ns(pipeline: Pipeline, plan: int = 0) -> int:
    """Iteration time by the kernel."""
    return int(kernel.iteration_ns(pipeline.column(plan))[0])


ALTERNATIVES: dict[str, Callable[[Pipeline, int], int]] = {
    "kernel": kernel_ns,
    "cycle form": cycle_ns,
    "Sailor-style": sailor_ns,
    "additive form": additive_ns,
}
"""Name in tables -> iteration time in nanoseconds of one plan of a pipeline."""
