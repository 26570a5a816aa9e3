"""The answer to one case: the estimator asked with a plan whose every stage is named, or a schedule alone.

Every stage becomes a domain of its own to the estimator, so any cut is possible; boundaries inside a
physical domain get the fabric between the two stages' GPUs, packed in rank order, as their link. Stages that
share a physical domain also share its nodes, which the GPU numbers say.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.errors import InfeasibleError
from ingest.units import GB, NS_PER_S, to_s, transmission_s
from twin import cycle, energy, kernel, tied
from twin.boundaries import shared_boundary
from twin.columns import BadCellError
from twin.compute import ComputeModel, layer_times
from twin.domain import Cluster, Domain, LinkState
from twin.estimate import Estimator
from twin.kernel import DEAD, LONGEST_NS
from twin.memory import WORKSPACE_BYTES, needed_bytes
from twin.pipeline import Int, Pipeline, warmup_depths
from twin.plan import Plan, Share
from twin.resolve import USD_PER_GB, Case, Times
from twin.uncertainty import MODELS, SCHEDULE, Residuals


@dataclass(frozen=True, slots=True)
class Answer:
    """What one iteration of a case costs; None where the case does not say enough (no model, no message
    size).

    `peak_mem_bytes` is what the allocator holds at its peak (`max_memory_allocated`); `fits` compares it,
    with a margin and the platform's constant for context, buffers and fragmentation, to the GPU's memory.
    """

    case: str
    iter_s: float
    iter_s_low: float
    iter_s_high: float
    peak_mem_bytes: int | None
    fits: bool | None
    utilisation: float
    mfu: float | None
    bubble_s: float
    exposed_comm_s: float
    wan_bytes: float | None
    usd: float | None
    energy_j: float
    binding: str
    basis: str

    def to_json(self) -> dict[str, Any]:
        """Field by field."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """An answer and what it was made of: seconds per stage (S,) and per boundary (S - 1,)."""

    answer: Answer
    timing: Pipeline
    peak_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Constants:
    """What an answer rests on: the compute model, the spread of its errors, and fitted properties of a "
    "site."""

    compute: ComputeModel = layer_times
    residuals: Residuals = MODELS
    source: str = "built-in constants"
    site: Callable[[Domain, bool], Domain] | None = None


BUILT_IN = Constants()


def answer(case: Case, constants: Constants = BUILT_IN) -> Answer:
    """Answer `case`.

    Raises:
        BadCellError: the case cannot run at all, for a reason found only now.
    """
    return explain(case, constants).answer


def explain(case: Case, constants: Constants = BUILT_IN) -> Explained:
    """Answer `case` and keep the timing it came from."""
    if constants.site is not None:
        said = "intra_node_bps" not in case.defaults or case.tp > case.site.gpus_per_node
        case = replace(case, site=constants.site(case.site, said))
    modelled = None if case.model is None else _modelled(case, constants.compute)
    timing, update = _timing(case, modelled)
    total = int(kernel.iteration_ns(timing)[0])
    silent = replace(
        timing, of=timing.of * 0, lf=timing.lf * 0, ob=timing.ob * 0, lb=timing.lb * 0, tail=update
    )
    alone = int(kernel.iteration_ns(silent)[0])
    peak = () if modelled is None else modelled.peak_bytes
    return Explained(_describe(case, constants, timing, silent, total, alone, peak), timing, peak)


@dataclass(frozen=True, slots=True, eq=False)
class _Modelled:
    """What the cost models say: the pipeline's timing, its updates (S, 1) ns, and memory per stage."""

    timing: Pipeline
    update: Int
    peak_bytes: tuple[int, ...]


def plan_of(case: Case) -> tuple[Estimator, Plan, LinkState]:
    """The case as the estimator takes it: one domain a stage, one link a boundary."""
    return _estimator(case, layer_times)


def _estimator(case: Case, compute: ComputeModel) -> tuple[Estimator, Plan, LinkState]:
    assert case.job is not None
    width = case.tp * case.dp
    placed: dict[int, int] = {}
    shares, first = [], []
    for i, domain in enumerate(case.domains):
        start = placed.get(domain, 0)
        placed[domain] = start + width
        first.append(start)
        shares.append(Share(i, case.counts[i], case.tp, 1, tuple(range(start, start + width))))
    stages = len(shares)
    prices = tuple((0.0,) * stages for _ in range(stages))
    estimator = Estimator(Cluster((case.site,) * stages, prices), case.job, compute=compute)
    job = case.job
    plan = Plan(
        tuple(shares), case.dp, case.micro_batch, case.micro_batches, case.schedule, 0, case.p2p,
        job.recompute, job.zero, chunks=case.chunks,
    )  # fmt: skip
    return estimator, plan, _links(case, first, width)


