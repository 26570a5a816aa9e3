"""Reasons why a plan cannot run: layers, batch, GPUs, tensor groups, memory."""

from collections.abc import Sequence

from ingest.core.units import GIB
from twin.core import placement
from twin.core.domain import Cluster
from twin.core.job import JobSpec
from twin.core.plan import Plan, Share
from twin.costs.stage_costs import Slot


def shape_problems(
    cluster: Cluster, job: JobSpec, plan: Plan, free_gpus: Sequence[int] | None
) -> tuple[str, ...]:
    """Reasons other than memory; empty without any. `free_gpus` (K,): GPUs alive per domain."""
    layers = len(job.model.layers())
    if plan.cuts[-1] != layers:
        return (f"the plan places {plan.cuts[-1]} layers, the model has {layers}",)
    found = []
    batch = plan.pipelines * plan.micro_batch * plan.micro_batches * plan.replicas
    if batch != job.global_batch:
        product = "dp x micro-batch x micro-batches" + (" x replicas" if plan.sync is not None else "")
        found.append(f"{product} is {batch}, the global batch {job.global_batch}")
    if plan.context_parallel != job.context_parallel:
        found.append(f"context_parallel is {plan.context_parallel}, that of the job {job.context_parallel}")
    if plan.ep not in (degrees := job.degrees(plan.dp)):
        allowed = " or ".join(map(str, degrees)) or "none"
        found.append(f"ep is {plan.ep}, that of the job with dp {plan.dp} is {allowed}")
    if plan.micro_batch not in job.micro_batches_allowed:
        found.append(f"micro-batch {plan.micro_batch} is not one of {job.micro_batches_allowed}")
    for route in plan.routes:
        if not all(0 <= k < cluster.size for k in route):
            found.append(f"the route {route} passes a domain that does not exist")
    for share in plan.shares:
        found += _share_problems(cluster, job, share, plan.dp, free_gpus)
    return tuple(found)


def chunk_problem(job: JobSpec, shares: Sequence[Share], micro_batches: int) -> str | None:
    """Reason why these shares cannot run the chunks of the job; None if they can."""
    stages, schedule, chunks = sum(share.pp for share in shares), job.schedule, job.chunks
    if schedule != "interleaved":
        few = any(share.layers < share.pp * chunks for share in shares)
        return f"{schedule}: a share has fewer layers than chunks, {chunks} in each stage" if few else None
    if stages < 2:
        return "interleaved: one stage is no pipeline"
    if micro_batches % stages:
        return (
            f"interleaved: {micro_batches} micro-batches are not a multiple of {stages} stages; change "
            "job.global_batch or job.micro_batches of the scenario, take `schedule: 1f1b`, or a policy that "
            "searches, such as mpc"
        )
    if any(share.layers < share.pp * chunks for share in shares):
        return f"interleaved: a share has fewer layers than chunks, {chunks} in each stage"
    return None


def _share_problems(
    cluster: Cluster, job: JobSpec, share: Share, dp: int, free_gpus: Sequence[int] | None
) -> list[str]:
    tag, found = f"d{share.domain}", []
    if not 0 <= share.domain < cluster.size:
        return [f"{tag}: no such domain"]
    domain = cluster.domains[share.domain]
    free = domain.gpus if free_gpus is None else int(free_gpus[share.domain])
    if len(share.gpus) > free:
        found.append(f"{tag}: needs {len(share.gpus)} GPUs of {free}")
    if min(share.gpus) < 0 or max(share.gpus) >= domain.gpus:
        found.append(f"{tag}: GPU {max(share.gpus)} of {domain.gpus} does not exist")
    elif placement.layout(share.gpus, domain, dp, share.tp, share.pp).tp_split:
        found.append(f"{tag}: tp {share.tp} does not stay inside a node of {domain.gpus_per_node}")
    if job.model.heads % share.tp:
        found.append(f"{tag}: tp {share.tp} does not divide {job.model.heads} heads")
    return found


def memory_problems(cluster: Cluster, slots: Sequence[Slot], peak_bytes: Sequence[int]) -> tuple[str, ...]:
    """Stages whose peak exceeds their GPU's memory."""
    found = []
    for stage, (slot, need) in enumerate(zip(slots, peak_bytes, strict=True)):
        have = cluster.domains[slot.domain].gpu.memory_bytes
        if need > have:
            found.append(f"d{slot.domain}: stage {stage} needs {need / GIB:.1f} GiB of {have / GIB:.1f} GiB")
    return tuple(found)
