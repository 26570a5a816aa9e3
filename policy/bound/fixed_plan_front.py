"""Time, money and utilisation of fixed plans over a whole window, where all plans can be enumerated.

A plan that never changes sends the same bytes and computes as long in every iteration, so its figures follow
from the iterations that it completes. In equal domains two plans that differ in their cuts alone do the same
work and send the same bytes: of each order and size only the fastest plans count.
"""

import numpy as np
from numpy.typing import NDArray

from policy.bound.best_fixed_plan import enumerable, every_shape
from policy.bound.pruning import cuts_of, plans_of
from policy.bound.time_grid import Grid
from policy.control.horizon import per_iteration
from policy.search.plan_search import build
from policy.search.plan_shapes import Cuts, Shape
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import per_second

Float = NDArray[np.float64]
MOST = 200_000
"""A space with more plans is not enumerated."""
CLOSE = 0.98
"""Share of the work of the fastest plan of its order and size that a plan must do to count."""
Figures = tuple[float, float, float]
"""Seconds per token, USD per token, minus the utilisation: all to be minimised."""


def outcomes(estimator: Estimator, window: Grid) -> Float | None:
    """Returns `Figures` (P, 3) of fixed plans, among them all that no other plan beats in all three.

    None where there are too many plans, or domains differ.
    """
    domains = estimator.cluster.domains
    kinds = {(d.gpu.name, d.gpus, d.gpus_per_node, d.intra_node_bps, d.inter_node_bps) for d in domains}
    if len(kinds) > 1 or not enumerable(estimator):
        return None
    shapes = every_shape(estimator)
    if sum(plans_of(shape, estimator.n_layers) for shape in shapes) > MOST:
        return None
    found = [row for shape in shapes for row in _of_shape(estimator, window, shape)]
    return np.array(found).reshape(-1, 3)


def figures(estimator: Estimator, window: Grid, plan: Plan) -> Figures | None:
    """Returns the figures of a plan that is never changed; None where it completes no iteration.

    The last iteration, cut by the end, counts by its share; its computing time does not, as in a run.
    """
    work = float(window.lengths_s @ window.rate(estimator, plan))
    done = float(np.floor(work))
    if not done:
        return None
    (busy_s, usd), wall_s = per_iteration(estimator, plan, None), float(window.lengths_s.sum())
    tokens = estimator.tokens_per_iteration
    return wall_s / (work * tokens), usd / tokens, -busy_s * done / wall_s


def _of_shape(estimator: Estimator, window: Grid, shape: Shape) -> list[Figures]:
    """Returns the figures of the fastest plans of an order and sizes."""
    cuts = cuts_of(shape, estimator.n_layers)
    cuts = cuts[estimator.fits_cuts(shape.order, cuts, shape.dp, shape.inner, shape.micro_batch)]
    work = _work(estimator, window, shape, cuts)
    fast = cuts[work >= CLOSE * work.max(initial=1.0)].tolist()
    found = (figures(estimator, window, build(estimator, shape, row)) for row in fast)
    return [one for one in found if one is not None]


def _work(estimator: Estimator, window: Grid, shape: Shape, cuts: Cuts) -> Float:
    """Returns the iterations of each row of cuts over the window (P,)."""
    seconds = np.bincount(window.state, weights=window.lengths_s, minlength=len(window.states))
    work = np.zeros(len(cuts))
    for state, length_s in enumerate(seconds.tolist()):
        links = LinkState(window.states.bandwidth_bps[state], window.states.latency_s[state])
        ns = estimator.iter_ns_cuts(shape.order, cuts, shape.dp, shape.inner, shape.micro_batch, links)
        work += length_s * per_second(ns)
    return work
