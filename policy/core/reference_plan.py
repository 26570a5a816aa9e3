"""The reference plan: layers split evenly over the domains in index order, sizes by Megatron-LM's rule.

The objective and all relative figures are relative to it; the baseline `static` runs it.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ingest.core.errors import InfeasibleError
from ingest.core.units import GIB
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator


def base_plan(estimator: Estimator, view: View) -> Plan | None:
    """Returns the reference plan over the living GPUs; None if it does not fit."""
    return _over(estimator, tuple(view.free_gpus))


@lru_cache(maxsize=256)
def _over(estimator: Estimator, free_gpus: tuple[int, ...]) -> Plan | None:
    alive = [k for k in range(estimator.cluster.size) if free_gpus[k] > 0]
    try:
        return equal_cuts(estimator, alive, free_gpus)
    except InfeasibleError:
        return None


def equal_cuts(estimator: Estimator, order: Sequence[int], free_gpus: Sequence[int]) -> Plan:
    """Returns the plan with layers split evenly over `order`, one more in the first domains where they do not
    divide; the first of `megatron_sizes` that fits.

    Raises:
        InfeasibleError: no size fits the memory or the batch; the message has the smallest need found.
    """
    name = estimator.job.model.name
    if not order:
        raise InfeasibleError(f"equal cuts of {name}: no domain has a GPU left; add GPUs to one")
    n = estimator.n_layers
    counts = [n // len(order) + (k < n % len(order)) for k in range(len(order))]
    best_need: tuple[float, str] | None = None
    for dp, inner, micro_batch in megatron_sizes(estimator, order, free_gpus):
        if any(count < pp for count, (_, pp) in zip(counts, inner, strict=True)):
            continue
        plan = estimator.make(tuple(order), tuple(counts), dp, inner, micro_batch)
        problems = estimator.problems(plan, tuple(free_gpus))
        if not problems:
            return plan
        need = max(estimator.peak_mem_bytes(plan))
        if best_need is None or need < best_need[0]:
            best_need = (need, problems[0])
    where = f"{len(order)} domains with {sum(free_gpus[k] for k in order)} GPUs"
    detail = (
        f"the closest needs {best_need[0] / GIB:.1f} GiB on a GPU: {best_need[1]}"
        if best_need
        else "no size divides"
    )
    raise InfeasibleError(f"equal cuts of {name} over {where} do not fit: {detail}")


def megatron_sizes(
    estimator: Estimator, order: Sequence[int], free_gpus: Sequence[int]
) -> Iterator[tuple[int, tuple[tuple[int, int], ...], int]]:
    """Yields (dp, inner, micro_batch) in the order in which Megatron users try them.

    tp grows by powers of two up to the node with pp = 1, then pp grows; dp is the largest that fits in the
    smallest domain; micro-batches that keep the pipeline full (m >= stages) come first, large ones before
    small ones. Source: Narayanan et al., SC 2021, takeaways 1 to 3.
    """
    job, domains = estimator.job, [estimator.cluster.domains[k] for k in order]
    for tp, pp in _levels(estimator, order):
        inner = tuple((min(tp, domain.gpus_per_node), pp) for domain in domains)
        most = min(free_gpus[k] // (t * p) for k, (t, p) in zip(order, inner, strict=True))
        dps = [dp for dp in range(most, 0, -1) if job.micro_batches(dp, 1)]
        for dp in dps[:1]:
            counts = {b: job.micro_batches(dp, b) or 0 for b in job.micro_batches_allowed}
            sizes = [b for b in sorted(counts, reverse=True) if counts[b]]
            full = [b for b in sizes if counts[b] >= pp * len(order)]
            for micro_batch in full + [b for b in sizes if b not in full]:
                yield dp, inner, micro_batch


def _levels(estimator: Estimator, order: Sequence[int]) -> list[tuple[int, int]]:
    """Returns (tp, pp) in the order in which they are tried."""
    node = max((estimator.cluster.domains[k].gpus_per_node for k in order), default=1)
    gpus = max((estimator.cluster.domains[k].gpus for k in order), default=1)
    widths = [2**k for k in range(node.bit_length()) if 2**k <= node]
    return [(tp, 1) for tp in widths] + [(widths[-1], pp) for pp in range(2, gpus // widths[-1] + 1)]
