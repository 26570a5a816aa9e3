"""Actions as rows of integers, as Gymnasium wants them, and back: every row means a legal plan.

A row is [go, knob, then for each of K steps: domain, layers - 1, inner configuration]. Steps run from the
last share of the pipeline to the first, as `policy.hippo.masks` builds plans; what stands behind the step
that places the first layer is ignored. An entry that is not open is read as the nearest open one: the next
domain in turn, the next smaller or larger number of layers, the first legal configuration. So an action can
be bad, but never illegal, and a sampler that obeys the masks gets exactly what it asked for.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from policy.hippo.decoding.sampling import Actions
from policy.hippo.tables.masks import Masks, legal
from policy.hippo.tables.planning_tables import Codes

Int = NDArray[np.int64]
Bool = NDArray[np.bool_]


def sizes(masks: Masks) -> Int:
    """Number of values of each entry of a row, (2 + 3 K,)."""
    space = masks.space
    step = [len(space.class_of), space.n_layers, space.tp.shape[2]]
    return np.array([2, len(space.tp), *step * len(space.class_of)], dtype=np.int64)


def rows(actions: Actions, masks: Masks) -> Int:
    """Answers of the agents as rows (B, 2 + 3 K)."""
    steps = actions.padded(len(masks.space.class_of))
    columns = [steps.domain.clamp(min=0), (steps.layers - 1).clamp(min=0), steps.choice]
    placed = np.stack([column.numpy() for column in columns], axis=-1).reshape(len(steps.go), -1)
    return np.concatenate([steps.go.numpy()[:, None], steps.knob.numpy()[:, None], placed], axis=1)


def rows_of(codes: Codes, go: Bool, masks: Masks) -> Int:
    """Plans as rows (B, 2 + 3 K)."""
    k = len(masks.space.class_of)
    place = codes.count[:, None] - 1 - np.arange(k)
    at, live = np.maximum(place, 0), place >= 0
    columns = [
        np.where(live, np.take_along_axis(a, at, axis=1) - less, 0)
        for a, less in ((codes.domain, 0), (codes.layers, 1), (codes.choice, 0))
    ]
    placed = np.stack(columns, axis=-1).reshape(len(codes), -1)
    return np.concatenate([go[:, None].astype(np.int64), codes.knob[:, None], placed], axis=1)


def read(row: NDArray[np.integer[Any]], masks: Masks) -> tuple[Codes, Bool, Bool]:
    """Plans of rows (B, 2 + 3 K), whether each says to move, and whether it was legal as it stood."""
    given = np.ascontiguousarray(row, dtype=np.int64)
    batch, k = len(given), len(masks.space.class_of)
    knob, count = np.empty(batch, np.int64), np.empty(batch, np.int64)
    domain, layers, choice = (
        np.full((batch, k), -1),
        np.zeros((batch, k), np.int64),
        np.zeros((batch, k), np.int64),
    )
    meant = np.ones(batch, np.bool_)
    start = masks.codes(np.zeros((1, k), np.bool_))[0]
    plans = (knob, count, domain, layers, choice)
    _read(given, masks.knobs(), *masks.tables, start, masks.space.n_layers, *plans, meant)
    return Codes(*plans), given[:, 0] == 1, meant


def entry_masks(may_hold: Bool, masks: Masks) -> Bool:
    """For each entry on its own, which values can be part of some legal plan: (B, sum of `sizes`).

    Entries depend on one another, so this is necessary, not sufficient; `read` settles the rest.
    """
    space = masks.space
    k, c = len(space.class_of), len(space.tp)
    none = np.zeros(c, np.int64)
    open_ = masks.steps(np.arange(c), np.zeros((c, k), np.bool_), none + space.n_layers, none)
    some = np.asarray(open_[masks.knobs()].any(0))
    inner = np.asarray((space.pp[masks.knobs()] > 0).any((0, 1)))
    first = [some.any(1), some.any(0), inner]
    later = [np.ones(k, np.bool_), np.ones(space.n_layers, np.bool_), inner]
    fixed = np.concatenate([[True], masks.knobs(), *first, *later * (k - 1)])
    return np.concatenate([may_hold[:, None], np.broadcast_to(fixed, (len(may_hold), len(fixed)))], axis=1)


@njit(cache=True)
def _read(  # type: ignore[no-untyped-def]
    given, knobs, limit, whole, reach, pp, class_of, strides, start, n_layers, knob, count, domain, layers,
    choice, meant,
):  # fmt: skip
    k = len(class_of)
    used = np.empty(k, np.bool_)
    for b in range(len(given)):
        c = _nearest_knob(knobs, given[b, 1])
        knob[b], meant[b] = c, c == given[b, 1]
        used[:] = False
        left, behind, codes, step = n_layers, 0, start, 0
        while left > 0:
            s = min(behind, reach.shape[3] - 1)
            wanted = given[b, 2 + 3 * step : 5 + 3 * step]
            for shift in range(k):
                d = (wanted[0] + shift) % k
                z = class_of[d]
                rest = codes - strides[z]
                size = 0
                if not used[d]:
                    size, q = _nearest_share(
                        limit, whole, reach, pp, c, z, rest, left, s, wanted[1] + 1, wanted[2]
                    )
                if size > 0:
                    break
            meant[b] = meant[b] and d == wanted[0] and size == wanted[1] + 1 and q == wanted[2]
            # Kept from the last share to the first for now; turned round below.
            domain[b, step], layers[b, step], choice[b, step] = d, size, q
            used[d], codes = True, rest
            left, behind, step = left - size, behind + pp[c, z, q], step + 1
        count[b] = step
        for i in range(step // 2):
            for column in (domain, layers, choice):
                column[b, i], column[b, step - 1 - i] = column[b, step - 1 - i], column[b, i]


@njit(cache=True)
def _nearest_knob(knobs, wanted):  # type: ignore[no-untyped-def]
    for away in range(len(knobs)):
        for c in (wanted - away, wanted + away):
            if 0 <= c < len(knobs) and knobs[c]:
                return c
    return wanted


@njit(cache=True)
def _nearest_share(limit, whole, reach, pp, c, z, rest, left, s, layers, choice):  # type: ignore[no-untyped-def]
    """The legal (layers, inner configuration) next to the wanted one, (0, 0) if this class has none."""
    if layers <= left and legal(limit, whole, reach, pp[c, z, choice], c, z, choice, rest, left, s, layers):
        return layers, choice
    top, near = limit[c, z, :, left, s].max(), min(layers, left)
    for away in range(left):
        for size in (near - away, near + away):
            if size < 1 or size > left or top < size < left:
                continue
            if legal(limit, whole, reach, pp[c, z, choice], c, z, choice, rest, left, s, size):
                return size, choice
            for q in range(pp.shape[2]):
                if legal(limit, whole, reach, pp[c, z, q], c, z, q, rest, left, s, size):
                    return size, q
    return 0, 0
