"""Plans one step away from a plan: layers moved between two domains, or another option of a domain."""

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from policy.search.batch_scoring import OptionRows
from policy.search.closed_form import STEPS, ShareTimeTables

Int = NDArray[np.int64]

ALL_PAIRS = 8
"""Domains up to which layers may move between any two; in longer pipelines only between adjacent ones."""


def neighbours(known: ShareTimeTables, rows: OptionRows) -> tuple[OptionRows, Int]:
    """Returns the rows one step away, `STEPS` layers moved or another (tp, pp) in one domain, and the index
    of the row that each comes from. Some may not fit in memory."""
    options, (count, width) = known.options.arrays, rows.domain.shape
    room = count * width * (len(STEPS) * max(ALL_PAIRS - 1, 2) + options.pp.shape[2])
    origin, option, layers = np.empty(room, np.int64), *np.empty((2, room, width), np.int64)
    made = _neighbours(rows.arrays, options, STEPS, origin, option, layers)
    own = origin[:made]
    return OptionRows(rows.size[own], rows.count[own], rows.domain[own], option[:made], layers[:made]), own


@njit(cache=True, nogil=True)
def _neighbours(rows, options, steps, origin, option_out, layers_out):  # type: ignore[no-untyped-def]
    """Fills the last three. Returns how many neighbours there are."""
    size, shares, domain, option, layers = rows
    class_of, pp = options.class_of, options.pp
    made, depth = 0, np.zeros(domain.shape[1], np.int64)
    for row in range(len(size)):
        c, n, held = size[row], shares[row], layers[row]
        for i in range(n):
            depth[i] = pp[c, class_of[domain[row, i]], option[row, i]]
        for step in steps:
            for a in range(n):
                for b in range(n):
                    near = n <= ALL_PAIRS or abs(a - b) == 1
                    if a != b and near and held[a] - step >= depth[a]:
                        origin[made], option_out[made], layers_out[made] = row, option[row], held
                        layers_out[made, a] -= step
                        layers_out[made, b] += step
                        made += 1
        for i in range(n):
            z = class_of[domain[row, i]]
            for q in range(options.option_count[c, z]):
                if q != option[row, i] and pp[c, z, q] <= held[i]:
                    origin[made], option_out[made], layers_out[made] = row, option[row], held
                    option_out[made, i] = q
                    made += 1
    return made
