"""The split of a given order of domains with the least bottleneck: where a search starts.

For a given time P per micro-batch every domain has a largest number of layers such that no stage takes longer
than P (`policy.search.closed_form`) and all fit in memory in front of the stages that follow. Bisection finds
the least P for which these sum to the whole model, for every size and for several limits on the stages of a
domain: deep shares tolerate slow links but lengthen the path of a micro-batch.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from policy.search.batch_scoring import OptionRows, Scorer
from policy.search.closed_form import (
    BEHIND,
    DEPTHS,
    MOST,
    ShareTimes,
    ShareTimeTables,
    inputs_of,
    sized_order,
    slowest_stage,
    total_ns,
)

Int = NDArray[np.int64]
Float = NDArray[np.float64]

MAX_RATIO = 1.25
"""Splits that take longer than this times the best one of their order are dropped."""
SLACK = 1 + 1e-9
"""Bounds are loosened by this factor: sums are rounded."""


class _Splits(NamedTuple):
    """Room for R splits over up to W domains."""

    ns: Float  # (R,) by the closed form
    order: Int  # (R,) index of the order
    size: Int  # (R,)
    option: Int  # (R, W)
    layers: Int  # (R, W)


def bottleneck_splits(
    scorer: Scorer,
    known: ShareTimeTables,
    orders: Sequence[tuple[int, ...]],
    *,
    most: int,
    max_ratio: float = np.inf,
    best_s: float = np.inf,
) -> tuple[Float, OptionRows]:
    """Returns for each order the best split of every size and depth limit: seconds by the closed form, and
    rows.

    Left out are splits slower than `MAX_RATIO` times the best one of their order, and slower than `max_ratio`
    times the best one of all or `best_s`; and many of those that are neither the best one of their order nor
    among the `most` fastest.
    """
    sizes, width = len(known.options.sizes), max(len(order) for order in orders)
    count = np.fromiter(map(len, orders), np.int64, len(orders))
    domain = np.full((len(orders), width), -1, np.int64)
    domain[np.arange(width) < count[:, None]] = np.fromiter(chain.from_iterable(orders), np.int64)
    room = len(orders) * sizes * len(DEPTHS)
    shares = (np.zeros((room, width), np.int64) for _ in range(2))
    splits = _Splits(np.full(room, np.inf), np.zeros(room, np.int64), np.zeros(room, np.int64), *shares)
    inputs, limits = inputs_of(scorer, known), (max_ratio, best_s * 1e9, np.full(max(most, 1), np.inf))
    once = known.once * scorer.slowdown[list({k for order in orders for k in order})].min()
    room_of_order = *np.zeros((3, width), np.int64), *np.zeros((2, width))
    found = _fill_splits(*inputs, (domain, count), DEPTHS, once, limits, room_of_order, splits)
    own = splits.order[:found]
    rows = OptionRows(
        splits.size[:found], count[own], domain[own], splits.option[:found], splits.layers[:found]
    )
    return splits.ns[:found] / 1e9, rows


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _may_suffice(inputs, order, d, pace, guess):  # type: ignore[no-untyped-def]
    """Tells whether the domains hold all layers at this pace if every stage has the option that suits it
    best: a bound of `_largest_shares` that is much cheaper. `guess` (W,) holds where searches begin."""
    class_of, _, _, slowdowns, _, least, layers = inputs  # once: each access of a field counts references
    c, n, _, _, domain, down, up = order
    total, most = 0, layers - (n - 1)
    for i in range(n):
        k = domain[i]
        slowdown = slowdowns[k]
        ends = (1 if i == 0 else 0) + (2 if i == n - 1 else 0)
        row = least[c, class_of[k], d, ends]
        if n == 1:
            return row[2, layers] * slowdown <= pace
        low, high, step = 0, most, 1
        held = 1 if total >= layers else min(max(guess[i], 1), high)
        while low < high:
            first, last = row[0, held] * slowdown + up[i], row[1, held] * slowdown + down[i]
            if first <= pace and last <= pace and row[2, held] * slowdown <= pace:
                low = held
                if total + low >= layers:  # more would not matter
                    break
                held = min(low + step, (low + high + 1) // 2)
            else:
                high = held - 1
                held = max(high - step, (low + high + 1) // 2)
            step *= 4
        if low == 0:
            return False
        guess[i] = low
        total += low
    return total >= layers


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _keeps(share, held, pace, behind):  # type: ignore[no-untyped-def]
    """Tells whether a share of so many layers keeps the pace and fits; then it also does with fewer."""
    return share.table[BEHIND, held] >= behind and slowest_stage(share, held) <= pace


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _most_layers(share, pace, behind, guess, limit):  # type: ignore[no-untyped-def]
    """Returns the largest number of layers with which a share keeps the pace, searched around `guess`; 0 if
    none."""
    depth = share.depth
    low, high, step, held = depth - 1, limit, 1, min(max(guess, depth), limit)
    while low < high:
        if _keeps(share, held, pace, behind):
            low = held
            held = min(low + step, (low + high + 1) // 2)
        else:
            high = held - 1
            held = max(high - step, (low + high + 1) // 2)
        step *= 4
    return low if low >= depth else 0


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _suffices(inputs, order, d, limit, pace, guess, option, share):  # type: ignore[no-untyped-def]
    """Tells whether the domains hold all layers at this pace."""
    if not _may_suffice(inputs, order, d, pace, guess):
        return False
    return _largest_shares(inputs, order, pace, limit, option, share) >= inputs.layers


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _largest_shares(inputs, order, pace, limit, option, share):  # type: ignore[no-untyped-def]
    """Fills each domain's option with most layers at this pace, from the last domain to the first. Returns
    the sum of the layers.

    Ties go to the shallowest option, then to the first. The previous contents of `option` and `share` are the
    first guess: another option matters only if it holds as many layers as the best so far.
    """
    class_of, option_count, pp, slowdown, shares, _, layers = inputs
    c, n, _, _, domain, down, up = order
    behind, total, largest = 0, 0, layers - (n - 1)
    for i in range(n - 1, -1, -1):
        k = domain[i]
        z = class_of[k]
        ends = (1 if i == 0 else 0) + (2 if i == n - 1 else 0)
        count, before, guess = option_count[c, z], option[i], share[i]
        best, most, shallowest = 0, 0, 0
        for turn in range(-1, count):  # the previous option comes first
            q = before if turn < 0 else turn
            if q >= count or turn == before:
                continue
            depth = pp[c, z, q]
            if depth > limit or depth > largest:
                continue
            preferred = most == 0 or depth < shallowest or (depth == shallowest and q < best)
            least = max(most if preferred else most + 1, depth if n > 1 else layers)
            if least > largest:
                continue
            own = ShareTimes(shares[c, z, q, ends], depth, slowdown[k], down[i], up[i])
            if turn < 0 and n > 1:
                held = _most_layers(own, pace, behind, guess, largest)
            elif _keeps(own, least, pace, behind):
                held = _most_layers(own, pace, behind, least, largest)
            else:
                continue
            if held > 0:
                best, most, shallowest = q, held, depth
        option[i], share[i] = best, most
        if most == 0:
            return 0
        behind += pp[c, z, best]
        total += most
    return total


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _trim(inputs, order, option, share, excess):  # type: ignore[no-untyped-def]
    """Removes `excess` layers, each from the share with the slowest stage. Returns whether it could."""
    c, n = order.size, order.length
    for _ in range(excess):
        worst, where = -1.0, 0
        for i in range(n):
            k = order.domain[i]
            z, q = inputs.class_of[k], option[i]
            if share[i] > inputs.pp[c, z, q]:
                ends = (1 if i == 0 else 0) + (2 if i == n - 1 else 0)
                ns = inputs.shares[c, z, q, ends, MOST, share[i]] * inputs.slowdown[k]
                ns += max(order.down[i], order.up[i])
                if ns > worst:
                    worst, where = ns, i
        if worst < 0:
            return False
        share[where] -= 1
    return True


@njit(borrowing=True, cache=True, nogil=True)
def _fill_splits(inputs, order_inputs, orders, depths, once, limits, room, splits):  # type: ignore[no-untyped-def]
    """Fills `splits`. Returns how many there are.

    `once` (C,) is a lower bound of the computing of a micro-batch, ns. `limits`: the largest ratio to the
    record, the ns of the best plan known, and room for those of the fastest splits, infinite at first.
    `room` is for the options, layers, guesses, and waits down and up of W domains, 0 at first.
    """
    domains, counts = orders
    max_ratio, record, fastest = limits
    option, share, guess, down, up = room
    found, lead = 0, 0
    for o in range(len(domains)):
        domain, n, best, first, before = domains[o], counts[o], np.inf, found, lead
        if n > inputs.layers:
            continue
        option[n:], share[n:] = 0, 0
        for turn in range(-1, len(order_inputs.micro_batches)):  # the size that was best before comes first
            c = before if turn < 0 else turn
            if turn == before:
                continue
            order, waits = sized_order(order_inputs, c, n, domain, down, up)
            if waits + order.tied_ns == np.inf:
                continue
            apart = waits + (once[c] if order.micro_batches > 1 else 0.0)  # a single one paces itself
            most = min(best * MAX_RATIO, record * max_ratio, max(best, fastest[-1]))
            if not _may_suffice(
                inputs, order, len(depths) - 1, _most_pace(order, apart, most) * SLACK, guess
            ):
                continue  # nor within any limit
            deepest = 0
            for i in range(n):
                z = inputs.class_of[domain[i]]
                for q in range(inputs.option_count[c, z]):
                    deepest = max(deepest, inputs.pp[c, z, q])
            for d in range(len(depths)):
                if d > 0 and depths[d - 1] >= deepest:
                    break
                most = min(best * MAX_RATIO, record * max_ratio)
                high = _most_pace(order, apart, min(most, max(best, fastest[-1]))) * SLACK
                if not _may_suffice(inputs, order, d, high, guess):
                    continue
                if not _split(inputs, order, (d, depths[d]), waits, most, guess, option, share):
                    continue
                total, _ = total_ns(inputs, order, option, share)
                if total < best:
                    best, lead = total, c
                splits.ns[found], splits.order[found], splits.size[found] = total, o, c
                for i in range(len(option)):  # an assignment of arrays would make a copy
                    splits.option[found, i], splits.layers[found, i] = option[i], share[i]
                found += 1
        record = min(record, best)
        found = _drop_slow(splits, first, found, min(best * MAX_RATIO, record * max_ratio))
        for row in range(first, found):
            _insert(fastest, splits.ns[row])
    return found


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _insert(ascending, ns):  # type: ignore[no-untyped-def]
    """Puts a number among the smallest ones, in place of the last."""
    at = len(ascending) - 1
    if ns >= ascending[at]:
        return
    while at > 0 and ascending[at - 1] > ns:
        ascending[at] = ascending[at - 1]
        at -= 1
    ascending[at] = ns


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _split(inputs, order, limit, waits, most_ns, guess, option, share):  # type: ignore[no-untyped-def]
    """Fills the split with the least pace (to 0.4 %) within a depth limit (index, stages). Returns whether
    there is one whose closed form may be at most `most_ns`."""
    d, depth = limit
    high = _most_pace(order, waits, most_ns)
    if not _suffices(inputs, order, d, depth, high, guess, option, share):
        return False
    low = 0.0
    if high > 1e14:  # no time is known yet: bracket the least pace from below
        high = 1e6
        while not _suffices(inputs, order, d, depth, high, guess, option, share):
            low, high = high, high * 2
    while high - low > 4e-3 * high:
        middle = (low + high) / 2
        if _suffices(inputs, order, d, depth, middle, guess, option, share):
            high = middle
        else:
            low = middle
    excess = _largest_shares(inputs, order, high, depth, option, share) - inputs.layers
    return _trim(inputs, order, option, share, excess)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _most_pace(order, waits, most_ns):  # type: ignore[no-untyped-def]
    """Returns the pace above which the closed form is more than `most_ns`, rounding aside; `waits` are what
    else a micro-batch takes at least."""
    if most_ns == np.inf:
        return 1e15
    return max(most_ns - waits - order.tied_ns, 0.0) / max(order.micro_batches - 1, 1)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _drop_slow(splits, first, end, most_ns):  # type: ignore[no-untyped-def]
    """Removes splits [first, end) that take longer than `most_ns`. Returns the new end."""
    kept = first
    for row in range(first, end):
        if splits.ns[row] <= most_ns:
            splits.ns[kept], splits.order[kept], splits.size[kept] = (
                splits.ns[row], splits.order[row], splits.size[row],
            )  # fmt: skip
            for i in range(splits.option.shape[1]):
                splits.option[kept, i], splits.layers[kept, i] = splits.option[row, i], splits.layers[row, i]
            kept += 1
    return kept
