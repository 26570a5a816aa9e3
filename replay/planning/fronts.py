"""The front of time, utilisation and cost: plans that no other plan beats in all three.

Time is seconds per token over the record, utilisation the share of that time in which the plan's domains
compute, cost the egress and the rental of its GPUs per token. The policies' objective weighs time,
utilisation and egress (`policy.core.objective`); rental is added here, since a plan on fewer GPUs leaves the
others to someone else.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InfeasibleError
from policy.control.horizon import per_iteration
from policy.control.long_run import LongRunRates, PastPlan, candidates, mean_outcome
from policy.core.objective import Objective
from policy.core.reference_plan import equal_cuts
from replay.metrics import pareto
from replay.planning.figures import PlanFigures
from replay.planning.ranking import TRIAL
from replay.planning.record import Record
from twin.core.plan import Plan

Float = NDArray[np.float64]

WEIGHTS = ((0.4, 0.6, 0.0), (0.4, 0.0, 0.6), (0.2, 0.4, 0.4))
"""Of efficiency, utilisation and cost: each is searched for, beside speed alone."""
MOST = 12
"""Plans of a front that are looked at closely."""


def weighted_candidates(record: Record) -> list[Plan]:
    """Returns plans that are good by time, utilisation and egress together, for the typical links."""
    estimator = record.estimator
    rates = LongRunRates(estimator, record.sampled(TRIAL), relayed=record.relayed)
    try:
        plan = equal_cuts(estimator, range(estimator.cluster.size), record.gpus)
    except InfeasibleError:
        return []
    base = mean_outcome(estimator, plan, rates.rate(plan))
    found: dict[Plan, None] = {}
    for weights in WEIGHTS:
        objective = Objective(weights, base)
        found |= dict.fromkeys(
            candidates(estimator, record.states, record.gpus, parts=0, relayed=False, objective=objective)
        )
    return list(found)


def of_trial(record: Record, trial: Sequence[PastPlan]) -> list[Plan]:
    """Returns the front of plans that were tried, thinned: of plans within 2 % in everything the fastest."""
    points = np.array([_point(record, one) for one in trial])
    chosen = _thinned(points, sorted(_best(points), key=lambda n: points[n, 0]))
    return [trial[n].plan for n in chosen[:MOST]]


def of_figures(found: Sequence[PlanFigures]) -> list[PlanFigures]:
    """Returns the front of plans with figures, in their order."""
    points = np.array(
        [[1 / one.mean_tokens_per_s, -one.utilisation, one.usd_per_million_tokens] for one in found]
    )
    return [found[n] for n in sorted(_best(points))]


def _point(record: Record, one: PastPlan) -> tuple[float, float, float]:
    """Returns seconds, negative utilisation and USD of an iteration, the same tokens for all plans."""
    busy_s, egress = per_iteration(record.estimator, one.plan, None)
    domains = record.estimator.cluster.domains
    per_hour = sum(len(share.gpus) * domains[share.domain].usd_per_gpu_hour for share in one.plan.shares)
    return 1 / one.rate, -busy_s * one.rate, egress + per_hour / 3600 / one.rate


def _best(points: Float) -> list[int]:
    """Returns the places of the points that no other one dominates; of equal ones the first."""
    front = pareto.front(points)
    return [int(np.flatnonzero((points == point).all(axis=1))[0]) for point in front]


def _thinned(points: Float, places: Iterable[int]) -> list[int]:
    """Returns the places, first to last, that no kept one covers."""
    kept: list[int] = []
    for n in places:
        if not kept or pareto.coverage(points[kept], points[n : n + 1]) == 0:
            kept.append(n)
    return kept
