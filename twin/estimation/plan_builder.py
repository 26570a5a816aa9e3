"""Plans made of an order of domains and layer counts, with the default placement and the job's schedule."""

from collections.abc import Sequence

from ingest.core.errors import InfeasibleError
from twin.core import placement
from twin.core.domain import Cluster
from twin.core.job import JobSpec
from twin.core.plan import Plan, Share
from twin.estimation import feasibility


def place(cluster: Cluster, domain: int, dp: int, tp: int, pp: int) -> tuple[int, ...]:
    """GPUs of `domain` for dp x tp x pp, packed.

    Raises:
        InfeasibleError: the domain has fewer GPUs.
    """
    owned = cluster.domains[domain]
    if dp * tp * pp > owned.gpus:
        raise InfeasibleError(
            f"{owned.name}: dp {dp} x tp {tp} x pp {pp} needs {dp * tp * pp} GPUs of {owned.gpus}"
        )
    return placement.packed(dp, tp, pp)


def make(
    cluster: Cluster, job: JobSpec, order: Sequence[int], layer_counts: Sequence[int], dp: int,
    inner: Sequence[tuple[int, int]], micro_batch: int, extra_warmup: int, ep: int = 0,
) -> Plan:  # fmt: skip
    """Plan in which domain `order[n]` runs `layer_counts[n]` layers on `inner[n]` = (tp, pp); the number
    of micro-batches follows from the global batch. `ep` 0: the largest degree that the job allows.

    Raises:
        InfeasibleError: too many GPUs, the batch does not divide, or the job's chunks do not fit.
    """
    count = job.micro_batches(dp, micro_batch)
    if count is None:
        raise InfeasibleError(job.size_fault(dp, micro_batch))
    shares = tuple(
        Share(domain, int(layers), tp, pp, place(cluster, domain, dp, tp, pp))
        for domain, layers, (tp, pp) in zip(order, layer_counts, inner, strict=True)
    )
    if job.chunks > 1 and (trouble := feasibility.chunk_problem(job, shares, count)):
        raise InfeasibleError(trouble)
    return Plan(
        shares, dp, micro_batch, count, job.schedule, extra_warmup, job.p2p, job.recompute, job.zero,
        chunks=job.chunks, sequence_parallel=job.sequence_parallel, context_parallel=job.context_parallel,
        ep=ep or job.ep_of(dp),
    )  # fmt: skip


def sketch(
    cluster: Cluster, job: JobSpec, order: Sequence[int], dp: int, inner: Sequence[tuple[int, int]],
    micro_batch: int, ep: int = 0,
) -> Plan | None:  # fmt: skip
    """Plan of these sizes with the fewest layers; None where no layer counts make it legal."""
    fits = all(dp * tp * pp <= cluster.domains[k].gpus for k, (tp, pp) in zip(order, inner, strict=True))
    count, chunks = job.micro_batches(dp, micro_batch), job.chunks
    stages = sum(pp for _, pp in inner)
    uneven = job.schedule == "interleaved" and (stages < 2 or count is None or count % stages)
    if not fits or count is None or uneven:
        return None
    least = [pp * chunks for _, pp in inner]
    return make(cluster, job, order, least, dp, inner, micro_batch, job.extra_warmup, ep)
