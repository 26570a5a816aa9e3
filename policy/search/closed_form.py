"""The time of a plan in closed form, to tell which of very many are worth timing exactly.

1F1B with m micro-batches takes about T = U + (m - 1) max_i p_i: U is one micro-batch through all stages and
back, p_i the forward and backward of stage i and what it waits for its own messages. (A cycle over several
stages waits for each of the messages inside it once, so it is never above the mean of its stages.) With
blocking sends a stage waits for what it sends; with overlapped ones the two stages at a boundary share its
round trip; GPipe comes close. Half of all splits are within half a per cent of the exact time, nearly all
within three.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit
from numpy.typing import NDArray

from policy.search.parallelism_options import BACKWARD, BYTES_EACH, BYTES_NONE, FORWARD, TAIL, Menu, menu
from policy.search.batch_scoring import Rows, Scorer
from twin.estimate.estimator import Estimator
from twin.core.layer_split import stage_start_compiled

Int = NDArray[np.int64]
Float = NDArray[np.float64]

FIRST, LAST, MOST, TOTAL, ENDS, BEHIND = range(6)
"""Rows of a share's table: ns of its first, last and slowest stage, of all of them and of the tail, and how
many stages may follow before memory overflows."""


STEPS = np.array([1, 2, 4])
"""Layers that one step of a climb moves."""
DEPTHS = np.array([1, 2, 4, 1 << 30])
"""Limits on the stages of a domain."""


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """A menu and what a share of L layers takes with each of its options.

    `shares` (C, Z, Q, 4, 6, N + 1): the fourth axis says whether the share holds the embedding (1) and the
    head (2), the fifth is `FIRST` to `BEHIND`. Infinite where a stage stays empty.

    `least` (C, Z, D, 4, 3, N + 1): `FIRST`, `LAST` and `MOST` of L layers or more, each with the option that
    is quickest in it and obeys limit d of `DEPTHS`; never falling along the last axis.
    """

    menu: Menu
    shares: Float
    least: Float
    layers: int
    blocking: bool


_KEPT: WeakKeyDictionary[Estimator, dict[tuple[int, ...], Tables]] = WeakKeyDictionary()
KEEP = 4
"""Tables kept for an estimator: GPUs come and go, and mostly come back."""


def tables(estimator: Estimator, free_gpus: Sequence[int]) -> Tables:
    """The tables of the domains with `free_gpus` (K,) living GPUs; made once for an estimator."""
    kept, key = _KEPT.setdefault(estimator, {}), tuple(free_gpus)
    if key not in kept:
        if len(kept) >= KEEP:
            del kept[next(iter(kept))]
        kept[key] = _tables(estimator, key)
    return kept[key]


def _tables(estimator: Estimator, free_gpus: tuple[int, ...]) -> Tables:
    offered, layers, job = menu(estimator, free_gpus), estimator.n_layers, estimator.job
    found = np.full((*offered.pp.shape, 4, 6, layers + 1), np.inf)
    found[..., BEHIND, :] = -1.0
    _share_tables(
        offered.options, offered.pp, offered.table, offered.spans, offered.memory, offered.micro_batches,
        job.schedule == "gpipe", layers, found,
    )  # fmt: skip
    return Tables(offered, found, _least(offered, found), layers, job.p2p == "blocking")


def _least(offered: Menu, shares: Float) -> Float:
    least = np.full((*offered.options.shape, len(DEPTHS), 4, 3, shares.shape[-1]), np.inf)
    for c, z in np.ndindex(*offered.options.shape):
        depth = offered.pp[c, z, : offered.options[c, z]]
        for d, limit in enumerate(DEPTHS):
            quickest = shares[c, z, np.flatnonzero(depth <= limit)][:, :, [FIRST, LAST, MOST]]
            kept = quickest.min(axis=0, initial=np.inf)[..., ::-1]
            least[c, z, d] = np.minimum.accumulate(kept, axis=-1)[..., ::-1]
    return least


def climbed(scorer: Scorer, known: Tables, rows: Rows) -> tuple[Float, Rows]:
    """Each row after layers went from its slowest domain to others, or a domain took another option, while
    that helped: seconds by the closed form, infinite where nothing runs, and the rows."""
    option, share = rows.option.copy(), rows.layers.copy()
    seconds = _seconds(scorer, known, rows, option, share, climb=True)
    return seconds, Rows(rows.size, rows.count, rows.domain, option, share)


def estimated(scorer: Scorer, known: Tables, rows: Rows) -> Float:
    """Seconds (P,) of each row by the closed form; infinite where nothing runs."""
    return _seconds(scorer, known, rows, rows.option, rows.layers, climb=False)


def _seconds(scorer: Scorer, known: Tables, rows: Rows, option: Int, share: Int, *, climb: bool) -> Float:
    offered, sent, ns = known.menu, scorer.messages, np.empty(len(rows))
    _estimate(
        rows.size, rows.domain, rows.count, offered.class_of, offered.options, offered.pp,
        offered.micro_batches, scorer.slow, sent.occupancy, sent.latency, sent.tied, known.shares,
        known.blocking, climb, STEPS, option, share, ns,
    )  # fmt: skip
    return ns / 1e9


@njit(cache=True, nogil=True)
def _estimate(  # type: ignore[no-untyped-def]
    sizes, domains, counts, class_of, options, pp, micro_batches, slow, occupancy, latency, tied_ns, table,
    blocking, climb, steps, option_of, share_of, ns,
):  # fmt: skip
    """The closed form of every row, after climbing in place if asked to."""
    width = domains.shape[1]
    down, up = np.zeros(width), np.zeros(width)
    for r in range(len(sizes)):
        c, n, domain, option, share = sizes[r], counts[r], domains[r], option_of[r], share_of[r]
        tied = tied_ends(domain, n, tied_ns[c])
        if fill_waits(domain, n, occupancy[c], latency, blocking, down, up) + tied == np.inf:
            ns[r] = np.inf
            continue
        m = micro_batches[c]
        args = (c, n, m, tied, domain, class_of, pp, slow, down, up, table)
        if climb:
            _climb(args, options, steps, option, share)
        ns[r] = total_ns(*args, option, share)[0]


@njit(cache=True, nogil=True)
def _climb(args, options, steps, option, share):  # type: ignore[no-untyped-def]
    """Another option for a domain, layers from the slowest share to any other, while that helps."""
    c, n, domain, class_of, pp = args[0], args[1], args[4], args[5], args[6]
    best, worst = total_ns(*args, option, share)
    improved = True
    while improved:
        improved, before = False, best
        for a in range(n):
            z, own = class_of[domain[a]], option[a]
            for q in range(options[c, z]):
                if q != own and pp[c, z, q] <= share[a]:
                    option[a] = q
                    if _too_slow(args, a, option, share, best):
                        continue
                    total, slowest = total_ns(*args, option, share)
                    if total < best:
                        best, worst, own = total, slowest, q
            option[a] = own
        for step in steps:
            for b in range(n):
                a = worst
                if a != b and share[a] - step >= pp[c, class_of[domain[a]], option[a]]:
                    share[a] -= step
                    share[b] += step
                    if not _too_slow(args, b, option, share, best):
                        total, slowest = total_ns(*args, option, share)
                        if total < best:
                            best, worst = total, slowest
                            continue
                    share[a] += step
                    share[b] -= step
        improved = best < before * (1 - 1e-6)


@njit(cache=True, nogil=True)
def _too_slow(args, i, option, share, best):  # type: ignore[no-untyped-def]
    """Whether share i alone sets a pace at which nothing better than `best` is left to find."""
    _, n, m, _, domain, class_of, pp, slow, down, up, table = args
    c, k, q = args[0], domain[i], option[i]
    ends = 3 if n == 1 else (1 if i == 0 else 0) + (2 if i == n - 1 else 0)
    z = class_of[k]
    own = slowest(table[c, z, q, ends], share[i], pp[c, z, q], slow[k], down[i], up[i])
    return (m - 1) * own >= best


@njit(cache=True, nogil=True)
def _share_tables(  # type: ignore[no-untyped-def]
    options, pp, table, spans, memory, micro_batches, gpipe, layers, out
):  # fmt: skip
    """Fill `out`; infinite times and -1 stages behind are there already."""
    sizes, classes = options.shape
    for c in range(sizes):
        m = micro_batches[c]
        for z in range(classes):
            for q in range(options[c, z]):
                depth = pp[c, z, q]
                for ends in range(4):
                    embedding, head = ends & 1, ends >> 1
                    for held in range(depth, layers + 1 - (1 - embedding) - (1 - head)):
                        if ends == 3 and held < layers:
                            continue
                        start = 0 if embedding else (layers - held if head else 1)
                        row, a, behind = out[c, z, q, ends], start, np.inf
                        total = slowest = tail = 0.0
                        for j in range(depth):
                            b = start + stage_start_compiled(j + 1, depth, held, embedding, head)
                            costs = spans[table[c, z, q, j]]
                            ns = (costs[FORWARD, a, b] + costs[BACKWARD, a, b]) * 1e9
                            if j == 0:
                                row[FIRST, held] = ns
                            total += ns
                            slowest = max(slowest, ns)
                            tail = max(tail, costs[TAIL, a, b] * 1e9)
                            room = memory[z] - costs[BYTES_NONE, a, b]
                            flights = (
                                np.floor(room / max(costs[BYTES_EACH, a, b], 1e-9)) if room >= 0 else -1.0
                            )
                            if flights < m:
                                behind = min(behind, flights - m if gpipe else flights - (depth - j))
                            a = b
                        row[LAST, held], row[MOST, held], row[TOTAL, held] = ns, slowest, total
                        row[ENDS, held], row[BEHIND, held] = tail, behind


@njit(cache=True, nogil=True)
def slowest(row, held, depth, slow, down, up):  # type: ignore[no-untyped-def]
    """Largest p of a share's stages: the first one sends up, the last one down."""
    if depth == 1:
        return row[FIRST, held] * slow + up + down
    return max(row[FIRST, held] * slow + up, row[LAST, held] * slow + down, row[MOST, held] * slow)


