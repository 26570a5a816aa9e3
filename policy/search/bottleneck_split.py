"""For an order of domains the split that keeps the best pace: where a search starts.

For a given pace P every domain has a most: the largest number of layers with which no stage is slower
(`policy.closed_form`) and all fit in memory behind the stages that follow. The least P at which these suffice
for the model is found by bisection, for every size that the domains can share and for several limits on how
deep a domain may be (deep shares are patient with slow links but make the way of a micro-batch longer).
"""

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from policy.search.closed_form import BEHIND, DEPTHS, MOST, Tables, fill_waits, slowest, tied_ends, total_ns
from policy.search.batch_scoring import Rows, Scorer

Int = NDArray[np.int64]
Float = NDArray[np.float64]

WORTH = 1.25
"""Splits that take longer than this times the best one of their order are not looked at further."""


def paced(
    scorer: Scorer,
    known: Tables,
    orders: Sequence[tuple[int, ...]],
    worth: float = np.inf,
    best_s: float = np.inf,
) -> tuple[Float, Rows]:
    """For each order the best split of every size and limit that is worth a look: seconds and rows.

    The seconds are those of the closed form; `scorer` knows the exact ones. Orders that take longer than
    `worth` times the best one, or times `best_s`, are left out.
    """
    offered, sent, width = known.menu, scorer.messages, max(len(order) for order in orders)
    domain = np.full((len(orders), width), -1, np.int64)
    for row, order in enumerate(orders):
        domain[row, : len(order)] = order
    count = (domain >= 0).sum(axis=1)
    most = len(orders) * len(offered.sizes) * len(DEPTHS)
    seconds, origin = np.full(most, np.inf), np.zeros(most, np.int64)
    size, option, share = np.zeros(most, np.int64), *(np.zeros((most, width), np.int64) for _ in range(2))
    found = _pace(
        domain, count, offered.class_of, offered.options, offered.pp, offered.micro_batches, scorer.slow,
        sent.occupancy, sent.latency, sent.tied, known.shares, known.least, known.layers, known.blocking,
        DEPTHS, worth, best_s * 1e9, seconds, origin, size, option, share,
    )  # fmt: skip
    own = origin[:found]
    rows = Rows(size[:found], count[own], domain[own], option[:found], share[:found])
    return seconds[:found] / 1e9, rows


@njit(cache=True, nogil=True)
def _at_most(c, d, n, domain, class_of, slow, down, up, least, layers, pace):  # type: ignore[no-untyped-def]
    """No less than what `_chosen` finds, much sooner: as if every stage had the option that suits it best."""
    total = 0
    for i in range(n):
        k = domain[i]
        row = least[c, class_of[k], d, (1 if i == 0 else 0) + (2 if i == n - 1 else 0)]
        if n == 1:
            return layers if row[2, layers] * slow[k] <= pace else 0
        low, high = 0, layers - (n - 1)
        while low < high:
            held = (low + high + 1) // 2
            first, last = row[0, held] * slow[k] + up[i], row[1, held] * slow[k] + down[i]
            if first <= pace and last <= pace and row[2, held] * slow[k] <= pace:
                low = held
            else:
                high = held - 1
        if low == 0:
            return 0
        total += low
    return total


@njit(cache=True, nogil=True)
def _keeps(row, held, depth, pace, slow, down, up, behind):  # type: ignore[no-untyped-def]
    """Whether a share with so many layers keeps the pace and fits; if so, it does with fewer."""
    return row[BEHIND, held] >= behind and slowest(row, held, depth, slow, down, up) <= pace


