"""The joint choice of GPUs for several jobs: options of each job, and the best set of them without overlap.

An option is a set of GPUs with the fastest plan found on it. The worth of a choice is

    sum over jobs of (rate / rate of the job's best option) - price * GPUs / (GPUs of a mean domain),

0 for a job that gets none. The price stands for jobs still to come: a domain more has to bring more than
that share of the job's best rate.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from policy.search.batch_scoring import single_domain_rows
from policy.search.plan_search import build, explore
from twin.core.domain import Cluster, LinkState
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator

Gpus = tuple[int, ...]

OF_EACH_LENGTH = 8
"""Options kept of each number of domains, the fastest ones."""
CHOSEN_TOGETHER = 4
"""Jobs that are chosen for at once, the one that decides first; further ones wait for the next decision."""


@dataclass(frozen=True, slots=True)
class Option:
    """GPUs per domain (K,), and the fastest plan found on them."""

    gpus: Gpus
    plan: Plan
    rate: float  # iterations per second
    share: float  # of the rate of the job's best option
    price: float

    @property
    def worth(self) -> float:
        """The share less the price."""
        return self.share - self.price


def options(
    estimator: Estimator,
    links: LinkState,
    free_gpus: Sequence[int],
    slowdown: NDArray[np.float64] | None,
    price: float,
) -> list[Option]:
    """Returns the options of a job that has no plan yet, those worth most first."""
    pool = explore(estimator, links, free_gpus=free_gpus, slowdown=slowdown)
    singles = single_domain_rows(pool.tables.options, estimator.n_layers)
    if len(singles):
        pool.add(singles)
    kept: dict[Gpus, tuple[Plan, float]] = {}
    lengths: Counter[int] = Counter()
    for ns, shape, cuts in pool.ranked():
        gpus = [0] * len(free_gpus)
        for domain, (tp, pp) in zip(shape.order, shape.inner, strict=True):
            gpus[domain] = shape.dp * tp * pp
        if tuple(gpus) not in kept and lengths[len(shape.order)] < OF_EACH_LENGTH:
            lengths[len(shape.order)] += 1
            kept[tuple(gpus)] = build(estimator, shape, cuts), NS_PER_S / ns
    most = max((rate for _, rate in kept.values()), default=1.0)
    found = [
        Option(gpus, plan, rate, rate / most, price * domains_worth(estimator.cluster, sum(gpus)))
        for gpus, (plan, rate) in kept.items()
    ]
    return sorted(found, key=lambda option: -option.worth)


def domains_worth(cluster: Cluster, gpus: int) -> float:
    """Returns a number of GPUs in mean domains."""
    return gpus * cluster.size / sum(domain.gpus for domain in cluster.domains)


def best_choice(free_gpus: Gpus, jobs: Sequence[Sequence[Option]]) -> tuple[float, list[Option | None]]:
    """Returns the largest worth of options, at most one a job and no GPU twice, and the option of each job;
    exact, by branch and bound. Among equals the first jobs have their best options."""
    ahead = [*np.cumsum([max((o.worth for o in own), default=0.0) for own in jobs][::-1])[::-1].tolist(), 0.0]
    best: tuple[float, list[Option | None]] = (-1.0, [None] * len(jobs))

    def search(number: int, free: Gpus, worth: float, chosen: list[Option | None]) -> None:
        nonlocal best
        if worth + ahead[number] <= best[0]:
            return
        if number == len(jobs):
            best = worth, chosen
            return
        for option in jobs[number]:
            if option.worth > 0 and all(need <= has for need, has in zip(option.gpus, free, strict=True)):
                left = tuple(has - need for need, has in zip(option.gpus, free, strict=True))
                search(number + 1, left, worth + option.worth, [*chosen, option])
        search(number + 1, free, worth, [*chosen, None])

    search(0, free_gpus, 0.0, [])
    return best