@njit(cache=True, nogil=True)
def total_ns(c, n, m, tied, domain, class_of, pp, slow, down, up, table, option, share):  # type: ignore[no-untyped-def]
    """T in ns of a split, infinite where memory does not suffice, and its slowest share."""
    once = pace = tail = 0.0
    behind, worst = 0, 0
    for i in range(n - 1, -1, -1):
        k = domain[i]
        z, q = class_of[k], option[i]
        ends = 3 if n == 1 else (1 if i == 0 else 0) + (2 if i == n - 1 else 0)
        row, held, depth = table[c, z, q, ends], share[i], pp[c, z, q]
        if row[BEHIND, held] < behind:
            return np.inf, i
        own = slowest(row, held, depth, slow[k], down[i], up[i])
        if own > pace:
            pace, worst = own, i
        behind += depth
        once += row[TOTAL, held] * slow[k] + down[i] + up[i]
        tail = max(tail, row[ENDS, held])
    return once + (m - 1) * pace + tail + tied, worst


@njit(cache=True, nogil=True)
def fill_waits(domain, n, occupancy, latency, blocking, down, up):  # type: ignore[no-untyped-def]
    """Fill what each domain waits for its messages in ns; the sum, infinite over a dead link."""
    down[:n], up[:n] = 0.0, 0.0
    total = 0.0
    for i in range(n - 1):
        a, b = domain[i], domain[i + 1]
        if occupancy[a, b] < 0 or occupancy[b, a] < 0:
            return np.inf
        there = float(occupancy[a, b] + latency[a, b])
        back = float(occupancy[b, a] + latency[b, a])
        down[i] = there if blocking else (there + back) / 2
        up[i + 1] = back if blocking else (there + back) / 2
        total += there + back
    return total


@njit(cache=True, nogil=True)
def tied_ends(domain, n, tied):  # type: ignore[no-untyped-def]
    """What the domains at both ends take for a tied embedding in ns, infinite over a dead link."""
    if n == 1:
        return 0.0
    ns = tied[domain[n - 1], domain[0]]
    return float(ns) if ns >= 0 else np.inf