@njit(cache=True, nogil=True)
def _most_layers(row, depth, pace, slow, down, up, behind, guess, limit):  # type: ignore[no-untyped-def]
    """The largest number of layers with which a share keeps the pace, sought around `guess`; 0 if none."""
    low, high, step, held = depth - 1, limit, 1, min(max(guess, depth), limit)
    while low < high:
        if _keeps(row, held, depth, pace, slow, down, up, behind):
            low = held
            held = min(low + step, (low + high + 1) // 2)
        else:
            high = held - 1
            held = max(high - step, (low + high + 1) // 2)
        step *= 4
    return low if low >= depth else 0


@njit(cache=True, nogil=True)
def _suffices(args, d, limit, least, pace, option, share):  # type: ignore[no-untyped-def]
    """Whether the domains hold all layers at this pace."""
    c, n, domain, class_of, layers = args[0], args[1], args[2], args[3], args[10]
    if _at_most(c, d, n, domain, class_of, args[6], args[7], args[8], least, layers, pace) < layers:
        return False
    return _chosen(*args, pace, limit, option, share) >= layers


@njit(cache=True, nogil=True)
def _chosen(  # type: ignore[no-untyped-def]
    c, n, domain, class_of, options, pp, slow, down, up, table, layers, pace, limit, option, share
):  # fmt: skip
    """Each domain's option with most layers at this pace, from the last domain to the first; their sum.

    Of equal ones the shallowest, the first of these. What `option` and `share` hold is where it begins to
    look: another option matters only if it holds as many layers as the best so far.
    """
    behind, total, largest = 0, 0, layers - (n - 1)
    for i in range(n - 1, -1, -1):
        k = domain[i]
        z = class_of[k]
        ends = (1 if i == 0 else 0) + (2 if i == n - 1 else 0)
        count, before, guess = options[c, z], option[i], share[i]
        best, most, shallowest = 0, 0, 0
        for turn in range(-1, count):
            q = before if turn < 0 else turn
            if q >= count or turn == before:
                continue
            depth = pp[c, z, q]
            if depth > limit or depth > largest:
                continue
            row = table[c, z, q, ends]
            sooner = most == 0 or depth < shallowest or (depth == shallowest and q < best)
            least = max(most if sooner else most + 1, depth if n > 1 else layers)
            if least > largest:
                continue
            if turn < 0 and n > 1:
                held = _most_layers(row, depth, pace, slow[k], down[i], up[i], behind, guess, largest)
            elif _keeps(row, least, depth, pace, slow[k], down[i], up[i], behind):
                held = _most_layers(row, depth, pace, slow[k], down[i], up[i], behind, least, largest)
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


@njit(cache=True, nogil=True)
def _trimmed(c, n, domain, class_of, pp, slow, down, up, table, option, share, excess):  # type: ignore[no-untyped-def]
    """Take `excess` layers away, each from the share whose slowest stage is slowest."""
    for _ in range(excess):
        worst, where = -1.0, 0
        for i in range(n):
            k = domain[i]
            z, q = class_of[k], option[i]
            if share[i] > pp[c, z, q]:
                ends = (1 if i == 0 else 0) + (2 if i == n - 1 else 0)
                ns = table[c, z, q, ends, MOST, share[i]] * slow[k] + max(down[i], up[i])
                if ns > worst:
                    worst, where = ns, i
        if worst < 0:
            return False
        share[where] -= 1
    return True


@njit(cache=True, nogil=True)
def _pace(  # type: ignore[no-untyped-def]
    domains, counts, class_of, options, pp, micro_batches, slow, occupancy, latency, tied_ns, table, least,
    layers, blocking, depths, worth, record, seconds, origin, size, options_out, shares_out,
):  # fmt: skip
    """Fill the last five with what is worth a look; how many that are."""
    width, found, lead = domains.shape[1], 0, 0
    option, share = np.zeros(width, np.int64), np.zeros(width, np.int64)
    down, up = np.zeros(width), np.zeros(width)
    for o in range(len(domains)):
        domain, n, best, first, before = domains[o], counts[o], np.inf, found, lead
        if n > layers:
            continue
        option[n:], share[n:] = 0, 0
        for turn in range(-1, len(micro_batches)):  # the size that was best before comes first
            c = before if turn < 0 else turn
            if turn == before:
                continue
            m, waits = micro_batches[c], fill_waits(domain, n, occupancy[c], latency, blocking, down, up)
            tied = tied_ends(domain, n, tied_ns[c])
            if waits + tied == np.inf:
                continue
            deepest = 0
            for i in range(n):
                z = class_of[domain[i]]
                deepest = max(deepest, pp[c, z].max())
            for d in range(len(depths)):
                if d > 0 and depths[d - 1] >= deepest:
                    break
                most = min(best * WORTH, record * worth)
                high = 1e15 if most == np.inf else max(most - waits - tied, 0.0) / max(m - 1, 1)
                args = (c, n, domain, class_of, options, pp, slow, down, up, table, layers)
                if not _suffices(args, d, depths[d], least, high, option, share):
                    continue
                low = 0.0
                if high > 1e14:  # nothing is known yet: bracket the least pace from below
                    high = 1e6
                    while not _suffices(args, d, depths[d], least, high, option, share):
                        low, high = high, high * 2
                while high - low > 4e-3 * high:
                    middle = (low + high) / 2
                    if _suffices(args, d, depths[d], least, middle, option, share):
                        high = middle
                    else:
                        low = middle
                excess = _chosen(*args, high, depths[d], option, share) - layers
                if not _trimmed(c, n, domain, class_of, pp, slow, down, up, table, option, share, excess):
                    continue
                total, _ = total_ns(c, n, m, tied, domain, class_of, pp, slow, down, up, table, option, share)
                if total < best:
                    best, lead = total, c
                seconds[found], origin[found], size[found] = total, o, c
                options_out[found], shares_out[found] = option, share
                found += 1
        kept, record = first, min(record, best)
        for row in range(first, found):  # what turned out not to be worth a look
            if seconds[row] <= min(best * WORTH, record * worth):
                seconds[kept], origin[kept], size[kept] = seconds[row], o, size[row]
                options_out[kept], shares_out[kept] = options_out[row], shares_out[row]
                kept += 1
        found = kept
    return found
