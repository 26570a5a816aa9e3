"""Random small clusters, jobs and links for the tests of policies, and their exhaustive enumeration."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from policy.search.plan_search import best_plans
from policy.search.plan_shapes import Shape, choices, orders
from twin.core.domain import Cluster, Domain, LinkState
from twin.core.gpu_models import preset
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.core.transformer import Transformer
from twin.estimation.estimator import Estimator


def model(blocks: int = 8) -> Transformer:
    """A Llama-like model with blocks of the 7B size, few of them."""
    return Transformer(f"toy-{blocks}", blocks, 4096, 32, 32, 11008, True, 2048, 32000)


def cluster(size: int, gpus: Sequence[int], gpus_per_node: int = 4) -> Cluster:
    """Domains d0, d1, ... of A100-80G."""
    made = tuple(
        Domain(f"d{k}", preset("a100-80"), gpus[k], gpus_per_node, 2.4e12, 2e11, 3e-6, 8e-6, 5.0)
        for k in range(size)
    )
    return Cluster(made, tuple(tuple(0.0 if i == j else 0.02 for j in range(size)) for i in range(size)))


def links(size: int, rng: np.random.Generator, low_bps: float = 3e8, high_bps: float = 1e10) -> LinkState:
    """Bandwidths log-uniform, one-way latencies 1 to 120 ms, the same both ways."""
    bandwidth = np.exp(rng.uniform(np.log(low_bps), np.log(high_bps), (size, size)))
    latency = rng.uniform(0.001, 0.12, (size, size))
    latency = (latency + latency.T) / 2
    np.fill_diagonal(bandwidth, np.inf)
    np.fill_diagonal(latency, 0.0)
    return LinkState(bandwidth, latency)


def random_case(seed: int, size: int | None = None) -> tuple[Estimator, LinkState]:
    """A cluster of 2 or 3 domains, a job and links."""
    rng = np.random.default_rng(seed)
    size = size or (3 if seed % 4 == 0 else 2)
    gpus = [int(g) for g in rng.choice([2, 4], size)]
    job = JobSpec(model(int(rng.integers(4, 9))), int(rng.choice([8, 16])), (1, 2), zero=1)
    return Estimator(cluster(size, gpus), job), links(size, rng)


def every_cut(layers: int, shape: Shape) -> np.ndarray:
    """All cuts of `layers` layers that leave no stage of the shape empty."""
    depth = [pp for _, pp in shape.inner]
    rows = [
        (0, *inside, layers)
        for inside in combinations(range(1, layers), len(depth) - 1)
        if all(b - a >= pp for a, b, pp in zip((0, *inside), (*inside, layers), depth, strict=True))
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, len(depth) + 1)


def shape_of(plan: Plan) -> Shape:
    return Shape(plan.order, plan.dp, tuple((s.tp, s.pp) for s in plan.shares), plan.micro_batch)


def every_shape(estimator: Estimator, free_gpus: Sequence[int]) -> Iterator[Shape]:
    """All orders of all subsets x dp x every (tp, pp) in every domain x micro-batches."""
    job = estimator.job
    for order in orders(tuple(range(estimator.cluster.size))):
        for dp in range(1, max(free_gpus) + 1):
            sizes = [b for b in job.micro_batches_allowed if job.micro_batches(dp, b)]
            for inner in product(*(choices(estimator, k, dp, free_gpus) for k in order)):
                for micro_batch in sizes:
                    yield Shape(order, dp, inner, micro_batch)


def fastest(estimator: Estimator, links: LinkState, count: int = 3) -> Plan:
    """The best plan over so many domains."""
    free = [domain.gpus for domain in estimator.cluster.domains]
    plans = [plan for plan, _ in best_plans(estimator, links, free_gpus=free, top=200)]
    return next(plan for plan in plans if len(plan.shares) == count)
