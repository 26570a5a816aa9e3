"""`static`: equal cuts over the domains in index order with a Megatron-style inner configuration, decided
once.
"""

from collections.abc import Iterator, Sequence

from ingest.core.errors import InfeasibleError
from ingest.core.units import GIB
from policy.baselines.replan_conditions import must_replan
from policy.core.protocol import Context, Decision
from twin.estimate.estimator import DEAD, Estimator
from twin.core.plan import Plan
from twin.core.view import View


class Static:
    """The plan of the spreadsheet; moves only when it became illegal, by the same rule over what is left."""

    name = "static"

    def reset(self, context: Context) -> None:
        """Start a run."""
        self.estimator = context.estimator

    def decide(self, view: View) -> Decision:
        """Equal cuts at the start and after a failure, else hold."""
        if view.plan is not None and not must_replan(self.estimator, view):
            return Decision(None, "the plan is chosen once")
        plan = self._plan(view)
        if plan is None:
            return Decision(None, "no plan of this rule can run with what is left")
        if plan == view.plan:
            return Decision(None, "the same plan is the rule's answer to what is left")
        ns = self.estimator.iter_ns(plan, view.forecast.links(), view.slowdown)
        predicted = None if ns == DEAD else ns / 1e9
        return Decision(plan, f"equal cuts in index order: {plan}", predicted_iter_s=predicted)

    def _plan(self, view: View) -> Plan | None:
        alive = [k for k in range(self.estimator.cluster.size) if view.free_gpus[k] > 0]
        if view.plan is None:
            return equal_cuts(self.estimator, alive, view.free_gpus)
        for order in _reachable(alive, view):
            try:
                return equal_cuts(self.estimator, order, view.free_gpus)
            except InfeasibleError:
                continue
        return None


def base_plan(estimator: Estimator, view: View) -> Plan | None:
    """The static plan over the GPUs that live now, the base of every relative figure; None if it does not
    fit.
    """
    alive = [k for k in range(estimator.cluster.size) if view.free_gpus[k] > 0]
    try:
        return equal_cuts(estimator, alive, view.free_gpus)
    except InfeasibleError:
        return None


def equal_cuts(estimator: Estimator, order: Sequence[int], free_gpus: Sequence[int]) -> Plan:
    """Layers as even as possible over `order`, the first domains taking the remainder; sizes by
    `megatron_sizes`.

    Raises:
        InfeasibleError: no size fits the memory or the batch; the message has the smallest excess found.
    """
    name = estimator.job.model.name
    if not order:
        raise InfeasibleError(f"equal cuts of {name}: no domain has a GPU left")
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
    """(dp, inner, micro_batch) in the order in which Megatron users try them.

    tp grows by powers of two up to the node with pp = 1, then pp grows; dp is what is left over in the
    smallest domain; the micro-batch is the largest that keeps the pipeline full (m >= stages), then the
    smaller ones, then those that do not. Source: policies.md recipe 4 after Megatron-LM's guidance.
    """
    job, domains = estimator.job, [estimator.cluster.domains[k] for k in order]
    for tp, pp in _levels(estimator, order):
        inner = tuple((min(tp, domain.gpus_per_node), pp) for domain in domains)
        room = min(free_gpus[k] // (t * p) for k, (t, p) in zip(order, inner, strict=True))
        dps = [dp for dp in range(room, 0, -1) if job.global_batch % dp == 0]
        for dp in dps[:1]:
            sizes = [
                b for b in sorted(job.micro_batches_allowed, reverse=True) if job.global_batch % (dp * b) == 0
            ]
            full = [b for b in sizes if job.global_batch // (dp * b) >= pp * len(order)]
            for micro_batch in full + [b for b in sizes if b not in full]:
                yield dp, inner, micro_batch


def _levels(estimator: Estimator, order: Sequence[int]) -> list[tuple[int, int]]:
    node = max((estimator.cluster.domains[k].gpus_per_node for k in order), default=1)
    gpus = max((estimator.cluster.domains[k].gpus for k in order), default=1)
    widths = [2**k for k in range(node.bit_length()) if 2**k <= node]
    return [(tp, 1) for tp in widths] + [(widths[-1], pp) for pp in range(2, gpus // widths[-1] + 1)]


def _reachable(alive: Sequence[int], view: View) -> list[tuple[int, ...]]:
    """For each last domain the longest index-order chain over living links, the longest first."""
    bandwidth = view.forecast.links().bandwidth_bps
    best: dict[int, tuple[int, ...]] = {}
    for k in alive:
        before = [best[j] for j in best if bandwidth[j, k] > 0 and bandwidth[k, j] > 0]
        best[k] = (*max(before, key=len, default=()), k)
    return sorted(best.values(), key=lambda chain: (-len(chain), chain))
