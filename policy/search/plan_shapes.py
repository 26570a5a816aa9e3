"""Shapes, plans without their cuts: order of domains, parallel sizes and micro-batch; their enumeration."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from twin.estimation.estimator import Estimator

Cuts = NDArray[np.int64]
"""Rows (P, n + 1) of cut points 0 = c_0 < ... < c_n = N."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """A plan without its cuts; `inner` holds (tp, pp) for each domain of `order`. `ep` 0: the largest degree
    of expert parallelism that the job allows."""

    order: tuple[int, ...]
    dp: int
    inner: tuple[tuple[int, int], ...]
    micro_batch: int
    ep: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Profile:
    """Sizes shared by all domains of a plan; a domain too small for them takes the next smaller ones."""

    dp: int
    tp: int
    pp: int
    micro_batch: int


@lru_cache(maxsize=64)
def orders(domains: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Returns every order of every non-empty subset of `domains`, short ones first."""
    return tuple(p for n in range(1, len(domains) + 1) for p in permutations(domains, n))


def choices(estimator: Estimator, domain: int, dp: int, free_gpus: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the legal (tp, pp) on the living GPUs of a domain, ascending, among them the deepest pp of
    every tp."""
    legal = estimator.local_choices(domain, dp)
    fitting = {(tp, pp) for tp, pp in legal if dp * tp * pp <= free_gpus[domain]}
    deepest = {(tp, min(free_gpus[domain] // (dp * tp), estimator.n_layers)) for tp, _ in fitting}
    return sorted(fitting | deepest)


def profiles(estimator: Estimator, domains: Sequence[int], free_gpus: Sequence[int]) -> list[Profile]:
    """Returns every profile that at least one of `domains` can have exactly."""
    job = estimator.job
    found = []
    for dp in range(1, max(free_gpus) + 1):
        batches = [b for b in job.micro_batches_allowed if job.micro_batches(dp, b)]
        inner = {pair for d in domains for pair in choices(estimator, d, dp, free_gpus)} if batches else set()
        found += [Profile(dp, tp, pp, b) for tp, pp in sorted(inner) for b in batches]
    return found


def concrete(
    estimator: Estimator, profile: Profile, order: tuple[int, ...], free_gpus: Sequence[int]
) -> Shape | None:
    """Returns the shape of a profile on these domains, in each the largest tp, then pp, within the profile;
    None where there is none.
    """
    inner = []
    for domain in order:
        fitting = [
            pair
            for pair in choices(estimator, domain, profile.dp, free_gpus)
            if pair[0] <= profile.tp and pair[1] <= profile.pp
        ]
        if not fitting:
            return None
        inner.append(fitting[-1])
    shape = Shape(order, profile.dp, tuple(inner), profile.micro_batch)
    return shape if sum(pp for _, pp in inner) <= estimator.n_layers else None
