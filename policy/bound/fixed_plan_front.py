"""What fixed plans reach in time, money and utilisation over a whole window, where all can be looked at.

A plan that never changes sends the same bytes in every iteration and computes as long, so its figures follow
from the iterations that it completes. In domains that are alike two plans that differ in their cuts only do
the same work and send the same: of each order and size the fastest counts, and those that come close.
"""

import numpy as np
from numpy.typing import NDArray

from policy.bound.time_grid import Grid
from policy.bound.pruning import cuts_of, plans_of
from policy.bound.best_fixed_plan import enumerable, every_shape
from policy.control.horizon import per_iteration
from twin.estimate.link_state_times import per_second
from policy.search.plan_search import build
from policy.search.plan_shapes import Cuts, Shape
from twin.core.domain import LinkState
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan

Float = NDArray[np.float64]
MOST = 200_000
"""Plans that are looked at; a space with more is not enumerated."""
CLOSE = 0.98
"""Share of the fastest plan's work that a plan of the same order and size must do to be counted."""


Figures = tuple[float, float, float]
"""Seconds a token, USD a token, minus the utilisation: all to be small."""


def outcomes(estimator: Estimator, made: Grid) -> Float | None:
    """`Figures` (P, 3) of the fixed plans of which no other one is better in all three, and of some more.

    None where there are too many plans, or domains differ.
    """
    domains = estimator.cluster.domains
    kinds = {(d.gpu.name, d.gpus, d.gpus_per_node, d.intra_node_bps, d.inter_node_bps) for d in domains}
    if len(kinds) > 1 or not enumerable(estimator):
        return None
    shapes = every_shape(estimator)
    if sum(plans_of(shape, estimator.n_layers) for shape in shapes) > MOST:
        return None
    found = [row for shape in shapes for row in _of_shape(estimator, made, shape)]
    return np.array(found).reshape(-1, 3)


def figures(estimator: Estimator, made: Grid, plan: Plan) -> Figures | None:
    """What a plan reaches that is never left; None where it completes nothing."""
    done = float(np.floor(made.lengths_s @ made.rate(estimator, plan)))
    if not done:
        return None
    (busy_s, usd), wall_s = per_iteration(estimator, plan, None), float(made.lengths_s.sum())
    tokens = estimator.tokens_per_iteration
    return wall_s / (done * tokens), usd / tokens, -busy_s * done / wall_s


def _of_shape(estimator: Estimator, made: Grid, shape: Shape) -> list[Figures]:
    """The figures of the fastest plans of an order and sizes."""
    cuts = cuts_of(shape, estimator.n_layers)
    cuts = cuts[estimator.fits_cuts(shape.order, cuts, shape.dp, shape.inner, shape.micro_batch)]
    work = _work(estimator, made, shape, cuts)
    fast = cuts[work >= CLOSE * work.max(initial=1.0)].tolist()
    found = (figures(estimator, made, build(estimator, shape, row)) for row in fast)
    return [one for one in found if one is not None]


def _work(estimator: Estimator, made: Grid, shape: Shape, cuts: Cuts) -> Float:
    """Iterations of each row of cuts over the window (P,)."""
    seconds = np.bincount(made.state, weights=made.lengths_s, minlength=len(made.states))
    work = np.zeros(len(cuts))
    for state, length_s in enumerate(seconds.tolist()):
        links = LinkState(made.states.bandwidth_bps[state], made.states.latency_s[state])
        ns = estimator.iter_ns_cuts(shape.order, cuts, shape.dp, shape.inner, shape.micro_batch, links)
        work += length_s * per_second(ns)
    return work
