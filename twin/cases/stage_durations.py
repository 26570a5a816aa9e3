"""Durations of a case, from the estimator or from measured stage times.

For the estimator every stage is a domain of its own, so that any cut is possible; boundaries inside a
physical domain have the fabric between the two stages' GPUs, packed in rank order, as their link. Stages of
one physical domain share its nodes by their GPU numbers.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InfeasibleError
from ingest.core.units import NS_PER_S, transmission_s
from twin.cases.case import Case, Times
from twin.cases.column_definitions import BadCellError
from twin.core.domain import Cluster, Domain, LinkState
from twin.core.plan import Plan, Share
from twin.core.schedules import SPLIT
from twin.costs.layer_compute import ComputeModel
from twin.costs.replica_sync import OUTER_BYTES
from twin.costs.stage_boundaries import shared_boundary
from twin.estimation.estimator import Estimator
from twin.pipeline import kernel
from twin.pipeline.fixed_order_kernel import unequal_ns
from twin.pipeline.kernel import LONGEST_NS
from twin.pipeline.pipeline import Int, Pipeline, warmup_depths

LONGEST_ITERATION_S = 3.2e9


@dataclass(frozen=True, slots=True, eq=False)
class Modelled:
    """Results of the cost models: durations, updates (S, 1) in ns, and peak bytes per stage (S,)."""

    timing: Pipeline
    update: Int
    peak_bytes: tuple[int, ...]

    def with_update(self, seconds: NDArray[np.float64]) -> "Modelled":
        """The same with updates of so many seconds (S,)."""
        update = _ns(seconds).reshape(-1, 1)
        timing = replace(self.timing, tail=self.timing.tail - self.update + update)
        return replace(self, timing=timing, update=update)


def _plan_of(case: Case, compute: ComputeModel) -> tuple[Estimator, Plan, LinkState]:
    """Estimator, plan and links of a case: one domain a stage, one link a boundary."""
    assert case.job is not None
    width = case.tp * case.ranks
    placed: dict[tuple[int, Domain], int] = {}
    shares, first = [], []
    for i, where in enumerate(zip(case.domains, case.of_stages, strict=True)):
        start = placed.get(where, 0)
        placed[where] = start + width
        first.append(start)
        shares.append(Share(i, case.counts[i], case.tp, 1, tuple(range(start, start + width))))
    stages = len(shares)
    prices = tuple((0.0,) * stages for _ in range(stages))
    estimator = Estimator(Cluster(case.of_stages, prices), case.job, compute=compute)
    job = case.job
    plan = Plan(
        tuple(shares), case.ranks, case.micro_batch, case.micro_batches, case.schedule, 0, case.p2p,
        job.recompute, job.zero, chunks=case.chunks, sequence_parallel=job.sequence_parallel,
        context_parallel=job.context_parallel, ep=case.ep,
    )  # fmt: skip
    return estimator, plan, _links(case, first, width)


def _links(case: Case, first: list[int], width: int) -> LinkState:
    """Rate and latency of every boundary; inside a domain the ports of the stage's GPUs together, of the
    slower of the two. Nodes hold GPUs of one model."""
    stages = len(first)
    bandwidth, latency = np.full((stages, stages), np.inf), np.zeros((stages, stages))
    joints = [(i, i + 1, wan) for i, wan in enumerate(case.wan)]
    if stages > 2:
        joints.append((stages - 1, 0, case.around))
    for i, j, wan in joints:
        ends, node = (case.of_stages[i], case.of_stages[j]), case.of_stages[i].gpus_per_node
        crosses = ends[0] != ends[1] or any(
            (first[i] + r) // node != (first[j] + r) // node for r in range(width)
        )
        if wan is not None:
            bps, delay = wan
        elif crosses:
            bps = width * min(site.inter_node_bps for site in ends)
            delay = max(site.inter_node_latency_s for site in ends)
        else:
            bps, delay = width * ends[0].intra_node_bps, ends[0].intra_node_latency_s
        bandwidth[i, j] = bandwidth[j, i] = bps
        latency[i, j] = latency[j, i] = delay
    return LinkState(bandwidth, latency)


def modelled(case: Case, compute: ComputeModel) -> Modelled:
    """Results of the cost models for a case with a model.

    Raises:
        BadCellError: the case cannot run at all, for a reason found only now.
    """
    try:
        estimator, plan, links = _plan_of(case, compute)
    except (ValueError, InfeasibleError) as error:
        raise BadCellError("", str(error)) from error
    timing = estimator.pipeline(plan, links)
    if timing is None:
        raise BadCellError("wan_bps", "one message takes longer than a day; raise the bandwidth")
    costs = estimator.stage_costs(plan)
    return Modelled(timing, _ns(costs.update_s), estimator.peak_mem_bytes(plan))


def peak_bytes(case: Case, modelled: Modelled) -> tuple[int, ...]:
    """Peak bytes per stage (S,), the outer state of local SGD among them."""
    if case.replicas.inner_steps == 1 or case.model is None:
        return modelled.peak_bytes
    held = np.cumsum([0.0, *(float(layer.trained) for layer in case.model.layers())])
    parameters = np.diff(held[np.cumsum([0, *case.counts])]) / (case.tp * case.ranks)
    return tuple(
        peak + int(own * OUTER_BYTES) for peak, own in zip(modelled.peak_bytes, parameters, strict=True)
    )


def durations(case: Case, modelled: Modelled | None) -> tuple[Pipeline, Int]:
    """Durations with measured times in place of modelled ones, and the updates that end them (S, 1) in ns.

    With measured stage times boundaries inside a domain cost nothing. What follows the last backward,
    reduction and update, is measured, else modelled, else nothing.
    """
    measured = case.measured
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
    if case.returns:
        pieces["shared"] = shared_boundary(case.domains)
    pieces["tail"], update = _ends(case, modelled)
    timing = replace(timing, **pieces)
    _check_length(timing)
    return timing, update


def _ends(case: Case, modelled: Modelled | None) -> tuple[Int, Int]:
    """What follows the last backward, and its part that is the update (S, 1) in ns."""
    measured, nothing = case.measured, np.zeros((case.pp, 1), np.int64)
    update = nothing if modelled is None else modelled.update
    reduction = nothing if modelled is None else modelled.timing.tail - update
    if measured.reduction_s is not None:
        reduction = _measured_ns("reduction_s", measured.reduction_s)
    if measured.update_s is not None:
        update = _measured_ns("update_s", measured.update_s)
    return reduction + update, update


def iteration_ns(case: Case, timing: Pipeline) -> int:
    """Iteration time of the case's pipeline; its micro-batches differ where their times were measured."""
    each = case.measured.forward_each_s, case.measured.backward_each_s
    if each == (None, None):
        return int(kernel.iteration_ns(timing)[0])
    forward, backward = (
        np.repeat(mean, timing.micro_batches, axis=1) if times is None
        else np.tile(np.rint(_ns(times) / case.chunks).astype(np.int64), (case.chunks, 1))
        for times, mean in zip(each, (timing.tf, timing.tb), strict=True)
    )  # fmt: skip
    return unequal_ns(timing, forward, backward)


