"""The terms that a boundary between two stages adds to an iteration: a new one is an edit here.

The estimator (`twin.costs.stage_boundaries`), the engines (`twin.engines.plan_timing`) and the bulk timers
(`twin.estimation.link_state_times`, `twin.estimation.mixed_shapes_kernel`, `policy.search.batch_scoring`,
`policy.search.parallelism_options`, `policy.hippo.tables.option_costs`) all call `terms` and `ends_ns`, which
are plain arithmetic: for arrays as they stand, for scalars and compiled callers as `terms_compiled` and
`ends_ns_compiled`.
"""

from typing import Any, NamedTuple

import numpy as np

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from twin.core.domain import Domain
from twin.core.job import JobSpec
from twin.costs import tied_embeddings
from twin.pipeline.kernel import LONGEST_NS


class Terms(NamedTuple):
    """One direction of a boundary, nanoseconds rounded once; `LONGEST_NS` or more where the link is dead.

    `occupancy`: of one activation or gradient; `latency`: one way; `tied`: one step of the exchange for
    a tied embedding between the ends of the pipeline, 0 where nothing is tied.
    """

    occupancy: Any
    latency: Any
    tied: Any


def terms(message_bytes: Any, tied_bytes: Any, rate_bps: Any, latency_ns: Any) -> Terms:
    """Terms of a direction that carries `message_bytes` a message and `tied_bytes` a step of the exchange.

    Scalars or arrays that broadcast. Arrays divide by zero on dead links: `np.errstate` is the caller's.
    """
    occupancy = np.rint(np.fmin(message_bytes * BITS_PER_BYTE / rate_bps * NS_PER_S, LONGEST_NS))
    exchange = np.rint(np.fmin(tied_bytes * BITS_PER_BYTE / rate_bps * NS_PER_S, LONGEST_NS))
    latency = np.rint(latency_ns)
    return Terms(occupancy, latency, (exchange + latency) * (tied_bytes > 0))


def ends_ns(there: Any, back: Any) -> Any:
    """Nanoseconds that the first and the last stage add after their last backward, from `Terms.tied` of both
    directions between them."""
    return tied_embeddings.STEPS * np.maximum(there, back)


terms_compiled = njit(cache=True, nogil=True, error_model="numpy")(terms)
ends_ns_compiled = njit(cache=True, nogil=True)(ends_ns)


def fabric_terms(domain: Domain, between_nodes: bool, message_bytes: float, tied_bytes: float = 0.0) -> Terms:
    """Terms of a boundary inside `domain`, the bytes those of one tensor rank, which has its own port."""
    bps = domain.inter_node_bps if between_nodes else domain.intra_node_bps
    latency_s = domain.inter_node_latency_s if between_nodes else domain.intra_node_latency_s
    found: Terms = terms_compiled(float(message_bytes), float(tied_bytes), float(bps), latency_s * NS_PER_S)
    return found


def wide_area_bytes(job: JobSpec, dp: int, micro_batch: int, stages: int) -> tuple[int, int]:
    """Bytes of a message, and of a step of the exchange for a tied embedding, between two domains: those of
    the `dp` pipelines of `stages` stages together."""
    return job.message_bytes(micro_batch) * dp, tied_embeddings.step_bytes(job, stages) * dp
