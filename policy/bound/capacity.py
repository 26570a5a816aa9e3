"""The capacity bound: the tokens that the GPUs of a cluster train if all of them always compute.

No links, no bubbles, no collectives between replicas, any fraction of any layer on any GPU. With c[k, l] the
least GPU seconds that domain k needs for layer l and a token (over its tensor-parallel sizes and the
micro-batches that the job allows) and G[k] GPUs, R tokens a second need x[k, l] with sum_k x[k, l] >= R and
sum_l c[k, l] x[k, l] <= G[k]. For any weights w >= 0 of the layers that sum to 1,

    R <= sum_k G[k] max_l (w[l] / c[k, l]),

since R = sum_l w[l] R <= sum_kl w[l] x[k, l]. The weights tried are each domain's shares of time, and the
least sum is taken: with equal GPUs everywhere that is exact, G / sum_l c[l].
"""

from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from twin.estimation.estimator import Estimator

Float = NDArray[np.float64]


def tokens_per_s(estimator: Estimator) -> float:
    """Returns the most tokens per second that any plan of the job trains on this cluster, under any links."""
    costs = np.stack([_gpu_s(estimator, k) for k in range(estimator.cluster.size)])
    gpus = np.array([domain.gpus for domain in estimator.cluster.domains], dtype=np.float64)
    weights = costs / costs.sum(axis=1, keepdims=True)
    return min(float(gpus @ (w / costs).max(axis=1)) for w in weights)


def _gpu_s(estimator: Estimator, domain: int) -> Float:
    """Returns the least GPU seconds of each layer per token (N,) in a domain."""
    job, where = estimator.job, estimator.cluster.domains[domain]
    found = []
    modes = [replace(job.tensor_mode, expert_parallel=ep) for ep in job.ep]
    for tp in {tp for tp, _ in estimator.local_choices(domain, 1)}:
        for size, mode in product(job.micro_batches_allowed, modes):
            times = estimator.compute(job.model, where, tp, size, job.recompute, mode=mode)
            gpus = tp * job.context_parallel
            found.append(gpus * (times.forward_s + times.backward_s) / (size * job.model.seq))
    least: Float = np.minimum.reduce(found)
    return least
