"""Estimate of one iteration from its times: traffic, utilisation, money and energy."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ingest.core.units import GB, to_s
from twin.core import schedules
from twin.core.domain import Cluster, Matrix
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.costs import energy, replica_sync, tied_embeddings
from twin.pipeline.kernel import DEAD


@dataclass(frozen=True, slots=True, eq=False)
class IterationEstimate:
    """Estimate of one iteration of a plan. `compute_s` is per share: mean over its stages of busy seconds.

    compute (mean over stages) + bubble_s + exposed_comm_s = iter_s: the bubble is what remains idle with free
    communication, exposed communication is what links and gradient synchronisation add to that.
    """

    iter_ns: int
    iter_s: float
    compute_s: tuple[float, ...]
    utilisation_by_domain: dict[int, float]
    utilisation: float
    bubble_s: float
    exposed_comm_s: float
    wan_bytes: Matrix
    usd: float
    gpu_usd: float
    energy_j: float
    peak_mem_bytes: tuple[int, ...]
    binding: str


def priced(
    cluster: Cluster,
    job: JobSpec,
    plan: Plan,
    total_ns: int,
    *,
    compute_s: tuple[float, ...],
    bubble_s: float,
    exposed_comm_s: float,
    peak_mem_bytes: tuple[int, ...],
    binding: str,
) -> IterationEstimate:
    """Estimate of an iteration of `total_ns` (`DEAD`: it never ends) in which shares are busy for
    `compute_s`."""
    iter_s = float("inf") if total_ns == DEAD else to_s(total_ns)
    by_domain = {share.domain: c / iter_s for share, c in zip(plan.shares, compute_s, strict=True)}
    sent = wan_bytes(job, plan, cluster.size)
    gpu_usd, joules = _held(cluster, plan, compute_s, iter_s)
    return IterationEstimate(
        iter_ns=total_ns,
        iter_s=iter_s,
        compute_s=compute_s,
        utilisation_by_domain=by_domain,
        utilisation=float(np.mean(list(by_domain.values()))),
        bubble_s=bubble_s,
        exposed_comm_s=exposed_comm_s,
        wan_bytes=sent,
        usd=float(np.sum(sent * np.array(cluster.usd_per_gb)) / GB),
        gpu_usd=gpu_usd,
        energy_j=joules,
        peak_mem_bytes=peak_mem_bytes,
        binding=binding,
    )


def _held(cluster: Cluster, plan: Plan, compute_s: tuple[float, ...], iter_s: float) -> tuple[float, float]:
    """USD and joules of holding the plan's GPUs for one iteration."""
    usd = joules = 0.0
    for share, busy_s in zip(plan.shares, compute_s, strict=True):
        domain = cluster.domains[share.domain]
        usd += len(share.gpus) * domain.usd_per_gpu_hour * iter_s / 3600.0
        joules += energy.energy_j(domain.gpu, len(share.gpus), busy_s, iter_s, domain.pue)
    return usd, joules


def wan_bytes(job: JobSpec, plan: Plan, size: int) -> Matrix:
    """Bytes per directed link (K, K) of one iteration over `size` domains.

    A dp m each way over each boundary between domains, once a chunk, and interleaved once less back from the
    last domain to the first, and the gradient of a tied embedding, on every link of its route; of replicas
    what an iteration's share of their exchange sends.
    """
    if plan.sync is not None:
        return replica_sync.wan_bytes(job, plan, size)
    sent = np.zeros((size, size))
    message = job.message_bytes(plan.micro_batch) * plan.dp * plan.micro_batches
    passes = [(i, j, message * plan.chunks) for i, j in pairwise(plan.order)]
    if len(plan.shares) > 1:
        tied_bytes = tied_embeddings.iteration_bytes(job, tied_embeddings.spread(plan)) * plan.dp
        back = plan.chunks - 1 if schedules.returns(plan.schedule, plan.chunks) else 0
        passes.append((plan.order[-1], plan.order[0], message * back + tied_bytes))
    for i, j, both in passes:
        for link in (*plan.route(i, j), *plan.route(j, i)):
            sent[link] += both
    return sent
