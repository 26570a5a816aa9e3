"""Approximate iteration time in closed form, to select the plans that are timed exactly.

1F1B with m micro-batches takes about T = U + (m - 1) max_i p_i: U is one micro-batch through all stages and
back, p_i the forward and backward of stage i plus its waits for its own messages. (A cycle over several
stages waits once for each message inside it, so it never exceeds the mean of its stages.) With blocking sends
a stage waits for what it sends, under rendezvous for what it receives; with overlapped ones the two stages at
a boundary share its round trip; GPipe is close. Half of all splits are within 0.5 % of the exact time, nearly
all within 3 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from policy.search.batch_scoring import MessageTimes, OptionRows, Scorer
from policy.search.parallelism_options import (
    BACKWARD,
    BYTES_EACH,
    BYTES_NONE,
    FORWARD,
    TAIL,
    OptionArrays,
    ParallelismOptions,
    parallelism_options,
)
from twin.core.layer_split import stage_start_compiled
from twin.estimation.estimator import Estimator
from twin.pipeline.pipeline import BLOCKING, MODES, RENDEZVOUS

Int = NDArray[np.int64]
Float = NDArray[np.float64]

FIRST, LAST, MOST, TOTAL, ENDS, BEHIND = range(6)
"""Rows of a share's table: ns of its first, last and slowest stage, of all stages and of the tail, and the
number of stages that may follow before memory overflows."""
STEPS = np.array([1, 2, 4])
"""Numbers of layers that one step of hill climbing moves."""
DEPTHS = np.array([1, 2, 4, 1 << 30])
"""Limits on the stages of a domain."""


@dataclass(frozen=True, slots=True, eq=False)
class ShareTimeTables:
    """The times of a share of L layers under each parallelism option.

    `shares` (C, Z, Q, 4, 6, N + 1): the fourth axis is 1 with the embedding plus 2 with the head, the fifth
    is `FIRST` to `BEHIND`. Infinite where a stage stays empty.

    `least` (C, Z, D, 4, 3, N + 1): `FIRST`, `LAST` and `MOST` of L layers or more, each the least over the
    options within limit d of `DEPTHS`; non-decreasing along the last axis.

    `once` (C,): least ns in which a micro-batch passes all layers.
    """

    options: ParallelismOptions
    shares: Float
    least: Float
    once: Float
    layers: int
    mode: int


class SplitInputs(NamedTuple):
    """Inputs of the compiled functions for splits. It has no more fields than inner loops read: a tuple is
    copied at every call."""

    class_of: Int  # (K,), as in `OptionArrays`, like the next two
    option_count: Int  # (C, Z)
    pp: Int  # (C, Z, Q)
    slowdown: Float  # (K,)
    shares: Float  # as in `ShareTimeTables`, like the next two
    least: Float
    layers: int


class OrderInputs(NamedTuple):
    """Inputs of `SizedOrder` under one link state."""

    micro_batches: Int  # (C,)
    messages: MessageTimes
    mode: int  # as in `twin.pipeline.pipeline`


class SizedOrder(NamedTuple):
    """An order of domains under one size."""

    size: int  # index of the size
    length: int  # number of domains in use
    micro_batches: int
    tied_ns: float  # tied-embedding exchange between both ends
    domain: Int  # (W,) the domains in pipeline order
    down: Float  # (W,) waits of each domain for its messages to the next one, ns
    up: Float  # (W,) the same to the one before


class ShareTimes(NamedTuple):
    """One option of one domain in an order."""

    table: Float  # (6, N + 1), `FIRST` to `BEHIND` by layers
    depth: int  # stages
    slowdown: float
    down: float  # as in `SizedOrder`
    up: float


_CACHE: WeakKeyDictionary[Estimator, dict[tuple[int, ...], ShareTimeTables]] = WeakKeyDictionary()
CACHED = 4
"""Tables kept for an estimator: GPUs that fail mostly return."""


def tables(estimator: Estimator, free_gpus: Sequence[int]) -> ShareTimeTables:
    """Returns the tables of the domains with `free_gpus` (K,) living GPUs, cached by estimator."""
    cached, key = _CACHE.setdefault(estimator, {}), tuple(free_gpus)
    if key not in cached:
        if len(cached) >= CACHED:
            del cached[next(iter(cached))]
        cached[key] = _tables(estimator, key)
    return cached[key]


def _tables(estimator: Estimator, free_gpus: tuple[int, ...]) -> ShareTimeTables:
    options, layers, job = parallelism_options(estimator, free_gpus), estimator.n_layers, estimator.job
    shares = np.full((*options.arrays.pp.shape, 4, 6, layers + 1), np.inf)
    shares[..., BEHIND, :] = -1.0
    _fill_shares(options.arrays, job.schedule == "gpipe", layers, shares)
    least, once = _least(options.arrays, shares), _once(shares)
    return ShareTimeTables(options, shares, least, once, layers, MODES[job.p2p])


def _once(shares: Float) -> Float:
    """Returns a lower bound of the sum of `TOTAL` over the shares of any split (C,): the cheapest block under
    any option, times the number of blocks."""
    layers = shares.shape[-1] - 1
    blocks = np.arange(layers + 1) - np.array([0, 1, 1, 2])[:, None]  # in a share, without its ends
    each = shares[..., TOTAL, :] / np.where(blocks > 0, blocks, np.nan)
    cheapest = np.fmin.reduce(each, axis=(1, 2, 3, 4), initial=np.inf)
    return np.where(np.isfinite(cheapest), cheapest * (layers - 2), 0.0)


def _least(options: OptionArrays, shares: Float) -> Float:
    least = np.full((*options.option_count.shape, len(DEPTHS), 4, 3, shares.shape[-1]), np.inf)
    for c, z in np.ndindex(*options.option_count.shape):
        depth = options.pp[c, z, : options.option_count[c, z]]
        for d, limit in enumerate(DEPTHS):
            fastest = shares[c, z, np.flatnonzero(depth <= limit)][:, :, [FIRST, LAST, MOST]]
            reversed_ = fastest.min(axis=0, initial=np.inf)[..., ::-1]
            least[c, z, d] = np.minimum.accumulate(reversed_, axis=-1)[..., ::-1]
    return least


def inputs_of(scorer: Scorer, known: ShareTimeTables) -> tuple[SplitInputs, OrderInputs]:
    """Returns the inputs of compiled functions for the links and slowdowns of `scorer`."""
    options = known.options.arrays
    split = SplitInputs(
        options.class_of, options.option_count, options.pp, scorer.slowdown, known.shares, known.least,
        known.layers,
    )  # fmt: skip
    return split, OrderInputs(options.micro_batches, scorer.messages, known.mode)


def hill_climb(scorer: Scorer, known: ShareTimeTables, rows: OptionRows) -> tuple[Float, OptionRows]:
    """Improves each row as long as the closed form falls, by moving layers away from the slowest domain or by
    another option of a domain. Returns seconds, infinite where nothing runs, and the rows."""
    improved = OptionRows(rows.size, rows.count, rows.domain, rows.option.copy(), rows.layers.copy())
    return _seconds(scorer, known, improved, climb=True), improved


def closed_form_s(scorer: Scorer, known: ShareTimeTables, rows: OptionRows) -> Float:
    """Returns the seconds (P,) of each row by the closed form; infinite where nothing runs."""
    return _seconds(scorer, known, rows, climb=False)


def _seconds(scorer: Scorer, known: ShareTimeTables, rows: OptionRows, *, climb: bool) -> Float:
    ns, width = np.empty(len(rows)), rows.domain.shape[1]
    waits = np.zeros(width), np.zeros(width)
    _closed_form(*inputs_of(scorer, known), rows.arrays, climb, STEPS, waits, ns)
    return ns / 1e9


@njit(borrowing=True, cache=True, nogil=True)
def _closed_form(inputs, order_inputs, rows, climb, steps, waits_of, ns):  # type: ignore[no-untyped-def]
    """Fills `ns` (P,); with `climb` improves options and layers of the rows in place first. `waits_of` is
    room for the waits of W domains down and up."""
    down, up = waits_of
    for r in range(len(rows.size)):
        option, share = rows.option[r], rows.layers[r]
        order, waits = sized_order(order_inputs, rows.size[r], rows.shares[r], rows.domain[r], down, up)
        if waits + order.tied_ns == np.inf:
            ns[r] = np.inf
            continue
        if climb:
            _climb(inputs, order, steps, option, share)
        ns[r] = total_ns(inputs, order, option, share)[0]


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def sized_order(inputs, c, n, domain, down, up):  # type: ignore[no-untyped-def]
    """Returns the `SizedOrder` of the first n of `domain` under size c, whose waits it fills in, and the sum
    of the waits; that or the tied exchange is infinite over a dead link."""
    messages = inputs.messages
    waits = fill_waits(domain, n, messages.occupancy[c], messages.latency, inputs.mode, down, up)
    tied_ns = tied_exchange_ns(domain, n, messages.tied[c])
    return SizedOrder(c, n, inputs.micro_batches[c], tied_ns, domain, down, up), waits


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _climb(inputs, order, steps, option, share):  # type: ignore[no-untyped-def]
    """Changes the option of a domain, or moves layers from the slowest share to another, while that helps."""
    c, n, domain, pp = order.size, order.length, order.domain, inputs.pp
    class_of, option_count = inputs.class_of, inputs.option_count
    best, worst = total_ns(inputs, order, option, share)
    improved = True
    while improved:
        improved, before = False, best
        for a in range(n):
            z, own = class_of[domain[a]], option[a]
            for q in range(option_count[c, z]):
                if q != own and pp[c, z, q] <= share[a]:
                    option[a] = q
                    if _too_slow(inputs, order, a, option, share, best):
                        continue
                    total, slowest = total_ns(inputs, order, option, share)
                    if total < best:
                        best, worst, own = total, slowest, q
            option[a] = own
        for step in steps:
            for b in range(n):
                a = worst
                if a != b and share[a] - step >= pp[c, class_of[domain[a]], option[a]]:
                    share[a] -= step
                    share[b] += step
                    if not _too_slow(inputs, order, b, option, share, best):
                        total, slowest = total_ns(inputs, order, option, share)
                        if total < best:
                            best, worst = total, slowest
                            continue
                    share[a] += step
                    share[b] -= step
        improved = best < before * (1 - 1e-6)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _too_slow(inputs, order, i, option, share, best):  # type: ignore[no-untyped-def]
    """Tells whether the i-th share alone makes the closed form at least `best`."""
    c, n, k, q = order.size, order.length, order.domain[i], option[i]
    ends = 3 if n == 1 else (1 if i == 0 else 0) + (2 if i == n - 1 else 0)
    z = inputs.class_of[k]
    own = ShareTimes(
        inputs.shares[c, z, q, ends], inputs.pp[c, z, q], inputs.slowdown[k], order.down[i], order.up[i]
    )
    return (order.micro_batches - 1) * slowest_stage(own, share[i]) >= best


@njit(cache=True, nogil=True)
def _fill_shares(options, gpipe, layers, out):  # type: ignore[no-untyped-def]
    """Fills `out`, the `shares` of `ShareTimeTables`, which holds infinite times and -1 stages behind."""
    sizes, classes = options.option_count.shape
    for c in range(sizes):
        for z in range(classes):
            for q in range(options.option_count[c, z]):
                for ends in range(4):
                    first, last = ends & 1, ends >> 1
                    for held in range(options.pp[c, z, q], layers + 1 - (1 - first) - (1 - last)):
                        if ends == 3 and held < layers:
                            continue
                        start = 0 if first else (layers - held if last else 1)
                        _fill_share(options, (c, z, q), gpipe, (start, held, first, last), out[c, z, q, ends])


@njit(inner=True, cache=True, nogil=True)
def _fill_share(options, index, gpipe, span, row):  # type: ignore[no-untyped-def]
    """Fills column `held` of `row` (6, N + 1) for the share of layers [start, start + held)."""
    (c, z, q), (start, held, embedding, head) = index, span
    m, depth, memory_bytes = options.micro_batches[c], options.pp[c, z, q], options.memory_bytes[z]
    a, behind = start, np.inf
    total = slowest = tail = ns = 0.0
    for j in range(depth):
        b = start + stage_start_compiled(j + 1, depth, held, embedding, head)
        costs = options.spans[options.stage_table[c, z, q, j]]
        ns = (costs[FORWARD, a, b] + costs[BACKWARD, a, b]) * 1e9
        if j == 0:
            row[FIRST, held] = ns
        total += ns
        slowest = max(slowest, ns)
        tail = max(tail, costs[TAIL, a, b] * 1e9)
        free_bytes = memory_bytes - costs[BYTES_NONE, a, b]
        in_flight = np.floor(free_bytes / max(costs[BYTES_EACH, a, b], 1e-9)) if free_bytes >= 0 else -1.0
        if in_flight < m:
            behind = min(behind, in_flight - m if gpipe else in_flight - (depth - j))
        a = b
    row[LAST, held], row[MOST, held], row[TOTAL, held] = ns, slowest, total
    row[ENDS, held], row[BEHIND, held] = tail, behind


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def slowest_stage(share, held):  # type: ignore[no-untyped-def]
    """Returns the largest p_i, ns, of a share of `held` layers: its first stage sends up, its last one
    down."""
    table, slowdown = share.table, share.slowdown
    first = table[FIRST, held] * slowdown + share.up
    if share.depth == 1:
        return first + share.down
    return max(first, table[LAST, held] * slowdown + share.down, table[MOST, held] * slowdown)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def total_ns(inputs, order, option, share):  # type: ignore[no-untyped-def]
    """Returns T in ns of a split, infinite where memory does not suffice, and the index of its slowest
    share."""
    class_of, _, pp, slowdown, shares, _, _ = inputs  # once: each access of a field counts references
    c, n, m, tied_ns, domain, down, up = order
    once = pace = tail = 0.0
    behind, worst = 0, 0
    for i in range(n - 1, -1, -1):
        k, q, held = domain[i], option[i], share[i]
        z = class_of[k]
        ends = 3 if n == 1 else (1 if i == 0 else 0) + (2 if i == n - 1 else 0)
        table, depth = shares[c, z, q, ends], pp[c, z, q]
        if table[BEHIND, held] < behind:
            return np.inf, i
        slowest = slowest_stage(ShareTimes(table, depth, slowdown[k], down[i], up[i]), held)
        if slowest > pace:
            pace, worst = slowest, i
        behind += depth
        once += table[TOTAL, held] * slowdown[k] + down[i] + up[i]
        tail = max(tail, table[ENDS, held])
    return once + (m - 1) * pace + tail + tied_ns, worst


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def fill_waits(domain, n, occupancy, latency, mode, down, up):  # type: ignore[no-untyped-def]
    """Fills the waits of each domain for its messages, ns. Returns their sum, infinite over a dead link."""
    down[:n], up[:n] = 0.0, 0.0
    total = 0.0
    for i in range(n - 1):
        a, b = domain[i], domain[i + 1]
        if occupancy[a, b] < 0 or occupancy[b, a] < 0:
            return np.inf
        there = float(occupancy[a, b] + latency[a, b])
        back = float(occupancy[b, a] + latency[b, a])
        down[i] = up[i + 1] = (there + back) / 2
        if mode == BLOCKING:
            down[i], up[i + 1] = there, back
        elif mode == RENDEZVOUS:
            down[i], up[i + 1] = back, there
        total += there + back
    return total


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def tied_exchange_ns(domain, n, tied):  # type: ignore[no-untyped-def]
    """Returns the tied-embedding exchange between both ends in ns, infinite over a dead link."""
    if n == 1:
        return 0.0
    ns = tied[domain[n - 1], domain[0]]
    return float(ns) if ns >= 0 else np.inf
