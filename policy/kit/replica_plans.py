"""Building plans that run the whole model in several domains at once."""

from collections.abc import Sequence

from twin.estimate.estimator import Estimator
from twin.core.plan import Plan, Share, Sync


def replicated(
    estimator: Estimator,
    domains: Sequence[int],
    dp: int,
    inner: Sequence[tuple[int, int]],
    micro_batch: int,
    sync: Sync,
) -> Plan | None:
    """One replica in each of `domains` with its own (tp, pp); a plain plan when it is alone.

    None where the batch does not divide or a domain has too few GPUs or layers.
    """
    job = estimator.job
    count, rest = divmod(job.global_batch, dp * micro_batch * len(domains))
    if rest or not count:
        return None
    shares = []
    for k, (tp, pp) in zip(domains, inner, strict=True):
        if dp * tp * pp > estimator.cluster.domains[k].gpus or pp > estimator.n_layers:
            return None
        shares.append(Share(k, estimator.n_layers, tp, pp, estimator.place(k, dp, tp, pp)))
    return Plan(
        tuple(shares), dp, micro_batch, count, job.schedule, job.extra_warmup, job.p2p, job.recompute,
        job.zero, sync=sync if len(shares) > 1 else None,
    )  # fmt: skip


def seconds_per_token(estimator: Estimator, plan: Plan, iter_s: float) -> float:
    """Time per token of synchronous training: what local SGD loses in quality is counted in."""
    return iter_s / estimator.tokens(plan)
