"""Iteration times of plans under many link states at once: one kernel call per plan, exact."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ingest.units import BITS_PER_BYTE, NS_PER_S
from twin import kernel
from twin.costs import open_links
from twin.domain import LinkState
from twin.estimate import Estimator
from twin.kernel import DEAD, LONGEST_NS
from twin.pipeline import Pipeline
from twin.plan import Plan

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """T link states: `bandwidth_bps` and `latency_s`, both (T, K, K)."""

    bandwidth_bps: Float
    latency_s: Float

    @classmethod
    def of(cls, links: Sequence[LinkState]) -> "States":
        """The given states, in order."""
        return cls(np.stack([x.bandwidth_bps for x in links]), np.stack([x.latency_s for x in links]))

    def __len__(self) -> int:
        return len(self.bandwidth_bps)


def iteration_ns(estimator: Estimator, plan: Plan, states: States, slowdown: Float | None = None) -> Int:
    """Iteration time of `plan` in each state (T,), equal to `Estimator.iter_ns`; DEAD where a used link is
    dead.
    """
    pipeline = estimator.pipeline(plan, open_links(estimator.cluster.size), slowdown)
    assert pipeline is not None, "open links are never dead"
    pairs = list(pairwise(plan.order))
    if not pairs:
        return np.repeat(kernel.iteration_ns(pipeline), len(states))
    used = [(i, j) for a, b in pairs for i, j in ((a, b), (b, a))]
    columns = [states.bandwidth_bps[:, i, j] for i, j in used] + [states.latency_s[:, i, j] for i, j in used]
    distinct, back = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    times = np.full(len(distinct), DEAD)
    size = estimator.job.message_bytes(plan.micro_batch) * plan.dp
    with np.errstate(divide="ignore"):
        occupancy = size * BITS_PER_BYTE / distinct[:, : len(used)] * NS_PER_S
    latency = distinct[:, len(used) :] * NS_PER_S
    alive = (occupancy < LONGEST_NS).all(axis=1) & (latency < LONGEST_NS).all(axis=1)
    if alive.any():
        across = np.rint([occupancy[alive], latency[alive]]).astype(np.int64)
        times[alive] = kernel.iteration_ns(_with_links(pipeline, plan, across[0].T, across[1].T))
    found: Int = times[back.reshape(-1)]
    return found


def _with_links(pipeline: Pipeline, plan: Plan, occupancy: Int, latency: Int) -> Pipeline:
    """The pipeline of one plan under T states; rows of `occupancy` and `latency` (2 (n - 1), T) alternate
    between down and up."""
    states = occupancy.shape[1]
    wide = np.cumsum([share.pp for share in plan.shares])[:-1] - 1

    def spread(row: Int) -> Int:
        return np.repeat(row, states, axis=1)

    of, lf, ob, lb = (spread(row) for row in (pipeline.of, pipeline.lf, pipeline.ob, pipeline.lb))
    of[wide], lf[wide], ob[wide], lb[wide] = occupancy[::2], latency[::2], occupancy[1::2], latency[1::2]
    tf, tb, tail = (spread(row) for row in (pipeline.tf, pipeline.tb, pipeline.tail))
    return replace(pipeline, tf=tf, tb=tb, of=of, lf=lf, ob=ob, lb=lb, tail=tail)


def per_second(ns: Int) -> Float:
    """Iterations per second; 0 where nothing runs."""
    rate: Float = np.where(ns == DEAD, 0.0, NS_PER_S / ns.astype(np.float64))
    return rate
