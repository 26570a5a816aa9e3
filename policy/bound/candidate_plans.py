"""Which plans the clairvoyant bound puts together: families of plans, seeds from searches, best ones per
stretch.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policy.bound.time_grid import Grid
from policy.control.knobs import deepened
from twin.estimate.link_state_times import per_second
from policy.control.relay_links import Relays, message_bits
from policy.search.plan_search import best_plans
from policy.bound.best_relay_times import turned_ns
from twin.core.domain import LinkState
from twin.estimate.estimator import Estimator
from twin.costs.migration import needs_restart
from twin.core.plan import Plan

Float = NDArray[np.float64]
PARTS = 12
"""Stretches of the window that are searched on their own."""
FOUND = 24
"""Plans taken from each search."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Plans of the set that differ in knobs that are turned for free; `rate` (S,) is the best of them in
    every slot, relays and, once `deep`, other warm-up depths included."""

    plans: tuple[Plan, ...]
    rate: Float
    deep: bool = False

    @property
    def plan(self) -> Plan:
        """One of them; all have the same homes and GPUs."""
        return self.plans[0]


class Pool:
    """Families collected so far, each plan evaluated over the grid once, in the order in which they came."""

    def __init__(self, estimator: Estimator, made: Grid) -> None:
        self.estimator, self.made = estimator, made
        self._families: dict[tuple[object, ...], Family] = {}
        self._direct: dict[Plan, float] = {}
        """Iterations over the window of every plan taken in, as it is."""
        self._grids: dict[float, Grid] = {}

    def add(self, plans: Iterable[Plan]) -> int:
        """Take in the plans that are new; how many families that adds."""
        before = len(self._families)
        for plan in plans:
            if plan in self._direct:
                continue
            key = (plan.shares, plan.dp, plan.micro_batch, plan.recompute, plan.zero, plan.sync is None)
            as_it_is = self.made.rate(self.estimator, plan)
            self._direct[plan] = float(as_it_is @ self.made.lengths_s)
            rate = self._turned(plan, as_it_is)
            old = self._families.get(key)
            assert old is None or not needs_restart(old.plan, plan)
            known = () if old is None else old.plans
            best = rate if old is None else np.maximum(old.rate, rate)
            self._families[key] = Family((*known, plan), best)
        return len(self._families) - before

    def deepen(self, families: Sequence[Family]) -> list[Family]:
        """The families with every warm-up depth that fits (`policy.knobs.DEPTHS`); they stay so."""
        key_of = {id(family): key for key, family in self._families.items()}
        for family in families:
            if not family.deep:
                variants = (other for plan in family.plans for other in deepened(self.estimator, plan))
                rates = [self._turned(p, self.made.rate(self.estimator, p)) for p in dict.fromkeys(variants)]
                rate = np.maximum.reduce([family.rate, *rates])
                self._families[key_of[id(family)]] = replace(family, rate=rate, deep=True)
        return [self._families[key_of[id(family)]] for family in families]

    def around(self, first: int, last: int, start: Plan | None = None, top: int = FOUND) -> list[Plan]:
        """The best plans for the typical links of slots [first, last), searched from `start` too: those of
        the links, and those of the links with relays."""
        found = around(self.estimator, self.made, first, last, start, top)
        if not found:
            return found
        made = self._relayed(message_bits(self.estimator.job, found[0]))
        if not np.array_equal(made.states.bandwidth_bps, self.made.states.bandwidth_bps):
            found += around(self.estimator, made, first, last, start, top)
        return found

    def _turned(self, plan: Plan, rate: Float) -> Float:
        """Iterations per second in every slot (S,): as it is, `rate`, or with its relays turned in each."""
        if plan.sync is not None or len(plan.shares) < 2:
            return rate
        turned = turned_ns(self.estimator, replace(plan, routes=()), self.made.states)
        return rate if turned is None else np.maximum(rate, per_second(turned)[self.made.state])

    def _relayed(self, bits: float) -> Grid:
        """The links as messages of that size find them that are alone on theirs."""
        if bits not in self._grids:
            found, _ = Relays(self.estimator.cluster, bits, share=1.0).ways(self.made.states)
            self._grids[bits] = replace(self.made, states=found)
        return self._grids[bits]

    @property
    def families(self) -> list[Family]:
        """All of them."""
        return list(self._families.values())

    def best(self) -> Plan:
        """The plan that does most over the window alone, its knobs never turned."""
        direct = [plan for plan in self._direct if not plan.routes] or list(self._direct)
        return max(direct, key=self._direct.__getitem__)

    def work(self, first: int = 0, last: int | None = None) -> Float:
        """Iterations of each family over slots [first, last)."""
        part = slice(first, last)
        return np.array([f.rate[part] @ self.made.lengths_s[part] for f in self._families.values()])


def typical(made: Grid, first: int, last: int) -> LinkState:
    """One link state for slots [first, last): mean time per bit and mean latency while the link lives."""
    seconds = made.lengths_s[first:last, None, None]
    bandwidth = made.states.bandwidth_bps[made.state[first:last]]
    latency = made.states.latency_s[made.state[first:last]]
    alive = (bandwidth > 0) * seconds
    with np.errstate(divide="ignore", invalid="ignore"):
        per_bit = np.where(bandwidth > 0, seconds / bandwidth, 0.0).sum(axis=0) / alive.sum(axis=0)
        mean = np.where(alive.sum(axis=0) > 0, 1.0 / per_bit, 0.0)
    return LinkState(mean, (latency * seconds).sum(axis=0) / seconds.sum())


def around(
    estimator: Estimator, made: Grid, first: int, last: int, start: Plan | None = None, top: int = FOUND
) -> list[Plan]:
    """The best plans for the typical links of slots [first, last), searched from `start` too."""
    free = [domain.gpus for domain in estimator.cluster.domains]
    found = best_plans(estimator, typical(made, first, last), free_gpus=free, top=top, start=start)
    return [plan for plan, _ in found]


def stretches(made: Grid, count: int = PARTS) -> list[tuple[int, int]]:
    """The whole window, then `count` equal parts of it, as slots [first, last)."""
    edges = np.searchsorted(made.edges_s, np.linspace(0.0, made.edges_s[-1], count + 1)).tolist()
    parts = [(a, b) for a, b in pairwise(edges) if b > a]
    return [(0, made.slots), *parts]


def best_of(pool: Pool, keep: Set[Plan], fixed: int, each: int) -> list[Family]:
    """Families worth a place on a path: those with a plan in `keep`, the best over the window and per
    stretch.
    """
    families = pool.families
    chosen = {n for n, family in enumerate(families) if any(plan in keep for plan in family.plans)}
    for n, (first, last) in enumerate(stretches(pool.made)):
        ranked = np.argsort(-pool.work(first, last), kind="stable")
        chosen.update(ranked[: each if n else fixed].tolist())
    return [families[n] for n in sorted(chosen)]
