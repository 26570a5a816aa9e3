"""Exact masks of the steps that build a plan from its last share to its first: none leads to a dead end.

Under 1F1B stage i of p holds min(m, p - i) micro-batches, so the memory of a share depends on the stages
behind it: from the end it is known at each step, and the layers left are a prefix [0, n).

`reach[c, code, n, s]`: the prefix [0, n) fits under knob c (dp and micro-batch size) into the domains that
`code` counts, with s stages behind it (dynamic programming over n; exact). Domains with equal choices form a
class, and `code` counts unused domains by class. Where there are too many classes, similar ones are merged
and only choices that every member has are offered (safe, not complete).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from twin.core.layer_split import stage_start_compiled

Int = NDArray[np.int64]
Bool = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Space:
    """All choices before any layer is placed.

    C knobs, Z classes of domains, Q inner configurations at most, F = in-flight counts from 1 to F.
    `capacity[c, z, q, f-1, e, h]` is the largest number of layers that one stage holds with f micro-batches
    in flight; e and h are 1 for a stage with the embedding or the head among its layers. 0: fits nothing.
    """

    n_layers: int
    micro_batches: Int  # (C,)
    class_of: Int  # (K,) class of each domain
    tp: Int  # (C, Z, Q), 0 where there is no choice
    pp: Int  # (C, Z, Q)
    capacity: Int  # (C, Z, Q, F, 2, 2)
    all_in_flight: bool  # GPipe: every stage holds all micro-batches


class MaskTables(NamedTuple):
    """The masks as arrays for compiled code; S counts stages behind, up to those that change a mask."""

    limit: Int  # (C, Z, Q, N + 1, S) most layers of a share that leaves some for others
    whole: Bool  # (C, Z, Q, N + 1, S) a share may take all the layers left
    reach: Bool  # (C, codes, N + 1, S) the layers left fit into the unused domains
    stages: Int  # (C, Z, Q) fewest layers of a share, one for each of its stages; 0: no such configuration
    class_of: Int  # (K,) class of each domain
    strides: Int  # (Z,) step of a code, which counts unused domains by class


class Masks:
    """Legal steps of many partial plans."""

    def __init__(self, space: Space):
        self._take(space)
        stages = int((space.pp.max(axis=(0, 2), initial=1) * self._counts).sum())
        depths = int(min(stages, space.micro_batches.max())) + 1
        self.stages = space.pp
        self.limit, self.whole = _limits(
            space.capacity, space.pp, space.micro_batches, space.n_layers, space.all_in_flight, depths
        )
        self.reach = _reach(
            self.limit, self.whole, space.pp, self._counts, self._strides, space.n_layers, depths
        )

    def _take(self, space: Space) -> None:
        """Sets the space and the counts and strides of its classes."""
        self.space = space
        counts = np.bincount(space.class_of, minlength=space.tp.shape[1]).astype(np.int64)
        self._strides = np.concatenate([[1], np.cumprod(counts + 1)[:-1]]).astype(np.int64)
        self._counts = counts

    @property
    def tables(self) -> MaskTables:
        """The masks as arrays for compiled code."""
        return MaskTables(self.limit, self.whole, self.reach, self.stages, self.space.class_of, self._strides)

    def codes(self, used: Bool) -> Int:
        """Returns the class counts of the unused domains as one number, (B,); `used` is (B, K)."""
        return (~used).astype(np.int64) @ self._strides[self.space.class_of]

    def knobs(self) -> Bool:
        """Knobs under which the model fits, (C,)."""
        return np.ascontiguousarray(self.reach[:, int(self._counts @ self._strides), self.space.n_layers, 0])

    def steps(self, knob: Int, used: Bool, left: Int, behind: Int) -> Bool:
        """Legal next shares: (B, K, N), [b, k, l - 1] = domain k may take the last l of the layers left.

        `knob`, `left` (layers not yet placed) and `behind` (stages placed) are (B,), `used` (B, K).
        """
        space = self.space
        out = np.zeros((len(knob), len(space.class_of), space.n_layers), dtype=np.bool_)
        _steps(self.tables, knob, used, self.codes(used), left, behind, out)
        return out

    def choices(self, knob: Int, used: Bool, left: Int, behind: Int, domain: Int, layers: Int) -> Bool:
        """Legal inner configurations (B, Q) for the share (domain, layers) of each partial plan."""
        space = self.space
        out = np.zeros((len(knob), space.tp.shape[2]), dtype=np.bool_)
        _choices(self.tables, knob, self.codes(used), left, behind, domain, layers, out)
        return out


def merge_classes(kinds: Sequence[tuple[object, ...]], limit: int = 81) -> list[list[int]]:
    """Groups domains by kind (sortable tuples), merging neighbours until there are at most `limit` codes."""
    groups: list[list[int]] = []
    for index in sorted(range(len(kinds)), key=lambda i: (kinds[i], i)):
        if groups and kinds[groups[-1][0]] == kinds[index]:
            groups[-1].append(index)
        else:
            groups.append([index])
    while np.prod([len(group) + 1 for group in groups]) > limit and len(groups) > 1:
        smallest = min(range(len(groups) - 1), key=lambda i: (len(groups[i]) + len(groups[i + 1]), i))
        groups[smallest : smallest + 2] = [groups[smallest] + groups[smallest + 1]]
    return groups


@njit(inner=True, borrowing=True, cache=True)
def _fits(capacity, pp, m, n_layers, all_in_flight, layers, n, behind):  # type: ignore[no-untyped-def]
    """Whether layers [n - layers, n) fit into `pp` stages before `behind` others; capacity (F, 2, 2)."""
    first_share, last_share, end = layers == n, n == n_layers, 0
    for j in range(pp):
        start, end = end, stage_start_compiled(j + 1, pp, layers, first_share, last_share)
        flight = m if all_in_flight else min(m, behind + pp - j)
        first = 1 if first_share and j == 0 else 0
        last = 1 if last_share and j == pp - 1 else 0
        if end - start > capacity[min(flight, capacity.shape[0]) - 1, first, last]:
            return False
    return True


@njit(cache=True)
def _limits(capacity, pp, micro_batches, n_layers, all_in_flight, depths):  # type: ignore[no-untyped-def]
    """`limit` and `whole` of `MaskTables`, (C, Z, Q, N + 1, depths).

    Without the embedding more layers never need less memory, so the legal sizes are pp..limit. Taking all
    layers replaces a block by the embedding, which may be smaller: hence `whole`. A share of blocks alone
    fits whatever n is, so that its limit is searched once.
    """
    knobs, classes, choices = pp.shape
    limit = np.zeros((knobs, classes, choices, n_layers + 1, depths), np.int16)
    whole = np.zeros((knobs, classes, choices, n_layers + 1, depths), np.bool_)
    for c in range(knobs):
        for z in range(classes):
            for q in range(choices):
                p = pp[c, z, q]
                if p == 0:
                    continue
                table = capacity[c, z, q]
                m = micro_batches[c]
                blocks = limit[c, z, q, n_layers - 1]
                for n in range(n_layers, p - 1, -1):
                    for s in range(min(depths, m + 1)):
                        low, high = p - 1, n - 1
                        if n < n_layers - 1:
                            low = high = min(blocks[s], n - 1)
                        while low < high:
                            middle = (low + high + 1) // 2
                            if _fits(table, p, m, n_layers, all_in_flight, middle, n, s):
                                low = middle
                            else:
                                high = middle - 1
                        limit[c, z, q, n, s] = low if low >= p else 0
                        whole[c, z, q, n, s] = _fits(table, p, m, n_layers, all_in_flight, n, n, s)
                    for s in range(m + 1, depths):  # deeper than m changes nothing
                        limit[c, z, q, n, s] = limit[c, z, q, n, m]
                        whole[c, z, q, n, s] = whole[c, z, q, n, m]
    return limit, whole


@njit(cache=True)
def _reach(limit, whole, pp, counts, strides, n_layers, depths):  # type: ignore[no-untyped-def]
    """`reach` of `MaskTables`, (C, codes, N + 1, depths)."""
    """`reach` of `MaskTables`, (C, codes, N + 1, depths)."""
    knobs, classes, choices = pp.shape
    codes = 1
    for z in range(classes):
        codes *= counts[z] + 1
    reach = np.zeros((knobs, codes, n_layers + 1, depths), np.bool_)
    # below[c, code, n, s]: number of reachable n' < n, so that "any l" is one subtraction.
    below = np.zeros((knobs, codes, n_layers + 2, depths), np.int16)
    for c in range(knobs):
        for code in range(codes):
            for s in range(depths):
                reach[c, code, 0, s] = True
                below[c, code, 1, s] = 1
            for n in range(1, n_layers + 1):
                for s in range(depths):
                    found = False
                    for z in range(classes):
                        if (code // strides[z]) % (counts[z] + 1) == 0:
                            continue
                        rest = code - strides[z]
                        for q in range(choices):
                            p = pp[c, z, q]
                            if p == 0:
                                continue
                            if whole[c, z, q, n, s]:
                                found = True
                                break
                            top = limit[c, z, q, n, s]
                            deeper = min(s + p, depths - 1)
                            if (
                                top >= p
                                and below[c, rest, n - p + 1, deeper] > below[c, rest, n - top, deeper]
                            ):
                                found = True
                                break
                        if found:
                            break
                    reach[c, code, n, s] = found
                    below[c, code, n + 1, s] = below[c, code, n, s] + (1 if found else 0)
    return reach


@njit(cache=True)
def legal(masks, c, z, q, rest, n, s, layers):  # type: ignore[no-untyped-def]
    """True if an unused domain of class z may take `layers` of the `n` left in configuration q."""
    p = masks.stages[c, z, q]
    if p == 0 or layers < p:
        return False
    if layers == n:
        return masks.whole[c, z, q, n, s]
    deeper = min(s + p, masks.reach.shape[3] - 1)
    return layers <= masks.limit[c, z, q, n, s] and masks.reach[c, rest, n - layers, deeper]


@njit(inner=True, borrowing=True, cache=True)
def open_steps(masks, c, used, code, left, behind, out):  # type: ignore[no-untyped-def]
    """Marks in `out` (K, N) the legal next shares of one plan; `code` counts its unused domains by class."""
    reach, depths = masks.reach, masks.reach.shape[3]
    n, s = left, min(behind, depths - 1)
    for k in range(len(masks.class_of)):
        if used[k]:
            continue
        z = masks.class_of[k]
        rest = code - masks.strides[z]
        for q in range(masks.stages.shape[2]):
            p = masks.stages[c, z, q]
            if p == 0:
                continue
            deeper = min(s + p, depths - 1)
            for layers in range(p, masks.limit[c, z, q, n, s] + 1):
                if reach[c, rest, n - layers, deeper]:
                    out[k, layers - 1] = True
            if n >= p and masks.whole[c, z, q, n, s]:
                out[k, n - 1] = True


@njit(cache=True)
def _steps(masks, knob, used, codes, left, behind, out):  # type: ignore[no-untyped-def]
    for b in range(len(knob)):
        open_steps(masks, knob[b], used[b], codes[b], left[b], behind[b], out[b])


@njit(cache=True)
def _choices(masks, knob, codes, left, behind, domain, layers, out):  # type: ignore[no-untyped-def]
    depths = masks.reach.shape[3]
    for b in range(len(knob)):
        c, n, s = knob[b], left[b], min(behind[b], depths - 1)
        z = masks.class_of[domain[b]]
        rest = codes[b] - masks.strides[z]
        for q in range(out.shape[1]):
            out[b, q] = legal(masks, c, z, q, rest, n, s, layers[b])
