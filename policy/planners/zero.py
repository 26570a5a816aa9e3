"""`zero`: DeepSpeed's ZeRO; data parallelism alone, with the lowest stage of sharding that fits.

After Rajbhandari et al. 2020 and hierarchical partitioning in ZeRO++ (hpZ, Wang et al. 2023): no tensor or
pipeline parallelism, every GPU a data-parallel rank, stages 0 to 3 tried in order, the largest micro-batch
that fits. In one domain that is ZeRO as published. Across domains it is the hierarchical form: shards stay
inside a domain, gathers are local, and only the gradients (2 bytes per parameter, as DeepSpeed sends them)
cross the wide area in every iteration. The flat ring that shards over all domains cannot be expressed as a
plan of the twin; it would send every gather over the slowest link. The number of domains is the one that the
twin estimates to be fastest. A model whose shards do not fit in one domain cannot be trained this way.
"""

from collections.abc import Iterator
from dataclasses import replace

from ingest.core.errors import InfeasibleError
from policy.kit.even_stages import ClosestFit, domains_with_gpus
from policy.kit.planner_base import Planner, fastest
from policy.kit.replica_plans import replica_plan
from twin.core.plan import Plan, Sync
from twin.core.view import View

GRADIENTS = Sync(1, 2.0)


class Zero(Planner):
    """Takes the lowest stage and the largest micro-batch that fit, over the fastest set of domains; planned
    once."""

    name = "zero"

    def plans(self, view: View) -> list[Plan]:
        """Returns one plan for each set of domains that can hold the model, the fastest first."""
        closest, found = ClosestFit(self.estimator), []
        for domains in domain_sets(domains_with_gpus(self.estimator, view.free_gpus), view.free_gpus):
            fitting = (p for p in self._tried(domains, view) if closest.fits(p, view.free_gpus))
            first = next(fitting, None)
            if first is not None:
                found.append(first)
        if not found:
            error = closest.error("ZeRO", view.free_gpus)
            raise InfeasibleError(f"ZeRO shards inside a domain here, and no stage fits. {error}")
        return fastest(self.estimator, view, found)

    def _tried(self, domains: list[int], view: View) -> Iterator[Plan]:
        """Yields stages 0 to 3, in each the micro-batches from large to small; dp fits the smallest
        domain."""
        job = self.estimator.job
        most = min(view.free_gpus[k] for k in domains)
        dps = [dp for dp in range(most, 0, -1) if job.micro_batches(dp, 1, len(domains))]
        for dp in dps[:1]:
            for stage in range(4):
                for micro_batch in sorted(job.micro_batches_allowed, reverse=True):
                    inner = [(1, 1)] * len(domains)
                    plan = replica_plan(self.estimator, domains, dp, inner, micro_batch, GRADIENTS)
                    if plan is not None:
                        yield replace(plan, zero=stage)


def domain_sets(domains: list[int], free_gpus: tuple[int, ...]) -> list[list[int]]:
    """Returns each domain alone, and the 2, 3, ... largest together."""
    largest = sorted(domains, key=lambda k: (-free_gpus[k], k))
    together = [sorted(largest[:n]) for n in range(2, len(largest) + 1)]
    return [[k] for k in domains] + together
