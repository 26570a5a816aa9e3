"""What going from one plan to another moves, many pairs of tabulated plans at once."""

import numpy as np
from numba import njit

from twin.split import stage_start_compiled


@njit(cache=True, nogil=True)
def _owners(c, count, domain, layers, choice, class_of, pp, tp, dp, where, how):  # type: ignore[no-untyped-def]
    """Per layer the domain that holds it, and a number for width, replicas and stage inside the share."""
    at = 0
    for i in range(count):
        k = domain[i]
        z, q = class_of[k], choice[i]
        depth = pp[c, z, q]
        start = at
        for j in range(depth):
            while at < start + stage_start_compiled(j + 1, depth, layers[i], i == 0, i + 1 == count):
                where[at], how[at] = k, ((tp[c, z, q] << 20) + dp[c] << 20) + j
                at += 1


@njit(cache=True, nogil=True)
def moved_bytes(  # type: ignore[no-untyped-def]
    knob0, count0, domain0, layers0, choice0, knob, count, domain, layers, choice, class_of, pp, tp, dp,
    size, moved, same,
):  # fmt: skip
    """Bytes that go from domain to domain from plan to plan into `moved` (P, K, K), and into `same` (P,)
    which plans are equal. `size` (N,) are the bytes of each layer."""
    n = len(size)
    was, now, was_how, now_how = np.zeros((4, n), np.int64)
    for p in range(len(knob)):
        _owners(knob0[p], count0[p], domain0[p], layers0[p], choice0[p], class_of, pp, tp, dp, was, was_how)
        _owners(knob[p], count[p], domain[p], layers[p], choice[p], class_of, pp, tp, dp, now, now_how)
        same[p] = knob0[p] == knob[p] and count0[p] == count[p]
        for i in range(min(count0[p], count[p])):
            same[p] = same[p] and domain0[p, i] == domain[p, i] and layers0[p, i] == layers[p, i]
            same[p] = same[p] and choice0[p, i] == choice[p, i]
        for layer in range(n):
            i, k = was[layer], now[layer]
            if i != k:
                moved[p, i, k] += size[layer]
            elif was_how[layer] != now_how[layer]:
                moved[p, k, k] += size[layer] * dp[knob[p]]
