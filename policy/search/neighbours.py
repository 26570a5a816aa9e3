"""Plans one step away from a plan: layers go from one domain to another, or a domain takes another option."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from policy.search.closed_form import STEPS, Tables
from policy.search.batch_scoring import Rows

Int = NDArray[np.int64]

ALL_PAIRS = 8
"""Domains up to which layers may go from any one to any other; in longer pipelines only to the next one."""


def neighbours(known: Tables, rows: Rows) -> tuple[Rows, Int]:
    """What one step leads to, and from which row: `STEPS` layers from one domain to another, or another (tp,
    pp) in one of them. Not all of it fits in memory."""
    menu, (count, width) = known.menu, rows.domain.shape
    room = count * width * (len(STEPS) * max(ALL_PAIRS - 1, 2) + menu.pp.shape[2])
    origin, option, layers = np.empty(room, np.int64), *np.empty((2, room, width), np.int64)
    made = _neighbours(
        rows.size, rows.count, rows.domain, rows.option, rows.layers, menu.class_of, menu.options, menu.pp,
        STEPS, origin, option, layers,
    )  # fmt: skip
    own = origin[:made]
    return Rows(rows.size[own], rows.count[own], rows.domain[own], option[:made], layers[:made]), own


@njit(cache=True, nogil=True)
def _neighbours(  # type: ignore[no-untyped-def]
    size, count, domain, option, layers, class_of, options, pp, steps, origin, option_out, layers_out
):
    """Fill the last three; how many there are."""
    made, depth = 0, np.zeros(domain.shape[1], np.int64)
    for row in range(len(size)):
        c, n, held = size[row], count[row], layers[row]
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
            for q in range(options[c, z]):
                if q != option[row, i] and pp[c, z, q] <= held[i]:
                    origin[made], option_out[made], layers_out[made] = row, option[row], held
                    option_out[made, i] = q
                    made += 1
    return made
