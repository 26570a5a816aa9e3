"""Candidate plans of the clairvoyant bound, in families that differ in free knobs alone."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policy.bound.time_grid import Grid
from policy.control.best_relay_times import best_relay_rates
from policy.control.knobs import free_variants
from policy.control.long_run import typical_links
from policy.control.relay_links import RelayPaths, message_bits
from policy.search.plan_search import best_plans
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.costs.migration import needs_restart
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States

Float = NDArray[np.float64]
PARTS = 12
"""Parts of the window that are searched on their own."""
FOUND = 24
"""Plans taken from each search."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Plans that differ in free knobs alone; `rate` (S,) is the best of them in every slot, over all relays
    and, once `deep`, over all warm-up depths."""

    plans: tuple[Plan, ...]
    rate: Float
    deep: bool = False

    @property
    def plan(self) -> Plan:
        """One of them; all place the same layers on the same GPUs."""
        return self.plans[0]


class CandidatePool:
    """The families so far, in the order in which they were added; each plan is evaluated once."""

    def __init__(self, estimator: Estimator, window: Grid) -> None:
        self.estimator, self.window = estimator, window
        self._families: dict[tuple[object, ...], Family] = {}
        self._direct: dict[Plan, float] = {}
        """Iterations of every plan over the window with its own knobs."""
        self._relayed: dict[float, Grid] = {}

    def add(self, plans: Iterable[Plan]) -> int:
        """Adds the plans that are new. Returns how many families that adds."""
        before = len(self._families)
        for plan in plans:
            if plan in self._direct:
                continue
            key = (
                plan.shares, plan.dp, plan.micro_batch, plan.recompute, plan.zero, plan.sync is None,
                plan.sequence_parallel, plan.context_parallel, plan.ep,
            )  # fmt: skip
            direct = self.window.rate(self.estimator, plan)
            self._direct[plan] = float(direct @ self.window.lengths_s)
            rate = self._with_relays(plan, direct)
            old = self._families.get(key)
            assert old is None or not needs_restart(old.plan, plan)
            known = () if old is None else old.plans
            best = rate if old is None else np.maximum(old.rate, rate)
            self._families[key] = Family((*known, plan), best)
        return len(self._families) - before

    def deepen(self, families: Sequence[Family]) -> list[Family]:
        """Returns the families after adding every warm-up depth that fits
        (`policy.control.knobs.WARMUP_DEPTHS`)."""
        key_of = {id(family): key for key, family in self._families.items()}
        for family in families:
            if not family.deep:
                variants = (other for plan in family.plans for other in free_variants(self.estimator, plan))
                distinct = dict.fromkeys(variants)
                rates = [self._with_relays(p, self.window.rate(self.estimator, p)) for p in distinct]
                rate = np.maximum.reduce([family.rate, *rates])
                self._families[key_of[id(family)]] = replace(family, rate=rate, deep=True)
        return [self._families[key_of[id(family)]] for family in families]

    def around(self, first: int, last: int, start: Plan | None = None, top: int = FOUND) -> list[Plan]:
        """Returns the best plans for the typical links of slots [first, last), searched from `start` too:
        over direct links, and over links with relays."""
        found = around(self.estimator, self.window, first, last, start, top)
        if not found:
            return found
        relayed = self._relayed_links(message_bits(self.estimator.job, found[0]))
        if not np.array_equal(relayed.states.bandwidth_bps, self.window.states.bandwidth_bps):
            found += around(self.estimator, relayed, first, last, start, top)
        return found

    def _with_relays(self, plan: Plan, rate: Float) -> Float:
        """Returns iterations per second in every slot (S,): the larger of `rate`, that of the plan's own
        routes, and that of the best relays in each slot."""
        relayed = best_relay_rates(self.estimator, plan, self.window.states)
        return rate if relayed is None else np.maximum(rate, relayed[self.window.state])

    def _relayed_links(self, bits: float) -> Grid:
        """Returns the window with links as messages of that size find them over unshared relays."""
        if bits not in self._relayed:
            found, _ = RelayPaths(self.estimator.cluster, bits, share=1.0).best_routes(self.window.states)
            self._relayed[bits] = replace(self.window, states=found)
        return self._relayed[bits]

    @property
    def families(self) -> list[Family]:
        """All families."""
        return list(self._families.values())

    def best(self) -> Plan:
        """Returns the plan with most iterations over the window if neither it nor its knobs ever change."""
        direct = [plan for plan in self._direct if not plan.routes] or list(self._direct)
        return max(direct, key=self._direct.__getitem__)

    def work(self, first: int = 0, last: int | None = None) -> Float:
        """Returns the iterations of each family over slots [first, last)."""
        part = slice(first, last)
        return np.array([f.rate[part] @ self.window.lengths_s[part] for f in self._families.values()])


def typical(window: Grid, first: int, last: int) -> LinkState:
    """Returns the typical links of slots [first, last)."""
    index = window.state[first:last]
    states = States(window.states.bandwidth_bps[index], window.states.latency_s[index])
    return typical_links(states, window.lengths_s[first:last])


def around(
    estimator: Estimator, window: Grid, first: int, last: int, start: Plan | None = None, top: int = FOUND
) -> list[Plan]:
    """Returns the best plans for the typical links of slots [first, last), searched from `start` too."""
    free = [domain.gpus for domain in estimator.cluster.domains]
    found = best_plans(estimator, typical(window, first, last), free_gpus=free, top=top, start=start)
    return [plan for plan, _ in found]


def window_parts(window: Grid, count: int = PARTS) -> list[tuple[int, int]]:
    """Returns the whole window, then `count` equal parts of it, as slots [first, last)."""
    edges = np.searchsorted(window.edges_s, np.linspace(0.0, window.edges_s[-1], count + 1)).tolist()
    parts = [(a, b) for a, b in pairwise(edges) if b > a]
    return [(0, window.slots), *parts]


def best_of(pool: CandidatePool, keep: Set[Plan], fixed: int, each: int) -> list[Family]:
    """Returns the families with a plan in `keep`, the `fixed` best over the window and the `each` best over
    each of its parts.
    """
    families = pool.families
    chosen = {n for n, family in enumerate(families) if any(plan in keep for plan in family.plans)}
    for n, (first, last) in enumerate(window_parts(pool.window)):
        ranked = np.argsort(-pool.work(first, last), kind="stable")
        chosen.update(ranked[: each if n else fixed].tolist())
    return [families[n] for n in sorted(chosen)]
