"""Mean iterations per second of many plans over many link states, by the closed form of
`policy.search.closed_form`.

What links do not change of a share is looked up once for all states.
"""

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from policy.search.batch_scoring import OptionRows, message_times, single_flow_bps
from policy.search.closed_form import (
    BEHIND,
    ENDS,
    FIRST,
    LAST,
    MOST,
    TOTAL,
    ShareTimeTables,
    fill_waits,
    tied_exchange_ns,
)
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States

Float = NDArray[np.float64]


def mean_rates(
    estimator: Estimator,
    known: ShareTimeTables,
    states: States,
    weight: Float,
    slowdown: Float,
    rows: OptionRows,
) -> Float:
    """Returns the mean rate (P,) of each row over T states of so much `weight` (T,), of sum 1; domains
    compute `slowdown` (K,) times as long. 0 in a state in which a row cannot run."""
    arrays, rate, width = known.options.arrays, np.zeros(len(rows)), rows.domain.shape[1]
    sizes, row_size = np.unique(rows.size, return_inverse=True)
    some = arrays._replace(message_bytes=arrays.message_bytes[sizes], tied_bytes=arrays.tied_bytes[sizes])
    bps = single_flow_bps(estimator.cluster, states.bandwidth_bps)
    messages = message_times(some, bps[:, None], states.latency_s[:, None])
    each = arrays.class_of, arrays.pp, arrays.micro_batches, np.array(slowdown, np.float64), known.shares
    room = *np.zeros((2, width)), np.zeros((4, width))
    _fill_rates(each, messages, known.mode, rows.arrays, row_size.reshape(-1), weight, room, rate)
    return rate


@njit(borrowing=True, cache=True, nogil=True)
def _fill_rates(tables, messages, mode, rows, row_size, weight, room, rate):  # type: ignore[no-untyped-def]
    """Adds to `rate` (P,). The messages are those of the sizes `row_size` (P,). `room` is for the waits of W
    domains down and up, and for four times of theirs: those that `policy.search.closed_form` adds up."""
    class_of, pp, micro_batches, slowdowns, shares = tables
    down, up, own = room
    for r in range(len(rate)):
        c, n, domain = rows.size[r], rows.shares[r], rows.domain[r]
        m, size, behind, tail, fits = micro_batches[c], row_size[r], 0, 0.0, True
        for i in range(n - 1, -1, -1):
            k, q, held = domain[i], rows.option[r, i], rows.layers[r, i]
            z, slowdown = class_of[k], slowdowns[k]
            ends = 3 if n == 1 else (1 if i == 0 else 0) + (2 if i == n - 1 else 0)
            table, depth = shares[c, z, q, ends], pp[c, z, q]
            fits = fits and table[BEHIND, held] >= behind
            behind += depth
            own[0, i], own[1, i] = table[FIRST, held] * slowdown, table[LAST, held] * slowdown
            own[2, i] = -1.0 if depth == 1 else table[MOST, held] * slowdown
            own[3, i] = table[TOTAL, held] * slowdown
            tail = max(tail, table[ENDS, held])
        for t in range(len(weight) if fits else 0):
            waits = fill_waits(domain, n, messages.occupancy[t, size], messages.latency[t, 0], mode, down, up)
            tied_ns = tied_exchange_ns(domain, n, messages.tied[t, size])
            if waits + tied_ns == np.inf:
                continue
            once = pace = 0.0
            for i in range(n - 1, -1, -1):
                first = own[0, i] + up[i]
                slowest = first + down[i]
                if own[2, i] >= 0.0:
                    slowest = max(first, own[1, i] + down[i], own[2, i])
                pace = max(pace, slowest)
                once += own[3, i] + down[i] + up[i]
            rate[r] += weight[t] / ((once + (m - 1) * pace + tail + tied_ns) / 1e9)
