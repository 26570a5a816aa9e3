"""Actions as rows of integers for Gymnasium, and back: every row means a legal plan.

A row is [go, knob, then for each of K steps: domain, layers - 1, inner configuration]. Steps run from the
last share of the pipeline to the first, as in `policy.hippo.tables.masks`; entries after the step that places
the first layer are ignored. An illegal entry means the nearest legal one: the next domain in turn, the next
smaller or larger number of layers, the first legal configuration. Rows that obey the masks mean exactly
themselves.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from policy.hippo.decoding.sampling import Actions
from policy.hippo.tables.masks import Masks, legal
from policy.hippo.tables.planning_tables import Codes

Int = NDArray[np.int64]
Bool = NDArray[np.bool_]


def sizes(masks: Masks) -> Int:
    """Returns the number of values of each entry of a row, (2 + 3 K,)."""
    space = masks.space
    step = [len(space.class_of), space.n_layers, space.tp.shape[2]]
    return np.array([2, len(space.tp), *step * len(space.class_of)], dtype=np.int64)


def actions_to_rows(actions: Actions, masks: Masks) -> Int:
    """Returns actions of the agents as rows (B, 2 + 3 K)."""
    steps = actions.padded(len(masks.space.class_of))
    columns = [steps.domain.clamp(min=0), (steps.layers - 1).clamp(min=0), steps.choice]
    placed = np.stack([column.numpy() for column in columns], axis=-1).reshape(len(steps.go), -1)
    return np.concatenate([steps.go.numpy()[:, None], steps.knob.numpy()[:, None], placed], axis=1)


def plans_to_rows(codes: Codes, go: Bool, masks: Masks) -> Int:
    """Returns plans as rows (B, 2 + 3 K); `go` (B,) is hold or move."""
    k = len(masks.space.class_of)
    place = codes.count[:, None] - 1 - np.arange(k)
    at, live = np.maximum(place, 0), place >= 0
    columns = [
        np.where(live, np.take_along_axis(a, at, axis=1) - less, 0)
        for a, less in ((codes.domain, 0), (codes.layers, 1), (codes.choice, 0))
    ]
    placed = np.stack(columns, axis=-1).reshape(len(codes), -1)
    return np.concatenate([go[:, None].astype(np.int64), codes.knob[:, None], placed], axis=1)


def rows_to_plans(row: NDArray[np.integer[Any]], masks: Masks) -> tuple[Codes, Bool, Bool]:
    """Returns the plans of rows (B, 2 + 3 K), whether each is a move, and whether it was legal as given;
    (B,)."""
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
    codes = Codes(knob, count, domain, layers, choice)
    _rows_to_plans(given, masks.knobs(), masks.tables, start, masks.space.n_layers, codes.arrays, meant)
    return codes, given[:, 0] == 1, meant


def entry_masks(may_hold: Bool, masks: Masks) -> Bool:
    """Returns for each entry the values that some legal plan has, (B, sum of `sizes`).

    Entries depend on one another, so this is necessary, not sufficient; `rows_to_plans` corrects the rest.
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
def _rows_to_plans(given, knobs, masks, start, n_layers, plans, meant):  # type: ignore[no-untyped-def]
    """Fills `plans` and `meant` (B,) as `rows_to_plans` returns them; `start` is the code of all domains
    unused."""
    k, domain, layers, choice = len(masks.class_of), plans.domain, plans.layers, plans.choice
    used = np.empty(k, np.bool_)
    for b in range(len(given)):
        c = _nearest_knob(knobs, given[b, 1])
        plans.knob[b], meant[b] = c, c == given[b, 1]
        used[:] = False
        left, behind, codes, step = n_layers, 0, start, 0
        while left > 0:
            s = min(behind, masks.reach.shape[3] - 1)
            wanted = given[b, 2 + 3 * step : 5 + 3 * step]
            for shift in range(k):
                d = (wanted[0] + shift) % k
                z = masks.class_of[d]
                rest = codes - masks.strides[z]
                size = 0
                if not used[d]:
                    size, q = _nearest_share(masks, c, z, rest, left, s, wanted[1] + 1, wanted[2])
                if size > 0:
                    break
            meant[b] = meant[b] and d == wanted[0] and size == wanted[1] + 1 and q == wanted[2]
            # From the last share to the first; reversed below.
            domain[b, step], layers[b, step], choice[b, step] = d, size, q
            used[d], codes = True, rest
            left, behind, step = left - size, behind + masks.stages[c, z, q], step + 1
        plans.shares[b] = step
        for i in range(step // 2):
            for column in (domain, layers, choice):
                column[b, i], column[b, step - 1 - i] = column[b, step - 1 - i], column[b, i]


@njit(inner=True, cache=True)
def _nearest_knob(knobs, wanted):  # type: ignore[no-untyped-def]
    for away in range(len(knobs)):
        for c in (wanted - away, wanted + away):
            if 0 <= c < len(knobs) and knobs[c]:
                return c
    return wanted


@njit(inner=True, cache=True)
def _nearest_share(masks, c, z, rest, left, s, layers, choice):  # type: ignore[no-untyped-def]
    """Returns the legal (layers, inner configuration) nearest to the wanted one, (0, 0) if there is none."""
    if layers <= left and legal(masks, c, z, choice, rest, left, s, layers):
        return layers, choice
    top, near = masks.limit[c, z, :, left, s].max(), min(layers, left)
    for away in range(left):
        for size in (near - away, near + away):
            if size < 1 or size > left or top < size < left:
                continue
            if legal(masks, c, z, choice, rest, left, s, size):
                return size, choice
            for q in range(masks.stages.shape[2]):
                if legal(masks, c, z, q, rest, left, s, size):
                    return size, q
    return 0, 0
