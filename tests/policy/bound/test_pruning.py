"""The first sieve drops nothing that would pass when it is timed."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from policy.bound.best_fixed_plan import every_shape
from policy.bound.pruning import BlockTimes, cuts_of, plans_of, unpruned_cuts
from policy.bound.time_grid import grid
from policy.control.knobs import WARMUP_DEPTHS
from policy.search.plan_search import build
from tests.support.bound_worlds import RESTART_S, restless, tiny
from tests.support.worlds import toy_wan
from twin.core.plan import PointToPoint, Schedule
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import fastest_ns, per_second


@pytest.mark.parametrize("depths", [(0,), (2,), WARMUP_DEPTHS])
@pytest.mark.parametrize("p2p", ["blocking", "rendezvous"])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("fast", [False, True])
def test_drops_nothing_that_is_worth_it(
    fast: bool, schedule: Schedule, depths: tuple[int, ...], p2p: PointToPoint
) -> None:
    known = tiny(3, blocks=8, batch=8)
    estimator = Estimator(
        known.cluster, replace(known.job, schedule=schedule, extra_warmup=depths[0], p2p=p2p)
    )
    slow = restless(3, np.random.default_rng(0), 300.0)
    wan = toy_wan(3, seconds=300.0, bps=4e11, latency_s=1e-4) if fast else slow
    states = grid(wan, [], RESTART_S).states
    blocks, kept, passed, every = BlockTimes(estimator), 0, 0, 0
    for shape in every_shape(estimator):
        cuts = cuts_of(shape, estimator.n_layers)
        assert len(cuts) == plans_of(shape, estimator.n_layers)
        if len(shape.order) == 1 or not len(cuts):
            continue
        plan = build(estimator, shape, cuts[0].tolist())
        rate = per_second(fastest_ns(estimator, plan, cuts, states, depths))
        most = 0.95 * rate.max()

        def enough(rate: NDArray[np.float64], most: float = float(most)) -> NDArray[np.bool_]:
            found: NDArray[np.bool_] = (rate > most).any(axis=1)
            return found

        left = unpruned_cuts(estimator, shape, states, enough, blocks, depths)
        rows = {tuple(row) for row in left.tolist()}
        assert rows >= {tuple(row) for row in cuts[enough(rate)].tolist()}
        kept, passed, every = kept + len(rows), passed + int(enough(rate).sum()), every + len(cuts)
    assert 0 < passed <= kept
    assert not fast or kept < every / 2
