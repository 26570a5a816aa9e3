"""Other people's estimators over the same stage and boundary times, compared with the kernel row by row.

They read the same `Pipeline`, so a difference is one of composition, not of constants. `docs/fidelity.md` has
the figures. None of them decides anything in the twin.
"""

from collections.abc import Callable

import numpy as np

from twin.pipeline import critical_cycle as cycle, kernel
from twin.pipeline.pipeline import Pipeline


def sailor_ns(pipeline: Pipeline, plan: int = 0) -> int:
    """Sailor's iteration time (Strati et al., SOSP 2025; spec/policies.md 2.6).

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
    """The design documents' T_compute + T_comm + T_bubble, and the slowest tail."""
    return cycle.additive(pipeline, plan).total_ns + int(np.max(pipeline.tail[:, plan]))


def cycle_ns(pipeline: Pipeline, plan: int = 0) -> int:
    """The closed form of `twin.cycle`, and the slowest tail."""
    return round(cycle.iteration_ns(pipeline, plan)) + int(np.max(pipeline.tail[:, plan]))


def kernel_ns(pipeline: Pipeline, plan: int = 0) -> int:
    """The twin's own answer."""
    return int(kernel.iteration_ns(pipeline.column(plan))[0])


ALTERNATIVES: dict[str, Callable[[Pipeline, int], int]] = {
    "kernel": kernel_ns,
    "cycle form": cycle_ns,
    "Sailor-style": sailor_ns,
    "additive form": additive_ns,
}
"""Name in tables -> iteration time in nanoseconds of one plan of a pipeline."""
