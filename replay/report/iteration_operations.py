"""What happens inside one iteration, operation by operation, and what each is called in a trace."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from twin.pipeline import reference_simulator as referee
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.traces.wan_trace import WanTrace

Slice = tuple[str, int, int, int, int]
"""(what, where, micro-batch, start_ns, end_ns) of an operation, as the referee tells it."""


def simulate(
    estimator: Estimator, plan: Plan, wan: WanTrace, start_ns: int, slowdown: NDArray[np.float64]
) -> tuple[list[Slice], int] | None:
    """Operations of an iteration under the links at `start_ns`, and its length in nanoseconds; None while a
    used link is dead. What follows a stage's last backward is one operation, "update", of micro-batch -1."""
    # Replicas are one pipeline a domain, which the kernel times and the referee does not know.
    pipeline = None if plan.sync is not None else estimator.pipeline(plan, wan.at(start_ns), slowdown)
    if pipeline is None:
        return None
    found: list[Slice] = []
    timeline = referee.simulate(pipeline, 0, lambda *operation: found.append(operation))
    for stage, end_ns in enumerate(timeline.end_ns):
        found.append(("update", stage, -1, end_ns, end_ns + int(pipeline.tail[stage, 0])))
    return found, timeline.iteration_ns


SHOWN = {"down": "activations", "up": "gradients"}
"""What messages carry, by their direction."""


def called(operations: Sequence[Slice], chunks: int) -> Iterator[tuple[str, str, int, int, int]]:
    """(name, what, where, start_ns, end_ns) in order of time. A stage of an interleaved pipeline runs every
    micro-batch once for each of its chunks, forwards from the first, backwards from the last."""
    seen: Counter[tuple[str, int, int]] = Counter()
    for what, where, k, begin, end in sorted(operations, key=lambda one: (one[3], one[1])):
        name = SHOWN.get(what, what) + (f" {k}" if k >= 0 else "")
        if chunks > 1 and what in ("forward", "backward"):
            before = seen[what, where, k]
            seen[what, where, k] += 1
            name += f" chunk {before if what == 'forward' else chunks - 1 - before}"
        yield name, what, where, begin, end
