"""Iteration time of a pipeline in integer nanoseconds: the referee's recurrences, compiled, over many plans
at once.

Semantics (spec 3.4), identical to `twin.referee`. A stage runs its operations in a fixed order. GPipe: all
forwards, then all backwards. 1F1B: `warmup[i]` forwards, then forward and backward in turn, then the
remaining backwards. An operation starts when its stage is free and its message has arrived. A message
starts when its operation ended and the direction of the link is free, occupies it for `occupancy`, and
arrives `latency` after that. Overlapped: the stage goes on at once. Blocking: it computes again only when
its message has arrived. T = max over stages of (end of the last backward + tail).

The order of evaluation below makes one pass enough. Warm-up depths never grow along the pipeline, so in
round j the forward `warmup[i] + j` needs only forwards of the same or an earlier round (first sweep,
downstream), and then backward j needs only backwards of the same round (second sweep, upstream).
"""

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

Int = NDArray[np.int64]

DEAD = int(np.iinfo(np.int64).max)
"""Iteration time of a plan that never finishes: a used link has no bandwidth."""
LONGEST_NS = 10**14
"""A single operation longer than this (28 hours) counts as never ending; it keeps sums inside 64 bits."""

GPIPE, ONE_F_ONE_B = 0, 1
SCHEDULES = {"gpipe": GPIPE, "1f1b": ONE_F_ONE_B}


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _forward(tf, of, lf, blocking, i, k, last, free, link, arrivals):  # type: ignore[no-untyped-def]
    """Run forward k on stage i; updates the stage's clock, the link's clock and the arrival downstream."""
    start = free[i]
    if i > 0 and arrivals[i, k] > start:
        start = arrivals[i, k]
    end = start + tf[i]
    if i < last:
        departure = end if end > link[i] else link[i]
        link[i] = departure + of[i]
        arrivals[i + 1, k] = link[i] + lf[i]
        if blocking:
            end = arrivals[i + 1, k]
    free[i] = end


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _iterations(tf, tb, of, lf, ob, lb, tail, warmup, m, gpipe, blocking, total, ends):  # type: ignore[no-untyped-def]
    plans, stages = tf.shape
    last = stages - 1
    free = np.zeros(stages, np.int64)
    forward_link = np.zeros(stages, np.int64)
    backward_link = np.zeros(stages, np.int64)
    arrivals = np.zeros((stages, m), np.int64)
    gradients = np.zeros(m, np.int64)
    for p in range(plans):
        if total[p] == DEAD:
            continue
        free[:] = 0
        forward_link[:] = 0
        backward_link[:] = 0
        for i in range(stages):
            for k in range(m if gpipe else warmup[p, i]):
                _forward(tf[p], of[p], lf[p], blocking, i, k, last, free, forward_link, arrivals)
        if gpipe:
            for i in range(last, -1, -1):
                for k in range(m):
                    start = free[i]
                    if i < last and gradients[k] > start:
                        start = gradients[k]
                    end = start + tb[p, i]
                    ends[p, i] = end
                    if i > 0:
                        departure = end if end > backward_link[i] else backward_link[i]
                        backward_link[i] = departure + ob[p, i - 1]
                        gradients[k] = backward_link[i] + lb[p, i - 1]
                        if blocking:
                            end = gradients[k]
                    free[i] = end
        else:
            for j in range(m):
                for i in range(stages):
                    k = warmup[p, i] + j
                    if k < m:
                        _forward(tf[p], of[p], lf[p], blocking, i, k, last, free, forward_link, arrivals)
                arrival = np.int64(0)
                for i in range(last, -1, -1):
                    start = free[i] if free[i] > arrival else arrival
                    end = start + tb[p, i]
                    ends[p, i] = end
                    if i > 0:
                        departure = end if end > backward_link[i] else backward_link[i]
                        backward_link[i] = departure + ob[p, i - 1]
                        arrival = backward_link[i] + lb[p, i - 1]
                        if blocking:
                            end = arrival
                    free[i] = end
        longest = np.int64(0)
        for i in range(stages):
            longest = max(longest, ends[p, i] + tail[p, i])
        total[p] = longest


def warmup_depths(stages: int, micro_batches: int, extra_after: ArrayLike = 0) -> Int:
    """Forwards that each stage runs before its first backward in 1F1B: min(m, S - 1 - i + extra of stage i).

    `extra_after` (S,) or a scalar must not grow along the pipeline.
    """
    depth = stages - 1 - np.arange(stages, dtype=np.int64) + np.asarray(extra_after, dtype=np.int64)
    return np.minimum(depth, micro_batches)


def iteration_ns_batch(
    tf: Int, tb: Int, of: Int, lf: Int, ob: Int, lb: Int, tail: Int, *,
    micro_batches: int, schedule: str, p2p: str, warmup: Int | None = None,
    dead: NDArray[np.bool_] | None = None,
) -> tuple[Int, Int]:  # fmt: skip
    """Iteration times (P,) and ends of the last backward (P, S) of P plans with S stages and m micro-batches.

    `tf`, `tb`, `tail` (P, S): forward, backward and synchronisation-and-update nanoseconds. `of`, `lf`,
    `ob`, `lb` (P, S - 1): occupancy and latency of boundary b, downstream and upstream. `warmup` (S,) or
    (P, S), default the standard depths. Plans marked in `dead` (P,) are not run; their time is `DEAD`.
    """
    plans, stages = tf.shape
    total = np.zeros(plans, np.int64)
    if dead is not None:
        total[dead] = DEAD
    depths = warmup_depths(stages, micro_batches) if warmup is None else warmup
    depths = np.ascontiguousarray(np.broadcast_to(depths, (plans, stages)), dtype=np.int64)
    ends = np.zeros((plans, stages), np.int64)
    arrays = [np.ascontiguousarray(a, dtype=np.int64) for a in (tf, tb, of, lf, ob, lb, tail)]
    _iterations(*arrays, depths, micro_batches, schedule == "gpipe", p2p == "blocking", total, ends)
    return total, ends


def iteration_ns(
    tf: ArrayLike, tb: ArrayLike, of: ArrayLike, lf: ArrayLike, ob: ArrayLike, lb: ArrayLike,
    tail: ArrayLike, *,
    micro_batches: int, schedule: str, p2p: str, warmup: ArrayLike | None = None,
) -> int:  # fmt: skip
    """Iteration time of one plan; arguments as in `iteration_ns_batch` without the plan axis."""
    rows = [np.atleast_1d(np.asarray(a, dtype=np.int64))[None, :] for a in (tf, tb, of, lf, ob, lb, tail)]
    depths = None if warmup is None else np.asarray(warmup, dtype=np.int64)
    total, _ = iteration_ns_batch(
        *rows, micro_batches=micro_batches, schedule=schedule, p2p=p2p, warmup=depths
    )
    return int(total[0])
