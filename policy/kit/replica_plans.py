"""Plans with a replica of the whole model in each of several domains."""

from collections.abc import Sequence

from twin.core.plan import Plan, Share, Sync
from twin.estimation.estimator import Estimator
from twin.estimation.feasibility import chunk_problem


def replica_plan(
    estimator: Estimator,
    domains: Sequence[int],
    dp: int,
    inner: Sequence[tuple[int, int]],
    micro_batch: int,
    sync: Sync,
) -> Plan | None:
    """Returns the plan with a replica in each of `domains` with its own (tp, pp); one replica is a pipeline
    plan.

    None where the batch does not divide, or a domain has too few GPUs or layers, or cannot run the job's
    chunks.
    """
    job = estimator.job
    count = job.micro_batches(dp, micro_batch, len(domains))
    if count is None:
        return None
    shares = []
    for k, (tp, pp) in zip(domains, inner, strict=True):
        if dp * tp * pp > estimator.cluster.domains[k].gpus or pp > estimator.n_layers:
            return None
        shares.append(Share(k, estimator.n_layers, tp, pp, estimator.place(k, dp, tp, pp)))
    if job.chunks > 1 and any(chunk_problem(job, [share], count) for share in shares):
        return None
    return Plan(
        tuple(shares), dp, micro_batch, count, job.schedule, job.extra_warmup, job.p2p, job.recompute,
        job.zero, sync=sync if len(shares) > 1 else None, chunks=job.chunks,
        sequence_parallel=job.sequence_parallel, context_parallel=job.context_parallel, ep=job.ep_of(dp),
    )  # fmt: skip


def seconds_per_token(estimator: Estimator, plan: Plan, iter_s: float) -> float:
    """Returns the time per token of synchronous training; tokens of local SGD are discounted for its
    quality."""
    return iter_s / estimator.tokens(plan)
