"""When no plan fits: the smallest changes of the job and of the cluster after which one does.

Every change is tried by a search over the typical links, whose plans the memory model holds to the GPUs. GPUs
are added to one site in whole nodes: twice as many until a plan fits, then by bisection down to the least.
"""

from collections.abc import Iterator
from dataclasses import replace

from policy.search.plan_search import best_plans
from replay.planning.record import Record
from twin.core.domain import Cluster
from twin.core.job import JobSpec
from twin.core.plan import Recompute
from twin.estimation.estimator import Estimator

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
MOST_NODES = 256
"""Nodes that are added to a site at most."""
Change = tuple[str, JobSpec]
"""A changed job, and the change as a key of a scenario."""


def remedies(record: Record) -> list[str]:
    """Returns in words the changes that would make a plan fit, each of them alone, those of the job first."""
    job, cluster = record.estimator.job, record.estimator.cluster
    kinds = [list(_micro_batches(job)), list(_recomputed(job)), list(_sharded(job))]
    found = []
    for steps in kinds:
        found += [words for words, changed in steps if _fits(record, cluster, changed)][:1]
    last = [steps[-1][0] for steps in kinds if steps]
    if not found and len(last) > 1 and _fits(record, cluster, _least_memory(job)):
        found.append(" and ".join(last))
    return [*found, *_of_sites(record)]


def _micro_batches(job: JobSpec) -> Iterator[Change]:
    """Yields the job with ever smaller micro-batches, halved."""
    size = min(job.micro_batches_allowed)
    while size > 1:
        size //= 2
        yield f"job.micro_batches: [{size}]", replace(job, micro_batches_allowed=(size,))


def _recomputed(job: JobSpec) -> Iterator[Change]:
    """Yields the job with more recomputation."""
    for recompute in RECOMPUTE[RECOMPUTE.index(job.recompute) + 1 :]:
        yield f"job.recompute: {recompute}", replace(job, recompute=recompute)


def _sharded(job: JobSpec) -> Iterator[Change]:
    """Yields the job with higher stages of ZeRO."""
    for zero in range(job.zero + 1, 4):
        yield f"job.zero: {zero}", replace(job, zero=zero)


def _least_memory(job: JobSpec) -> JobSpec:
    return replace(job, micro_batches_allowed=(1,), recompute=RECOMPUTE[-1], zero=3)


def _of_sites(record: Record) -> Iterator[str]:
    """Yields for the largest site of each GPU model how many more GPUs there would be enough."""
    domains = record.estimator.cluster.domains
    largest: dict[str, int] = {}
    for k in sorted(range(len(domains)), key=lambda k: -domains[k].gpus):
        largest.setdefault(domains[k].gpu.name, k)
    for k in largest.values():
        nodes = _least_nodes(record, k)
        if nodes is not None:
            more = nodes * domains[k].gpus_per_node
            yield f"{more} more {domains[k].gpu.name} at {domains[k].name} ({domains[k].gpus + more} in all)"


def _least_nodes(record: Record, site: int) -> int | None:
    """Returns the least nodes to add to a site so that a plan fits; None where `MOST_NODES` are too few."""

    def fits(nodes: int) -> bool:
        return _fits(record, _enlarged(record.estimator.cluster, site, nodes), record.estimator.job)

    enough = 1
    while not fits(enough):
        if enough >= MOST_NODES:
            return None
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if fits(middle):
            enough = middle
        else:
            too_few = middle
    return enough


def _enlarged(cluster: Cluster, site: int, nodes: int) -> Cluster:
    domain = cluster.domains[site]
    larger = replace(domain, gpus=domain.gpus + nodes * domain.gpus_per_node)
    return replace(cluster, domains=(*cluster.domains[:site], larger, *cluster.domains[site + 1 :]))


def _fits(record: Record, cluster: Cluster, job: JobSpec) -> bool:
    estimator = Estimator(cluster, job, compute=record.estimator.compute)
    gpus = [domain.gpus for domain in cluster.domains]
    return bool(best_plans(estimator, record.typical, free_gpus=gpus, top=1))
