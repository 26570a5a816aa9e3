"""Links as one more job finds them: those that the plans of other jobs use give it a smaller share.

Messages of a pipeline occupy a link for part of an iteration only. With u the sum over other jobs of
(seconds that the link needs for the messages of an iteration / seconds of the iteration), a flow that comes
at any time meets u others on average; max-min shares are equal on one link, so that it gets C / (1 + u).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from twin.core.domain import Matrix
from twin.core.view import Forecast, View
from twin.estimation.estimator import DEAD, Estimator
from twin.estimation.link_state_times import States, iteration_ns
from twin.estimation.resource_use import plan_costs


def use_by_others(view: View, estimator_of: Callable[[str], Estimator]) -> Matrix:
    """Returns the share of time (K, K) for which other jobs occupy each link, summed over jobs."""
    links = view.forecast.links()
    use = np.zeros_like(links.latency_s)
    for other in view.others:
        if other.plan is None:
            continue
        estimator, nominal = estimator_of(other.name), np.ones(len(use))
        iter_ns = int(iteration_ns(estimator, other.plan, States.of([links]), nominal)[0])
        if iter_ns == DEAD:
            continue
        for pair, sent in plan_costs(estimator, other.plan, nominal).wan_bytes.items():
            if links.bandwidth_bps[pair] > 0:
                busy_s = sent * BITS_PER_BYTE / float(links.bandwidth_bps[pair])
                use[pair] += min(1.0, busy_s * NS_PER_S / iter_ns)
    return use


def shared_forecast(view: View, estimator_of: Callable[[str], Estimator]) -> Forecast:
    """Returns the forecast of the bandwidth that is left for this job on each link."""
    use = use_by_others(view, estimator_of)
    if not use.any():
        return view.forecast
    return replace(view.forecast, bandwidth_bps=view.forecast.bandwidth_bps / (1.0 + use))
