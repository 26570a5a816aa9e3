"""Operations within one iteration, and their names in a trace."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from twin.core import schedules
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.pipeline import reference_simulator
from twin.traces.wan_trace import WanTrace

Slice = tuple[str, int, int, int, int]
"""(operation, stage or boundary, micro-batch, start_ns, end_ns), from the reference simulator."""


def simulate(
    estimator: Estimator, plan: Plan, wan: WanTrace, start_ns: int, slowdown: NDArray[np.float64]
) -> tuple[list[Slice], int] | None:
    """Returns the operations of an iteration under the links at `start_ns`, and its length in nanoseconds.

    None while a used link is dead, and for replicas. All work after a stage's last backward pass is one
    operation, "update", of micro-batch -1.
    """
    # Replicas are one pipeline a domain, which the reference simulator does not support.
    pipeline = None if plan.sync is not None else estimator.pipeline(plan, wan.at(start_ns), slowdown)
    if pipeline is None:
        return None
    found: list[Slice] = []
    timeline = reference_simulator.simulate(pipeline, 0, lambda *operation: found.append(operation))
    for stage, end_ns in enumerate(timeline.end_ns):
        found.append(("update", stage, -1, end_ns, end_ns + int(pipeline.tail[stage, 0])))
    return found, timeline.iteration_ns


MESSAGES = {"down": "activations", "up": "gradients"}
"""Direction of a message -> its content."""


def name_operations(operations: Sequence[Slice], plan: Plan) -> Iterator[tuple[str, str, int, int, int]]:
    """Yields (name, operation, stage or boundary, start_ns, end_ns) in order of time.

    A stage with chunks runs every micro-batch once for each of them, forward passes from the first chunk, all
    others from the last. Where the way of a micro-batch leads down the stages and up again, each direction of
    a link takes its activations first and then its gradients.
    """
    chunks = plan.chunks
    counts: Counter[tuple[str, int, int]] = Counter()
    for what, where, k, begin, end in sorted(operations, key=lambda one: (one[3], one[1])):
        name = MESSAGES.get(what, what) + (f" {k}" if k >= 0 else "")
        before = counts[what, where, k]
        counts[what, where, k] += 1
        if schedules.turns(plan.schedule) and what in MESSAGES:
            name = f"{('activations', 'gradients')[before]} {k}"
        if chunks > 1 and what in ("forward", "backward", "weight"):
            name += f" chunk {before if what == 'forward' else chunks - 1 - before}"
        yield name, what, where, begin, end