def _check_length(timing: Pipeline) -> None:
    """Sums of an iteration stay inside 64 bits, even were its operations to run one after the other."""
    rows = (timing.tf, timing.tb, timing.of, timing.lf, timing.ob, timing.lb, timing.tail)
    one_s = sum(float(np.sum(row, dtype=np.float64)) for row in rows) / NS_PER_S
    if one_s * timing.micro_batches > LONGEST_ITERATION_S:
        raise BadCellError(
            "micro_batches", f"{timing.micro_batches:,} passes of {one_s:,.0f} s through the stages: times "
            "are in seconds, and an iteration takes no century"
        )  # fmt: skip


def _makespan(case: Case) -> Pipeline:
    """Durations of wide-area messages alone, all others 0."""
    size = 0 if case.message_bytes is None else case.message_bytes * case.dp
    joints = (*case.wan, case.around) if case.returns else case.wan
    across = [(0.0, 0.0) if wan is None else (transmission_s(size, wan[0]), wan[1]) for wan in joints]
    occupied = _measured_ns("wan_bps", tuple(transfer for transfer, _ in across))
    delay = _measured_ns("wan_latency_s", tuple(latency for _, latency in across))
    zero, parts = np.zeros((case.pp, 1), np.int64), np.zeros((case.pp * case.chunks, 1), np.int64)
    return Pipeline(
        parts, parts, occupied, delay, occupied, delay, zero, warmup_depths(case.pp, case.micro_batches),
        case.micro_batches, case.schedule, case.p2p, case.chunks,
        tw=parts if case.schedule in SPLIT else None,
    )  # fmt: skip


def _of_chunks(case: Case, stages: Int) -> Int:
    """Chunks of equal length (v S, 1) of stages (S, 1)."""
    return np.tile(np.rint(stages / case.chunks).astype(np.int64), (case.chunks, 1))


def _weight_share(timing: Pipeline) -> NDArray[np.float64]:
    """Weight gradient over backward (v S, 1); half without a model."""
    assert timing.tw is not None
    share: NDArray[np.float64] = np.where(timing.tb > 0, timing.tw / np.maximum(timing.tb, 1), 0.5)
    return share


def _crossing(case: Case, measured: Int, otherwise: Int) -> Int:
    """Measured boundaries; a 0 where there is no WAN leaves the boundary as it is. The way back from the
    last stage to the first is as slow as the slowest boundary between domains."""
    joints = (*case.wan, case.around) if case.returns else case.wan
    if case.returns:
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
