"""Everything of a plan but its cuts: order of domains, parallel sizes, micro-batch; what can be
enumerated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from twin.estimate import Estimator
from twin.transformer import Transformer

Cuts = NDArray[np.int64]
"""(P, n + 1) rows of cut points 0 = c_0 < ... < c_n = N."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """A plan without its cuts; `inner` holds (tp, pp) for each domain of `order`."""

    order: tuple[int, ...]
    dp: int
    inner: tuple[tuple[int, int], ...]
    micro_batch: int


@dataclass(frozen=True, slots=True, order=True)
class Profile:
    """Sizes shared by all domains of a plan; a domain that cannot have them takes the next smaller ones."""

    dp: int
    tp: int
    pp: int
    micro_batch: int


@lru_cache(maxsize=64)
def orders(domains: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Every order of every non-empty subset of `domains`, short ones first."""
    return tuple(p for n in range(1, len(domains) + 1) for p in permutations(domains, n))


def choices(estimator: Estimator, domain: int, dp: int, free_gpus: Sequence[int]) -> list[tuple[int, int]]:
    """Legal (tp, pp) of a domain that fit its living GPUs, in ascending order."""
    legal = estimator.local_choices(domain, dp)
    return sorted((tp, pp) for tp, pp in legal if dp * tp * pp <= free_gpus[domain])


def profiles(estimator: Estimator, domains: Sequence[int], free_gpus: Sequence[int]) -> list[Profile]:
    """Every profile that at least one of `domains` can have exactly."""
    job = estimator.job
    found = []
    for dp in range(1, max(free_gpus) + 1):
        batches = [b for b in job.micro_batches_allowed if job.global_batch % (dp * b) == 0]
        inner = {pair for d in domains for pair in choices(estimator, d, dp, free_gpus)} if batches else set()
        found += [Profile(dp, tp, pp, b) for tp, pp in sorted(inner) for b in batches]
    return found


def concrete(
    estimator: Estimator, profile: Profile, order: tuple[int, ...], free_gpus: Sequence[int]
) -> Shape | None:
    """The profile on these domains: in each the largest tp, then pp, not above the profile's; None without
    one.
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


def starts(estimator: Estimator, shape: Shape, slowdown: NDArray[np.float64] | None = None) -> Cuts:
    """Rows of cuts to start a search from: layers in proportion to speed, the middle domains more and more
    relieved.

    The first row is balanced in compute. A domain in the middle of the pipeline waits for two wide-area
    boundaries, one at an end for one: the slower the links, the fewer layers are right for it (`RELIEF`).
    """
    n = len(shape.order)
    middle = np.array([0 < k < n - 1 for k in range(n)])
    speed = np.array(
        [_speed(estimator, d, pair, slowdown) for d, pair in zip(shape.order, shape.inner, strict=True)]
    )
    reliefs = RELIEF if n > 2 else RELIEF[:1]
    return repaired(
        np.concatenate([_proportional(estimator, np.where(middle, r * speed, speed)) for r in reliefs]), shape
    )


RELIEF = (1.0, 0.7, 0.45, 0.25)
"""Shares of its speed at which a middle domain is counted in the starts of a search."""


def _speed(
    estimator: Estimator, domain: int, inner: tuple[int, int], slowdown: NDArray[np.float64] | None
) -> float:
    slower = 1.0 if slowdown is None else float(slowdown[domain])
    return estimator.cluster.domains[domain].gpu.peak_flops * inner[0] * inner[1] / slower


def _proportional(estimator: Estimator, speed: NDArray[np.float64]) -> Cuts:
    """One row of cuts that gives each domain FLOPs in proportion to `speed` (n,)."""
    done = _done(estimator.job.model)
    wanted = np.cumsum(speed)[:-1] / speed.sum()
    inside = np.abs(done[:, None] - wanted).argmin(axis=0).tolist()
    return np.array([[0, *inside, len(done) - 1]], dtype=np.int64)


@lru_cache(maxsize=64)
def _done(model: Transformer) -> NDArray[np.float64]:
    """Share of a sequence's forward FLOPs before each layer (N + 1,)."""
    flops = np.array([layer.forward_flops_per_sequence for layer in model.layers()])
    share: NDArray[np.float64] = np.concatenate([[0.0], np.cumsum(flops)]) / flops.sum()
    return share


def repaired(cuts: Cuts, shape: Shape) -> Cuts:
    """The cuts moved as little as needed so that every domain has at least one layer per stage."""
    fixed = cuts.copy()
    depth = [pp for _, pp in shape.inner]
    for k in range(1, len(depth)):
        fixed[:, k] = np.maximum(fixed[:, k], fixed[:, k - 1] + depth[k - 1])
    for k in range(len(depth) - 1, 0, -1):
        fixed[:, k] = np.minimum(fixed[:, k], fixed[:, k + 1] - depth[k])
    return fixed


def neighbours(cuts: Sequence[int], shape: Shape, steps: Sequence[int] = (1, 2, 4, 8)) -> Cuts:
    """Every legal row that moves 1, 2, 4 or 8 layers from one domain to another."""
    n = len(shape.order)
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b and (n <= 8 or abs(a - b) == 1)]
    if not pairs:
        return np.zeros((0, n + 1), dtype=np.int64)
    move = np.zeros((len(pairs), n), dtype=np.int64)
    for row, (source, target) in enumerate(pairs):
        move[row, source], move[row, target] = -1, 1
    counts = np.diff(np.asarray(cuts, dtype=np.int64)) + np.concatenate([step * move for step in steps])
    counts = counts[(counts >= [pp for _, pp in shape.inner]).all(axis=1)]
    return np.concatenate([np.zeros((len(counts), 1), dtype=np.int64), np.cumsum(counts, axis=1)], axis=1)
