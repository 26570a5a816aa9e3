"""Plans of systems that cut the model into even stages and deal the stages out to domains."""

from collections.abc import Iterator, Sequence

from ingest.core.errors import InfeasibleError
from ingest.core.units import GIB
from twin.core import layer_split as split
from twin.core.domain import Domain
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan


def stage_layers(layers: int, stages: int) -> tuple[int, ...] | None:
    """Layers of each of `stages` even stages, as the twin splits; None where a stage would have no block."""
    return split.stage_layers(stages, layers, True, True) if layers - 2 >= stages else None


def deal(
    estimator: Estimator,
    order: Sequence[int],
    stages: Sequence[int],
    dp: int,
    tps: Sequence[int],
    micro_batch: int,
) -> Plan | None:
    """Even stages dealt out along `order`: `stages[n]` of them to the n-th domain, which is left out at 0.

    None where the batch, the layers or the GPUs do not allow it; memory is not looked at.
    """
    layers = stage_layers(estimator.n_layers, sum(stages))
    if layers is None or estimator.job.micro_batches(dp, micro_batch) is None:
        return None
    used, counts, inner, at = [], [], [], 0
    for domain, depth, tp in zip(order, stages, tps, strict=True):
        if depth == 0:
            continue
        if dp * tp * depth > estimator.cluster.domains[domain].gpus:
            return None
        used.append(domain)
        counts.append(sum(layers[at : at + depth]))
        inner.append((tp, depth))
        at += depth
    return estimator.make(used, counts, dp, inner, micro_batch)


def widths(estimator: Estimator, domain: Domain) -> list[int]:
    """Tensor widths that Megatron allows: powers of two that divide the node and the heads, ascending."""
    heads, node = estimator.job.model.heads, domain.gpus_per_node
    return [w for w in (2**k for k in range(node.bit_length())) if node % w == 0 and heads % w == 0]


def living(estimator: Estimator, free_gpus: Sequence[int]) -> list[int]:
    """Domains with a GPU left, in index order."""
    return [k for k in range(estimator.cluster.size) if free_gpus[k] > 0]


def batches(estimator: Estimator, dp: int, stages: int) -> Iterator[int]:
    """Micro-batch sizes that divide the batch, those that keep the pipeline full (m >= stages) first, large
    ones before small ones."""
    job = estimator.job
    sizes = sorted((b for b in job.micro_batches_allowed if job.micro_batches(dp, b)), reverse=True)
    full = [b for b in sizes if job.global_batch // (dp * b) >= stages]
    yield from full
    yield from (b for b in sizes if b not in full)


class Closest:
    """Remembers the plan that came closest to fitting, to tell the user what was missing."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._least: tuple[int, str] | None = None

    def fits(self, plan: Plan, free_gpus: Sequence[int]) -> bool:
        """Whether `plan` is legal, memory included."""
        problems = self._estimator.problems(plan, free_gpus)
        if not problems:
            return True
        need = max(self._estimator.peak_mem_bytes(plan))
        if self._least is None or need < self._least[0]:
            self._least = need, problems[0]
        return False

    def error(self, rule: str, free_gpus: Sequence[int]) -> InfeasibleError:
        """`rule` found nothing; with the smallest need of memory that was seen."""
        model, gpus = self._estimator.job.model.name, sum(free_gpus)
        detail = "no size divides the batch, the layers and the nodes"
        if self._least is not None:
            detail = f"the closest needs {self._least[0] / GIB:.1f} GiB on a GPU ({self._least[1]})"
        return InfeasibleError(
            f"{rule} finds no plan for {model} on {gpus} GPUs of {len(free_gpus)} domains: {detail}; "
            f"add GPUs, or let a policy with uneven cuts plan"
        )