def _links(case: Case, first: list[int], width: int) -> LinkState:
    """Rate and latency of every boundary; inside a domain the ports of the stage's GPUs together."""
    stages, site, node = len(first), case.site, case.site.gpus_per_node
    bandwidth, latency = np.full((stages, stages), np.inf), np.zeros((stages, stages))
    joints = [(i, i + 1, wan) for i, wan in enumerate(case.wan)]
    if stages > 2:
        joints.append((stages - 1, 0, case.around))
    for i, j, wan in joints:
        crosses = any((first[i] + r) // node != (first[j] + r) // node for r in range(width))
        if wan is not None:
            bps, delay = wan
        elif crosses:
            bps, delay = width * site.inter_node_bps, site.inter_node_latency_s
        else:
            bps, delay = width * site.intra_node_bps, site.intra_node_latency_s
        bandwidth[i, j] = bandwidth[j, i] = bps
        latency[i, j] = latency[j, i] = delay
    return LinkState(bandwidth, latency)


def _modelled(case: Case, compute: ComputeModel) -> _Modelled:
    try:
        estimator, plan, links = _estimator(case, compute)
    except (ValueError, InfeasibleError) as error:
        raise BadCellError("", str(error)) from error
    timing = estimator.pipeline(plan, links)
    if timing is None:
        raise BadCellError("wan_bps", "one message takes longer than a day; raise the bandwidth")
    costs = estimator.stage_costs(plan)
    return _Modelled(timing, _ns(costs.update_s), estimator.peak_mem_bytes(plan))


def _timing(case: Case, modelled: _Modelled | None) -> tuple[Pipeline, Int]:
    """The pipeline with every measured piece in place, and the updates that end it (S, 1).

    With measured stage times the answer is the schedule's makespan: boundaries inside a domain cost
    nothing and nothing follows the last backward.
    """
    measured, nothing = case.measured, np.zeros((case.pp, 1), np.int64)
    timing = _makespan(case) if modelled is None or measured.schedule_only else modelled.timing
    pieces: dict[str, Any] = {}
    if measured.forward_s is not None:
        pieces["tf"] = _of_chunks(case, _measured_ns("stage_forward_s", measured.forward_s))
    if measured.backward_s is not None:
        pieces["tb"] = _of_chunks(case, _measured_ns("stage_backward_s", measured.backward_s))
        if timing.tw is not None:
            pieces["tw"] = np.rint(pieces["tb"] * _weight_share(timing)).astype(np.int64)
    if measured.transfer_s is not None:
        occupied = _measured_ns("boundary_transfer_s", measured.transfer_s)
        pieces["of"] = pieces["ob"] = _crossing(case, occupied, timing.of)
    if measured.latency_s is not None:
        delay = _measured_ns("boundary_latency_s", measured.latency_s)
        pieces["lf"] = pieces["lb"] = _crossing(case, delay, timing.lf)
    if case.chunks > 1:
        pieces["shared"] = shared_boundary(case.domains)
    update = nothing if modelled is None or measured.schedule_only else modelled.update
    return replace(timing, **pieces), update


def _makespan(case: Case) -> Pipeline:
    """A pipeline that consists of its wide-area messages alone."""
    size = 0 if case.message_bytes is None else case.message_bytes * case.dp
    joints = (*case.wan, case.around) if case.chunks > 1 else case.wan
    across = [(0.0, 0.0) if wan is None else (transmission_s(size, wan[0]), wan[1]) for wan in joints]
    occupied = _measured_ns("wan_bps", tuple(transfer for transfer, _ in across))
    delay = _measured_ns("wan_latency_s", tuple(latency for _, latency in across))
    zero, parts = np.zeros((case.pp, 1), np.int64), np.zeros((case.pp * case.chunks, 1), np.int64)
    return Pipeline(
        parts, parts, occupied, delay, occupied, delay, zero, warmup_depths(case.pp, case.micro_batches),
        case.micro_batches, case.schedule, case.p2p, case.chunks,
        tw=zero if case.schedule == "crosspipe" else None,
    )  # fmt: skip


def _of_chunks(case: Case, stages: Int) -> Int:
    """Chunks of equal length (v S, 1) of stages (S, 1)."""
    return np.tile(np.rint(stages / case.chunks).astype(np.int64), (case.chunks, 1))


def _weight_share(timing: Pipeline) -> NDArray[np.float64]:
    """Weight gradient over backward (S, 1); half where no model says."""
    assert timing.tw is not None
    share: NDArray[np.float64] = np.where(timing.tb > 0, timing.tw / np.maximum(timing.tb, 1), 0.5)
    return share


def _crossing(case: Case, measured: Int, otherwise: Int) -> Int:
    """Measured boundaries; a 0 where there is no WAN leaves the boundary as it is. The way back from the
    last stage to the first is as slow as the slowest boundary between domains."""
    joints = (*case.wan, case.around) if case.chunks > 1 else case.wan
    if case.chunks > 1:
        measured = np.vstack([measured, [[0 if case.around is None else int(measured.max())]]])
    kept = (measured == 0) & np.array([[wan is None] for wan in joints], dtype=np.bool_).reshape(-1, 1)
    chosen: Int = np.where(kept, otherwise, measured)
    return chosen


def _ns(seconds: Any) -> Int:
    rounded: Int = np.rint(np.asarray(seconds, np.float64) * NS_PER_S).astype(np.int64)
    return rounded


def _measured_ns(column: str, seconds: Times) -> Int:
    if max(seconds, default=0.0) * NS_PER_S >= LONGEST_NS:
        raise BadCellError(column, "a message or a stage would take longer than a day; times are in seconds")
    return _ns(seconds).reshape(-1, 1)


def _describe(
    case: Case, constants: Constants, timing: Pipeline, silent: Pipeline, total: int, alone: int,
    peak: tuple[int, ...],
) -> Answer:  # fmt: skip
    assert total != DEAD
    iter_s = to_s(total)
    busy_s = (timing.busy_ns + silent.tail)[:, 0] / NS_PER_S
    by_domain = [
        float(np.mean([b for b, k in zip(busy_s, case.domains, strict=True) if k == domain])) / iter_s
        for domain in dict.fromkeys(case.domains)
    ]
    residuals = SCHEDULE if case.measured.schedule_only else constants.residuals
    low, high = residuals.interval(iter_s)
    wan_bytes = _wan_bytes(case)
    gpu = case.site.gpu
    largest = max(peak) - WORKSPACE_BYTES if peak else None
    return Answer(
        case=case.label,
        iter_s=iter_s,
        iter_s_low=low,
        iter_s_high=high,
        peak_mem_bytes=largest,
        fits=None if largest is None else needed_bytes(largest) <= gpu.memory_bytes,
        utilisation=float(np.mean(by_domain)),
        mfu=_mfu(case, iter_s),
        bubble_s=to_s(alone) - float(np.mean(busy_s)),
        exposed_comm_s=to_s(total - alone),
        wan_bytes=wan_bytes,
        usd=None if wan_bytes is None else wan_bytes / GB * USD_PER_GB,
        energy_j=sum(energy.energy_j(gpu, case.tp * case.dp, float(busy), iter_s) for busy in busy_s),
        binding=_binding(case, timing),
        basis="measured stage times" if case.measured.schedule_only else constants.source,
    )


def _mfu(case: Case, iter_s: float) -> float | None:
    """Model FLOPs (no recompute) over what the GPUs could do at most."""
    if case.model is None:
        return None
    done = case.model.flops_per_sequence * case.global_batch
    return float(done / (iter_s * case.gpus * case.site.gpu.peak_flops))


def _wan_bytes(case: Case) -> float | None:
    """Bytes between domains in one iteration, both directions: 2 A dp m a boundary, once a chunk, and once
    less from the last stage back to the first; and what these two exchange for a tied embedding."""
    across = case.chunks * sum(wan is not None for wan in case.wan)
    across += (case.chunks - 1) * (case.around is not None)
    if not across:
        return 0.0
    if case.message_bytes is None:
        return None
    tied_bytes = 0
    if case.job is not None and case.around is not None and not case.measured.schedule_only:
        tied_bytes = tied.STEPS * tied.step_bytes(case.job, case.pp)
    return 2.0 * case.dp * (across * case.message_bytes * case.micro_batches + tied_bytes)


def _binding(case: Case, timing: Pipeline) -> str:
    found = cycle.binding(timing)
    first, last = case.domains[found.first], case.domains[found.last]
    return f"{found} (d{first})" if first == last else f"{found} (d{first}-d{last})"
