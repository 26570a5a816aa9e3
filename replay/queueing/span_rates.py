"""Rates of jobs that run over several sites: a plan of the planner for their GPUs, timed under each state of
the links.

The recorded rate of a job is taken for that of the best plan on the same GPUs if no link were in the way. The
plan over sites is the fastest one under the median of each link, and is kept; every step of the links has the
rate `time of that best plan / time of this plan under these links`.
"""

from itertools import combinations

import numpy as np

from ingest.core.errors import UsageError
from policy.search.plan_search import best_plans
from twin.core.domain import Cluster, LinkState
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.estimation.estimator import DEAD, Estimator
from twin.queue.jobs import Int
from twin.sites.inputs import FULL_RATE, NANO_USD_KB, SiteOptions
from twin.traces.wan_trace import WanTrace

MOST_SITES = 3
"""Sites that one job runs over."""
MOST_WAYS = 200
"""Sizes times sets of sites: each is a search for a plan."""
UNHINDERED_BPS = 1e15


def spans(
    sizes: Int, cluster: Cluster, job: JobSpec, links: WanTrace, at: Int, wanted: frozenset[int]
) -> tuple[SiteOptions, dict[tuple[int, ...], Plan]]:
    """Returns the ways to run jobs of these GPUs (S,) over two or three sites, in each step `at` (T,), and
    the plan of each by its GPUs at every site.

    A job takes equal shares, whole nodes, of every site. Sizes that are not `wanted`, cannot be cut so or
    have no plan have no way.

    Raises:
        UsageError: there are too many sizes and sets of sites.
    """
    estimator, states = Estimator(cluster, job), [links.at(int(one) + links.start_ns) for one in at]
    usual = LinkState(
        np.median([one.bandwidth_bps for one in states], axis=0),
        np.median([one.latency_s for one in states], axis=0),
    )
    shares = [_shares(int(size), cluster) if int(size) in wanted else [] for size in sizes]
    if sum(map(len, shares)) > MOST_WAYS:
        raise UsageError(
            f"spanning: {sum(map(len, shares)):,} sizes and sets of sites need a plan each, more than "
            f"{MOST_WAYS}; say `spanning: larger`, or take fewer sites"
        )
    first, need, home, usd, rate = [0], list[tuple[int, ...]](), list[int](), list[int](), list[Int]()
    plans = dict[tuple[int, ...], Plan]()
    for of_size in shares:
        for share in of_size:
            found = _timed(estimator, share, usual, states)
            if found is not None:
                plan, paces, nano_usd_ms = found
                plans[share] = plan
                need.append(share)
                home.append(int(np.argmax(share)))
                rate.append(paces)
                usd.append(nano_usd_ms)
        first.append(len(need))
    return SiteOptions(
        np.array(first, np.int64), np.array(need, np.int64).reshape(-1, cluster.size),
        np.array(home, np.int64), np.array(rate, np.int64).reshape(len(need), len(at)).T.copy(),
        np.array(usd, np.int64),
    ), plans  # fmt: skip


def _shares(size: int, cluster: Cluster) -> list[tuple[int, ...]]:
    """GPUs at every site, for each set of sites that can hold equal shares of whole nodes."""
    found = []
    for count in range(2, min(MOST_SITES, cluster.size) + 1):
        each, rest = divmod(size, count)
        for chosen in combinations(range(cluster.size), count):
            domains = [cluster.domains[k] for k in chosen]
            if not rest and all(each <= one.gpus and each % one.gpus_per_node == 0 for one in domains):
                found.append(tuple(each if k in chosen else 0 for k in range(cluster.size)))
    return found


def _timed(
    estimator: Estimator, share: tuple[int, ...], usual: LinkState, states: list[LinkState]
) -> tuple[Plan, Int, int] | None:
    """The plan of a share of GPUs, its rate in each state, and the price of its messages, if it has one."""
    size = estimator.cluster.size
    near = LinkState(np.full((size, size), UNHINDERED_BPS), np.zeros((size, size)))
    best = best_plans(estimator, near, free_gpus=share, top=1)
    kept = best_plans(estimator, usual, free_gpus=share, top=1)
    if not best or not kept:
        return None
    plan, least_ns = kept[0][0], best[0][1]
    known: dict[bytes, int] = {}
    paces = []
    for state in states:
        key = state.bandwidth_bps.tobytes() + state.latency_s.tobytes()
        if key not in known:
            length = estimator.iter_ns(plan, state)
            known[key] = 0 if length == DEAD else min(FULL_RATE, FULL_RATE * least_ns // length)
        paces.append(known[key])
    money = estimator.wan_bytes(plan) / 1000 * np.array(estimator.cluster.usd_per_gb) * NANO_USD_KB
    return plan, np.array(paces, np.int64), round(float(money.sum()) / (least_ns / 1e6))
