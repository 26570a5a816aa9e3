"""`dtfm`: DT-FM-style scheduling; the shortest path through groups of GPUs.

Re-implementation of Yuan et al., NeurIPS 2022, from its formulas. P D devices are divided into P groups of D;
a group runs one stage in data parallel. DT-FM searches for groups with a genetic algorithm (crossover of five
devices, circular moves) and

    cost_DP = max over groups, max over i in the group of sum_{j != i} 2 (L_ij + S / (D B_ij))
    cost_PP = shortest open path through the groups, two groups being as far apart as the longest L + A/B in
              their bottleneck perfect matching
    cost    = cost_DP + 2 cost_PP

Plans of the twin keep data-parallel groups inside a domain, and GPUs that fill no group stay idle. So there
is only one set of groups, and the genetic search is not run. Under one size cost_DP is the same for every
order, and each matching has one length, L + A/B between its domains: cost_PP decides the order
(`policy.kit.dtfm_costs`). A device is a tensor-parallel group here; DT-FM itself has none.

DT-FM takes sizes (tp, D, micro-batch) as given: here the few that leave the fewest GPUs idle, the same for
both variants. `dtfm` ranks them by the twin's estimate, `dtfm-native` by DT-FM's cost. That cost does not
depend on the micro-batch, A being the bytes of an iteration: of equal ones the largest that keeps the
pipeline full is taken. Nor does it include computation, bubbles and tensor-parallel communication.
"""

from collections.abc import Sequence

import numpy as np

from policy.kit.dtfm_costs import Float, delays_s, reduce_s, shortest_path
from policy.kit.even_stages import (
    ClosestFit,
    domains_with_gpus,
    even_stage_plan,
    micro_batch_sizes,
    stage_layers,
    tensor_widths,
)
from policy.kit.planner_base import Planner, fastest
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator

SIZES = 8
"""Most (tp, D) that are tried."""


class DtFm(Planner):
    """Ranks DT-FM's paths by the twin's estimate; planned once."""

    name = "dtfm"

    def plans(self, view: View) -> list[Plan]:
        """Returns the plan of each size, the fastest by the twin's estimate first."""
        return fastest(self.estimator, view, [plan for _, plan in self._found(view)])

    def _found(self, view: View) -> list[tuple[float, Plan]]:
        """Returns DT-FM's cost in seconds and the plan of each legal size."""
        closest, found = ClosestFit(self.estimator), []
        for tp, dp in sizes(self.estimator, view.free_gpus):
            groups = _groups(self.estimator, view.free_gpus, tp, dp)
            reduced_s = reduce_s(self.estimator, groups, dp, tp, len(groups))
            for micro_batch in micro_batch_sizes(self.estimator, dp, len(groups)):
                apart_s = delays_s(self.estimator, view.forecast.links(), dp, micro_batch)
                along_s, along = path(apart_s, groups)
                plan = None if along is None else _plan(self.estimator, along, dp, tp, micro_batch)
                if plan is not None and closest.fits(plan, view.free_gpus):
                    found.append((reduced_s + 2 * along_s, plan))
        if not found:
            raise closest.error("DT-FM's path through whole groups in a domain", view.free_gpus)
        return found


class DtFmNative(DtFm):
    """Ranks DT-FM's paths by DT-FM's own cost."""

    name = "dtfm-native"

    def plans(self, view: View) -> list[Plan]:
        """Returns the plan of each size, the one with the least cost first."""
        return [plan for _, plan in sorted(self._found(view), key=lambda entry: entry[0])]


def sizes(estimator: Estimator, free_gpus: Sequence[int]) -> list[tuple[int, int]]:
    """Returns at most `SIZES` (tp, D) that the batch and the blocks allow, those with the fewest idle GPUs
    and the fewest stages first.
    """
    allowed = set.intersection(
        *(
            set(tensor_widths(estimator, estimator.cluster.domains[k]))
            for k in domains_with_gpus(estimator, free_gpus)
        ),
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
    """Tells whether weights and gradients alone, 6 bytes a parameter, fit in memory."""
    memory = max(domain.gpu.memory_bytes for domain in estimator.cluster.domains)
    model = estimator.job.model
    return (2.0 * model.parameters + 4.0 * model.trained_parameters) / (tp * stages) < memory


def _groups(estimator: Estimator, free_gpus: Sequence[int], tp: int, dp: int) -> list[int]:
    """Returns the domain of every group of `dp` devices, in order."""
    return [k for k in domains_with_gpus(estimator, free_gpus) for _ in range(free_gpus[k] // (tp * dp))]


def path(apart_s: Float, groups: Sequence[int]) -> tuple[float, list[int] | None]:
    """Returns DT-FM's cost_PP, and the domains of the groups along that path; None where it returns to a
    domain.

    `apart_s` (K, K) has the delays between domains, and inside them on its diagonal.
    """
    homes = np.array(sorted(groups, reverse=True))  # one order for equal sets of groups
    length_s, order = shortest_path(apart_s[np.ix_(homes, homes)])
    along = [int(homes[g]) for g in order]
    visits = [k for n, k in enumerate(along) if n == 0 or along[n - 1] != k]
    return length_s, along if len(set(visits)) == len(visits) else None


def _plan(estimator: Estimator, domains: Sequence[int], dp: int, tp: int, micro_batch: int) -> Plan | None:
    """Returns the plan with even stages along the path."""
    order = list(dict.fromkeys(domains))
    return even_stage_plan(
        estimator, order, [domains.count(k) for k in order], dp, [tp] * len(order), micro_batch
    )
