"""Durations of an iteration for kernel and reference simulator: seconds rounded to nanoseconds, once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from twin.core import schedules
from twin.core.plan import Plan
from twin.costs.stage_boundaries import BoundaryCosts, shared_boundary
from twin.costs.stage_costs import StageCosts
from twin.pipeline.kernel import LONGEST_NS
from twin.pipeline.pipeline import Pipeline

Slowdown = NDArray[np.float64] | None
"""(K,) compute time over nominal of each domain; None is nominal."""


def pipeline(
    plan: Plan, costs: StageCosts, crossings: BoundaryCosts, slowdown: Slowdown, *, sync: bool = True
) -> Pipeline:
    """The P pipelines of `costs`, plans that differ from `plan` in their cuts alone, over these boundaries.

    Without `sync` the replicas do not synchronise their gradients.
    """
    domains = [slot.domain for slot in costs.slots]
    slow: Any = 1.0 if slowdown is None else np.tile(slowdown[domains], plan.chunks)[:, None]
    tail = _ns(costs.update_s + (costs.sync_s if sync else 0.0))
    tail[[0, -1]] += crossings.tied_ns
    return Pipeline(
        _ns(costs.forward_s * slow), _ns(costs.backward_s * slow),
        crossings.of, crossings.lf, crossings.ob, crossings.lb, tail,
        costs.warmup, plan.micro_batches, plan.schedule, plan.p2p, plan.chunks,
        shared_boundary(domains) if schedules.returns(plan.schedule, plan.chunks) else -1,
        None if costs.weight_s is None else _ns(costs.weight_s * slow),
    )  # fmt: skip


def _ns(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(np.minimum(seconds * NS_PER_S, LONGEST_NS)).astype(np.int64)
