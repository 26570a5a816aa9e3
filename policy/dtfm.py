"""`dtfm`: DT-FM's scheduler; a genetic search over groups of GPUs, priced by matchings and a shortest path.

Re-implementation of Yuan et al., NeurIPS 2022 (recipe 12) from its formulas. P D devices are parted into P
groups of D; a group runs one stage in data parallel.

    cost_DP = max over groups, max over i in the group of sum_{j != i} 2 (L_ij + S / (D B_ij))
    cost_PP = shortest open path through the groups, two groups being as far apart as the longest L + A/B in
              their bottleneck perfect matching
    cost    = cost_DP + 2 cost_PP

(`policy.dtfm_costs`). A device is a tensor-parallel group here; DT-FM itself has none. The generator is a
real stream: the published code assigns to `random.seed` and is not seeded. The plan type keeps data-parallel
groups inside a domain, so groups that a search mixes across domains are no answer, and GPUs that fill no
group are left out. The referee picks among the sizes (tp, D, micro-batch), which DT-FM takes as given.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy.dtfm_costs import Costs, Delays, Groups
from policy.even import Closest, batches, deal, living, stage_layers, widths
from policy.planner import Planner, fastest
from twin.estimate import Estimator
from twin.plan import Plan
from twin.view import View

Labels = NDArray[np.int64]
"""(P D,) the group of every device; devices are sorted by domain."""
POPULATION = 12
TRIALS = 36
CROSSOVER = 5
"""Devices that take their group from the first parent."""
SIZES = 8
"""(tp, D) searched at most; those with the least computing time by their even plan come first."""


class DtFm(Planner):
    """DT-FM's groups and path, searched once with the run's generator."""

    name = "dtfm"

    def plans(self, view: View) -> list[Plan]:
        """The best plan of each size, the fastest first."""
        closest, found = Closest(self.estimator), []
        rng = self.context.rng
        for tp, dp in sizes(self.estimator, view.free_gpus):
            devices = _devices(self.estimator, view.free_gpus, tp, dp)
            stages = len(devices) // dp
            for micro_batch in batches(self.estimator, dp, stages):
                delays = Delays.of(self.estimator, view.forecast.links(), dp, tp, stages, micro_batch)
                groups = search(Costs(delays, dp), devices, dp, rng)
                plan = None if groups is None else _plan(self.estimator, groups, dp, tp, micro_batch)
                if plan is not None and closest.fits(plan, view.free_gpus):
                    found.append(plan)
        if not found:
            raise closest.error("DT-FM's search with whole groups in a domain", view.free_gpus)
        return fastest(self.estimator, view, found)


def sizes(estimator: Estimator, free_gpus: Sequence[int]) -> list[tuple[int, int]]:
    """(tp, D) that the batch and the blocks allow, those that leave fewest GPUs idle and need least tensor
    parallelism first, `SIZES` at most.
    """
    allowed = set.intersection(
        *(set(widths(estimator, estimator.cluster.domains[k])) for k in living(estimator, free_gpus)),
        {1, 2, 4, 8},
    )
    found = []
    for tp in sorted(allowed):
        for dp in (d for d in range(1, max(free_gpus) + 1) if estimator.job.global_batch % d == 0):
            stages = sum(free // (tp * dp) for free in free_gpus)
            if stages and stage_layers(estimator.n_layers, stages) and _may_fit(estimator, tp, stages):
                found.append((sum(free_gpus) - stages * tp * dp, stages, tp, dp))
    return [(tp, dp) for _, _, tp, dp in sorted(found)[:SIZES]]


def _may_fit(estimator: Estimator, tp: int, stages: int) -> bool:
    """Whether weights and gradients alone, 6 bytes a parameter, fit: what cannot is not searched."""
    memory = max(domain.gpu.memory_bytes for domain in estimator.cluster.domains)
    return 6.0 * estimator.job.model.parameters / (tp * stages) < memory


def _devices(estimator: Estimator, free_gpus: Sequence[int], tp: int, dp: int) -> list[int]:
    """The domain of every device, whole groups of `dp` only."""
    return [k for k in living(estimator, free_gpus) for _ in range(free_gpus[k] // (tp * dp) * dp)]


def search(costs: Costs, devices: Sequence[int], dp: int, rng: np.random.Generator) -> list[int] | None:
    """The domains of the groups along the best path that was found with whole groups; None without one.

    Parents are shuffled, but for one that is packed domain by domain, so that there always is an answer.
    A trial crosses two parents, improves the child by circular moves, and replaces the worse parent. Groups
    of one device are the same however they are shuffled.
    """
    home = np.array(devices)
    packed = np.repeat(np.arange(len(devices) // dp), dp)
    if dp == 1:
        return _domains(costs, _groups(packed, home, costs.size))
    population = [packed, *(rng.permutation(packed) for _ in range(POPULATION - 1))]
    scores = [costs.score(_groups(labels, home, costs.size)) for labels in population]
    best: tuple[float, Groups] | None = None
    for labels in population:
        best = _better(best, costs, _groups(labels, home, costs.size))
    for _ in range(TRIALS):
        one, two = (int(n) for n in rng.choice(POPULATION, 2, replace=False))
        child = crossover(population[one], population[two], dp, rng)
        child = circular_moves(child, home, costs)
        groups = _groups(child, home, costs.size)
        worse = one if scores[one] >= scores[two] else two
        population[worse], scores[worse] = child, costs.score(groups)
        best = _better(best, costs, groups)
    return None if best is None else _domains(costs, best[1])


def _better(best: tuple[float, Groups] | None, costs: Costs, groups: Groups) -> tuple[float, Groups] | None:
    """The better one of the best so far and `groups`, if a plan can say the latter."""
    if _domains(costs, groups) is None:
        return best
    score = costs.score(groups)
    return (score, groups) if best is None or score < best[0] else best


def _domains(costs: Costs, groups: Groups) -> list[int] | None:
    """Domains along the path; None where a group is mixed or the path comes back to a domain it has left."""
    if any(sum(count > 0 for count in group) != 1 for group in groups):
        return None
    along = [int(np.argmax(groups[g])) for g in costs.path(groups)]
    visits = [k for n, k in enumerate(along) if n == 0 or along[n - 1] != k]
    return along if len(set(visits)) == len(visits) else None


def _groups(labels: Labels, home: NDArray[np.int64], size: int) -> Groups:
    """How many devices of each domain each group has; groups in a fixed order, since they have no names."""
    counts = np.zeros((int(labels.max()) + 1, size), dtype=np.int64)
    np.add.at(counts, (labels, home), 1)
    return tuple(sorted(tuple(row) for row in counts.tolist()))


def crossover(one: Labels, two: Labels, dp: int, rng: np.random.Generator) -> Labels:
    """The second parent with the labels of `CROSSOVER` random devices from the first; sizes are repaired in
    index order.
    """
    child = two.copy()
    chosen = rng.choice(len(one), min(CROSSOVER, len(one)), replace=False)
    child[chosen] = one[chosen]
    sizes = np.bincount(child, minlength=int(two.max()) + 1)
    for device, label in enumerate(child.tolist()):
        if sizes[label] > dp:
            needy = int(np.nonzero(sizes < dp)[0][0])
            child[device] = needy
            sizes[label] -= 1
            sizes[needy] += 1
    return child


def circular_moves(labels: Labels, home: NDArray[np.int64], costs: Costs) -> Labels:
    """The best closed chain of moves from group to group, started in every group.

    From the present group goes the device that sits worst there, into the group where it gains most; the
    chain goes on from that group and closes when its device goes to the first one. A device moves once.
    """
    return costs.circular(labels, home, int(labels.max()) + 1)


def _plan(estimator: Estimator, domains: Sequence[int], dp: int, tp: int, micro_batch: int) -> Plan | None:
    """Even stages along the path."""
    order = list(dict.fromkeys(domains))
    return deal(estimator, order, [domains.count(k) for k in order], dp, [tp] * len(order), micro_batch)
