"""Synchronisation of replicas of the whole model, one a domain: time, bytes, memory, and the loss of training
quality with rare exchanges.

The exchange is a ring all-reduce over the R domains in the order of the shares: 2 (R - 1) steps, each as
slow as the slowest link of the ring, x/R bytes of x = parameters * bytes a step. All GPUs of a domain share
its link. Every H-th iteration has one; here each iteration carries 1/H of it, so that an iteration is the
unit of progress for all plans. That is exact over whole rounds and pessimistic when a link dies: the twin
stalls at once, local SGD at the end of its round.

Quality. After the same number of tokens local SGD has a higher loss; eta is the number of tokens of
synchronous training with the same effect, relative to its own, and the world counts those
(`Estimator.tokens`).

* The excess at H = 30 is from Charles et al. 2025 (arXiv:2503.09799), tables 4 and 5: -0.19 % with 2 replicas
  and +0.29 % with 4 at 10 B parameters, +1.1 % with 8 at 2.4 B, the largest sizes tried; between them it is
  interpolated in log2 R, beyond 8 extrapolated.
* For H: perplexity rose by 2.9 % from H = 50 to 1,000 with 8 replicas of a 150 M model (Douillard et al.
  2023, arXiv:2311.08105, section 3.3): 0.022 nats a decade on a loss of 2.7, 0.81 %. Larger models suffer
  less (Charles et al., figure 9, no numbers); the excess of table 4 shrinks from 2.3 % at 180 M to 1.1 % at
  2.4 B with 8 replicas, and the slope is taken to shrink alike, to 0.38 % a decade.
* Loss into tokens: L(N) = 18.129 N^-0.0953 (Charles et al., table 7), of which 410.7 / D^0.28 depends on the
  tokens (Hoffmann et al. 2022, appendix D.3) at D = 20 N.

Fits beyond 10 B are extrapolations; eta never exceeds 1, and synchronous training has eta = 1.
"""

from functools import lru_cache
from itertools import pairwise
from math import log2, log10

import numpy as np

from ingest.core.units import to_ns, to_s, transmission_s
from twin.core.domain import Cluster, LinkState, Matrix, Pair
from twin.core.job import JobSpec
from twin.core.layer_split import stage_layers
from twin.core.plan import Plan, Sync
from twin.costs.stage_boundaries import route_bps

EXCESS_AT_30 = ((1, -0.0019), (2, -0.0019), (4, 0.0029), (8, 0.011))
"""(replicas, relative excess of the loss) at H = 30."""
EXCESS_PER_DECADE = 0.0038
"""Relative excess of the loss for each tenfold H."""
LOSS, LOSS_EXPONENT = 18.129, 0.0953
DATA, DATA_EXPONENT = 410.7, 0.28
TOKENS_PER_PARAMETER = 20.0
OUTER_BYTES = 8.0
"""Outer state of local SGD per parameter: the last common weights and a momentum, fp32, sharded over dp."""


def ring(plan: Plan) -> tuple[Pair, ...]:
    """Directed links of the ring; none with a single replica."""
    if plan.replicas < 2:
        return ()
    return tuple(pairwise((*plan.order, plan.order[0])))


def step_bytes(job: JobSpec, plan: Plan) -> float:
    """Bytes that a domain sends in one of the 2 (R - 1) steps of an exchange."""
    assert plan.sync is not None
    return job.model.trained_parameters * plan.sync.bytes_per_parameter / plan.replicas


def steps(plan: Plan) -> float:
    """Steps of exchanges that fall on one iteration: 2 (R - 1) / H."""
    assert plan.sync is not None
    return 2.0 * (plan.replicas - 1) / plan.sync.inner_steps


def exchange_s(cluster: Cluster, job: JobSpec, plan: Plan, links: LinkState) -> float:
    """Seconds of exchange that fall on one iteration; infinite over a dead link."""
    size, slowest = step_bytes(job, plan), 0.0
    for i, j in ring(plan):
        route = plan.route(i, j)
        latency_s = to_s(
            sum(to_ns(float(links.latency_s[link])) for link in route)
        )  # rounded as in the world
        slowest = max(slowest, latency_s + transmission_s(size, route_bps(cluster, links, route)))
    return slowest * steps(plan) if slowest > 0 else 0.0


def ring_s(parameters: float, replicas: int, inner_steps: int, bps: float, latency_s: float) -> float:
    """Seconds of exchange that fall on one iteration where all links of the ring are alike, 4 bytes a
    parameter (`Sync.bytes_per_parameter`)."""
    if replicas == 1:
        return 0.0
    one_s = latency_s + transmission_s(parameters * Sync().bytes_per_parameter / replicas, bps)
    return one_s * 2.0 * (replicas - 1) / inner_steps


def wan_bytes(job: JobSpec, plan: Plan, domains: int) -> Matrix:
    """Bytes per directed link (K, K) that fall on one iteration."""
    sent = np.zeros((domains, domains))
    for i, j in ring(plan):
        for link in plan.route(i, j):
            sent[link] += step_bytes(job, plan) * steps(plan)
    return sent


def outer_bytes(job: JobSpec, plan: Plan, number: int) -> tuple[int, ...]:
    """Outer state on a GPU of each stage of a replica; nothing where replicas are synchronous."""
    assert plan.sync is not None
    share = plan.shares[number]
    each = OUTER_BYTES / (plan.dp * share.tp) if plan.sync.inner_steps > 1 else 0.0
    bounds = np.cumsum([0, *stage_layers(share.pp, share.layers, True, True)])
    held = np.cumsum([0.0] + [float(layer.trained) for layer in job.model.layers()])
    return tuple(int(x) for x in np.diff(held[bounds]) * each)


@lru_cache(maxsize=1024)
def token_efficiency(parameters: int, inner_steps: int, replicas: int) -> float:
    """Tokens of synchronous training that a token of local SGD is worth: eta in (0, 1]."""
    if inner_steps == 1 or replicas == 1:
        return 1.0
    excess = _excess_at_30(replicas) + EXCESS_PER_DECADE * log10(inner_steps / 30)
    loss = LOSS * parameters**-LOSS_EXPONENT
    data = DATA / (TOKENS_PER_PARAMETER * parameters) ** DATA_EXPONENT
    return float((1.0 + max(0.0, excess) * loss / data) ** (-1.0 / DATA_EXPONENT))


def _excess_at_30(replicas: int) -> float:
    """Linear in log2 of the replicas, the last slope held."""
    for (low, below), (high, above) in pairwise(EXCESS_AT_30):
        if replicas <= high or high == EXCESS_AT_30[-1][0]:
            return below + (above - below) * log2(replicas / low) / log2(high / low)
    raise AssertionError("the last segment covers the rest")
