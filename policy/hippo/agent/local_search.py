"""Plans one step away from a plan: layers shifted, another arrangement inside a domain, another knob,
another route.

The network proposes, these steps polish. Legality is checked with the same tables as the masks.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from policy.hippo.tables.planning_tables import Codes, Problem

Int = NDArray[np.int64]

SHIFTS = np.array([1, 2, 4, 8], dtype=np.int64)
"""Layers moved between two domains in one step."""


def neighbours(problem: Problem, codes: Codes) -> Codes:
    """Every legal plan one step away from one of `codes`; some may come twice."""
    k, q = problem.k, problem.tables.pp.shape[2]
    knobs = len(problem.knobs)
    room = len(codes) * (len(SHIFTS) * k * k + (k + 1) * q + knobs + 2 * k * k + 2 * k)
    out = np.zeros((room, 2 + 3 * k), dtype=np.int64)
    made = 0
    for row in range(len(codes)):
        made = _neighbours(
            int(codes.knob[row]),
            int(codes.count[row]),
            codes.domain[row],
            codes.layers[row],
            codes.choice[row],
            problem.tables.pp,
            problem.tables.tp,
            problem.class_of,
            knobs,
            SHIFTS,
            out,
            made,
        )
    out = out[:made]
    found = Codes(out[:, 0], out[:, 1], *(out[:, 2 + i * k : 2 + (i + 1) * k] for i in range(3)))
    return found.take(np.flatnonzero(legal(problem, found)))


def legal(problem: Problem, codes: Codes) -> NDArray[np.bool_]:
    """Which plans place every layer, use a domain once and fit in memory, (P,)."""
    masks = problem.masks
    out = np.zeros(len(codes), dtype=np.bool_)
    columns = [np.ascontiguousarray(a) for a in (codes.domain, codes.layers, codes.choice)]
    _valid(
        codes.knob,
        codes.count,
        *columns,
        problem.tables.pp,
        problem.class_of,
        masks.limit,
        masks.whole,
        problem.n,
        out,
    )
    return out


@njit(cache=True)
def _valid(knob, count, domain, layers, choice, pp, class_of, limit, whole, n_layers, out):  # type: ignore[no-untyped-def]
    depths = limit.shape[4]
    for p in range(len(knob)):
        c, n, behind, good = knob[p], n_layers, 0, count[p] > 0
        for i in range(count[p] - 1, -1, -1):
            k, q, taken = domain[p, i], choice[p, i], layers[p, i]
            z = class_of[k]
            stages = pp[c, z, q]
            s = min(behind, depths - 1)
            good = good and stages > 0 and stages <= taken <= n
            for other in range(i):
                good = good and domain[p, other] != k
            if not good:
                break
            good = whole[c, z, q, n, s] if taken == n else taken <= limit[c, z, q, n, s]
            n -= taken
            behind += stages
        out[p] = good and n == 0


@njit(cache=True)
def _put(out, made, c, count, domain, layers, choice):  # type: ignore[no-untyped-def]
    k = len(domain)
    out[made, 0], out[made, 1] = c, count
    for i in range(k):
        live = i < count
        out[made, 2 + i] = domain[i] if live else -1
        out[made, 2 + k + i] = layers[i] if live else 0
        out[made, 2 + 2 * k + i] = choice[i] if live else 0
    return made + 1


@njit(cache=True)
def _alike(pp, tp, c, z, old_tp, old_pp):  # type: ignore[no-untyped-def]
    """The configuration of (c, z) nearest to an old one: same tp if there is one, then the deepest use of
    GPUs.
    """
    best, score = 0, -1e9
    for q in range(pp.shape[2]):
        if pp[c, z, q] == 0:
            continue
        here = tp[c, z, q] * pp[c, z, q] - 0.1 * abs(tp[c, z, q] - old_tp) - 0.01 * abs(pp[c, z, q] - old_pp)
        if here > score:
            best, score = q, here
    return best


@njit(cache=True)
def _neighbours(c, count, domain, layers, choice, pp, tp, class_of, knobs, shifts, out, made):  # type: ignore[no-untyped-def]
    used = np.zeros(len(domain), np.bool_)
    for i in range(count):
        used[domain[i]] = True
    made = _shifted(c, count, domain, layers, choice, shifts, out, made)
    made = _rearranged(c, count, domain, layers, choice, pp.shape[2], out, made)
    made = _knobs_turned(c, count, domain, layers, choice, pp, tp, class_of, knobs, out, made)
    made = _exchanged(c, count, domain, layers, choice, used, pp, tp, class_of, out, made)
    return _resized(c, count, domain, layers, choice, used, pp, tp, class_of, out, made)


@njit(cache=True)
def _shifted(c, count, domain, layers, choice, shifts, out, made):  # type: ignore[no-untyped-def]
    """Layers go from one domain to another; in long pipelines only to the next one."""
    n = layers.copy()
    for a in range(count):
        for b in range(count):
            if a != b and (count <= 8 or abs(a - b) == 1):
                for step in shifts:
                    if n[a] > step:
                        n[a] -= step
                        n[b] += step
                        made = _put(out, made, c, count, domain, n, choice)
                        n[a] += step
                        n[b] -= step
    return made


@njit(cache=True)
def _rearranged(c, count, domain, layers, choice, choices, out, made):  # type: ignore[no-untyped-def]
    """Another inner configuration in one domain, or the same in all."""
    q = choice.copy()
    for other in range(choices):
        for i in range(count):
            if other != choice[i]:
                q[i] = other
                made = _put(out, made, c, count, domain, layers, q)
                q[i] = choice[i]
        q[:count] = other
        made = _put(out, made, c, count, domain, layers, q)
        q[:] = choice
    return made


@njit(cache=True)
def _knobs_turned(c, count, domain, layers, choice, pp, tp, class_of, knobs, out, made):  # type: ignore[no-untyped-def]
    """Another knob, every domain arranged as much like before as it can be."""
    q = choice.copy()
    for knob in range(knobs):
        if knob != c:
            for i in range(count):
                z = class_of[domain[i]]
                q[i] = _alike(pp, tp, knob, z, tp[c, z, choice[i]], pp[c, z, choice[i]])
            made = _put(out, made, knob, count, domain, layers, q)
    return made


@njit(cache=True)
def _exchanged(c, count, domain, layers, choice, used, pp, tp, class_of, out, made):  # type: ignore[no-untyped-def]
    """Two domains of the plan change places, or an unused one takes the place of one."""
    d, q = domain.copy(), choice.copy()
    for a in range(count):
        for b in range(a + 1, count):
            d[a], d[b] = domain[b], domain[a]
            q[a], q[b] = choice[b], choice[a]
            made = _put(out, made, c, count, d, layers, q)
            d[a], d[b] = domain[a], domain[b]
            q[a], q[b] = choice[a], choice[b]
        z = class_of[domain[a]]
        for new in range(len(domain)):
            if not used[new]:
                d[a] = new
                q[a] = _alike(pp, tp, c, class_of[new], tp[c, z, choice[a]], pp[c, z, choice[a]])
                made = _put(out, made, c, count, d, layers, q)
        d[a], q[a] = domain[a], choice[a]
    return made


@njit(cache=True)
def _resized(c, count, domain, layers, choice, used, pp, tp, class_of, out, made):  # type: ignore[no-untyped-def]
    """One domain less (its layers spread evenly), or one more (an even share from everybody)."""
    k, total = len(domain), layers[:count].sum()
    d, n, q = np.zeros(k, np.int64), np.zeros(k, np.int64), np.zeros(k, np.int64)
    for gone in range(count):
        if count > 1:
            at = 0
            for i in range(count):
                if i != gone:
                    d[at], q[at] = domain[i], choice[i]
                    n[at] = (
                        layers[i]
                        + layers[gone] // (count - 1)
                        + (1 if at < layers[gone] % (count - 1) else 0)
                    )
                    at += 1
            made = _put(out, made, c, count - 1, d, n, q)
    for new in range(k):
        if used[new] or count == k:
            continue
        for place in range(count + 1):
            left = total
            for i in range(count + 1):
                old = i if i < place else i - 1
                if i == place:
                    z = class_of[domain[0]]
                    d[i] = new
                    q[i] = _alike(pp, tp, c, class_of[new], tp[c, z, choice[0]], pp[c, z, choice[0]])
                    n[i] = 0
                else:
                    d[i], q[i] = domain[old], choice[old]
                    n[i] = max(layers[old] * count // (count + 1), 1)
                    left -= n[i]
            n[place] = left
            made = _put(out, made, c, count + 1, d, n, q)
    return made
