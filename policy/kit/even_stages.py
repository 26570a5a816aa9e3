"""Plans with even stages that are assigned to domains."""

from collections.abc import Iterator, Sequence

from ingest.core.errors import InfeasibleError
from ingest.core.units import GIB
from twin.core import layer_split
from twin.core.domain import Domain
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator


def stage_layers(layers: int, stages: int) -> tuple[int, ...] | None:
    """Returns the layers of each of `stages` even stages, as the twin splits; None if a stage would have no
    block."""
    return layer_split.stage_layers(stages, layers, True, True) if layers - 2 >= stages else None


def even_stage_plan(
    estimator: Estimator,
    order: Sequence[int],
    stages: Sequence[int],
    dp: int,
    tps: Sequence[int],
    micro_batch: int,
) -> Plan | None:
    """Returns the plan with even stages along `order`, `stages[n]` of them in the n-th domain, which may be
    0.

    None where the batch, the layers or the GPUs do not allow it; memory is not checked.
    """
    layers = stage_layers(estimator.n_layers, sum(stages))
    if layers is None or estimator.job.micro_batches(dp, micro_batch) is None:
        return None
    used, counts, inner, first = [], [], [], 0
    for domain, depth, tp in zip(order, stages, tps, strict=True):
        if depth == 0:
            continue
        if dp * tp * depth > estimator.cluster.domains[domain].gpus:
            return None
        used.append(domain)
        counts.append(sum(layers[first : first + depth]))
        inner.append((tp, depth))
        first += depth
    return estimator.make(used, counts, dp, inner, micro_batch)


def tensor_widths(estimator: Estimator, domain: Domain) -> list[int]:
    """Returns the tensor widths that Megatron allows: powers of two that divide node and heads, ascending."""
    heads, node = estimator.job.model.heads, domain.gpus_per_node
    return [w for w in (2**k for k in range(node.bit_length())) if node % w == 0 and heads % w == 0]


def domains_with_gpus(estimator: Estimator, free_gpus: Sequence[int]) -> list[int]:
    """Returns the domains with a living GPU, in index order."""
    return [k for k in range(estimator.cluster.size) if free_gpus[k] > 0]


def micro_batch_sizes(estimator: Estimator, dp: int, stages: int) -> Iterator[int]:
    """Yields micro-batch sizes that divide the batch, those that keep the pipeline full (m >= stages) first,
    large ones before small ones."""
    job = estimator.job
    counts = {b: job.micro_batches(dp, b) or 0 for b in job.micro_batches_allowed}
    sizes = sorted((b for b in counts if counts[b]), reverse=True)
    full = [b for b in sizes if counts[b] >= stages]
    yield from full
    yield from (b for b in sizes if b not in full)


class ClosestFit:
    """Records the plan that came closest to fitting in memory, for the error message."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._least: tuple[int, str] | None = None

    def fits(self, plan: Plan, free_gpus: Sequence[int]) -> bool:
        """Tells whether `plan` is legal, memory included."""
        problems = self._estimator.problems(plan, free_gpus)
        if not problems:
            return True
        need = max(self._estimator.peak_mem_bytes(plan))
        if self._least is None or need < self._least[0]:
            self._least = need, problems[0]
        return False

    def error(self, rule: str, free_gpus: Sequence[int]) -> InfeasibleError:
        """Returns the error that `rule` found no plan, with the smallest need of memory of all plans
        tried."""
        model, gpus = self._estimator.job.model.name, sum(free_gpus)
        detail = "no size divides the batch, the layers and the nodes"
        if self._least is not None:
            detail = f"the closest needs {self._least[0] / GIB:.1f} GiB on a GPU ({self._least[1]})"
        return InfeasibleError(
            f"{rule} finds no plan for {model} on {gpus} GPUs of {len(free_gpus)} domains: {detail}; "
            f"add GPUs, or let a policy with uneven cuts plan"
        )
