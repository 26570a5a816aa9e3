"""Neighbours of a plan: layers shifted, another inner configuration, another knob, other domains.

Legality is checked with the tables of the masks.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from policy.hippo.tables.planning_tables import Codes, PlanArrays, PlanningTables

Int = NDArray[np.int64]

SHIFTS = np.array([1, 2, 4, 8], dtype=np.int64)
"""Layers moved between two domains in one step."""


class _Plan(NamedTuple):
    """One coded plan for compiled code; arrays (K,) in pipeline order."""

    knob: int
    shares: int
    domain: Int
    layers: Int
    choice: Int


def neighbours(problem: PlanningTables, codes: Codes) -> Codes:
    """Returns every legal plan one step away from one of `codes`; some may come twice."""
    k, q = problem.k, problem.tables.pp.shape[2]
    knobs = len(problem.knobs)
    room = len(codes) * (len(SHIFTS) * k * k + (k + 1) * q + knobs + 2 * k * k + 2 * k)
    out = np.zeros((room, 2 + 3 * k), dtype=np.int64)
    made = 0
    for row in range(len(codes)):
        columns = codes.domain[row], codes.layers[row], codes.choice[row]
        plan = _Plan(int(codes.knob[row]), int(codes.count[row]), *columns)
        made = _neighbours(plan, problem.shapes, SHIFTS, out, made)
    out = out[:made]
    found = Codes(out[:, 0], out[:, 1], *(out[:, 2 + i * k : 2 + (i + 1) * k] for i in range(3)))
    return found.take(np.flatnonzero(legal(problem, found)))


def legal(problem: PlanningTables, codes: Codes) -> NDArray[np.bool_]:
    """True for each plan that places every layer, uses a domain once and fits in memory, (P,)."""
    out = np.zeros(len(codes), dtype=np.bool_)
    columns = PlanArrays(*(np.ascontiguousarray(column) for column in codes.arrays))
    _valid(columns, problem.masks.tables, problem.n, out)
    return out


@njit(cache=True)
def _valid(plans, masks, n_layers, out):  # type: ignore[no-untyped-def]
    domain, depths = plans.domain, masks.limit.shape[4]
    for p in range(len(plans.knob)):
        c, n, behind, good = plans.knob[p], n_layers, 0, plans.shares[p] > 0
        for i in range(plans.shares[p] - 1, -1, -1):
            k, q, layers = domain[p, i], plans.choice[p, i], plans.layers[p, i]
            z = masks.class_of[k]
            stages = masks.stages[c, z, q]
            s = min(behind, depths - 1)
            good = good and stages > 0 and stages <= layers <= n
            for other in range(i):
                good = good and domain[p, other] != k
            if not good:
                break
            good = masks.whole[c, z, q, n, s] if layers == n else layers <= masks.limit[c, z, q, n, s]
            n -= layers
            behind += stages
        out[p] = good and n == 0


@njit(inner=True, cache=True)
def _put(out, made, knob, count, domain, layers, choice):  # type: ignore[no-untyped-def]
    """Writes a plan into row `made` of `out`; returns the number of rows written."""
    k = len(domain)
    out[made, 0], out[made, 1] = knob, count
    for i in range(k):
        live = i < count
        out[made, 2 + i] = domain[i] if live else -1
        out[made, 2 + k + i] = layers[i] if live else 0
        out[made, 2 + 2 * k + i] = choice[i] if live else 0
    return made + 1


@njit(inner=True, cache=True)
def _nearest_choice(shapes, knob, domain, plan, i):  # type: ignore[no-untyped-def]
    """The configuration of `domain` under `knob` nearest to that of share i: most GPUs used, then nearest tp,
    then nearest pp."""
    old = (plan.knob, shapes.class_of[plan.domain[i]], plan.choice[i])
    old_tp, old_pp, z = shapes.tp[old], shapes.pp[old], shapes.class_of[domain]
    best, score = 0, -1e9
    for q in range(shapes.pp.shape[2]):
        tp, pp = shapes.tp[knob, z, q], shapes.pp[knob, z, q]
        if pp == 0:
            continue
        here = tp * pp - 0.1 * abs(tp - old_tp) - 0.01 * abs(pp - old_pp)
        if here > score:
            best, score = q, here
    return best


@njit(cache=True)
def _neighbours(plan, shapes, shifts, out, made):  # type: ignore[no-untyped-def]
    used = np.zeros(len(plan.domain), np.bool_)
    for i in range(plan.shares):
        used[plan.domain[i]] = True
    made = _shift_layers(plan, shifts, out, made)
    made = _change_choice(plan, shapes.pp.shape[2], out, made)
    made = _change_knob(plan, shapes, out, made)
    made = _exchange_domains(plan, used, shapes, out, made)
    made = _drop_domain(plan, out, made)
    return _add_domain(plan, used, shapes, out, made)


@njit(inner=True, cache=True)
def _shift_layers(plan, shifts, out, made):  # type: ignore[no-untyped-def]
    """Layers go from one domain to another; in long pipelines only to the next one."""
    n, count = plan.layers.copy(), plan.shares
    for a in range(count):
        for b in range(count):
            if a != b and (count <= 8 or abs(a - b) == 1):
                for step in shifts:
                    if n[a] > step:
                        n[a] -= step
                        n[b] += step
                        made = _put(out, made, plan.knob, count, plan.domain, n, plan.choice)
                        n[a] += step
                        n[b] -= step
    return made


@njit(inner=True, cache=True)
def _change_choice(plan, choices, out, made):  # type: ignore[no-untyped-def]
    """Another inner configuration in one domain, or the same in all."""
    q, count = plan.choice.copy(), plan.shares
    for other in range(choices):
        for i in range(count):
            if other != plan.choice[i]:
                q[i] = other
                made = _put(out, made, plan.knob, count, plan.domain, plan.layers, q)
                q[i] = plan.choice[i]
        q[:count] = other
        made = _put(out, made, plan.knob, count, plan.domain, plan.layers, q)
        q[:] = plan.choice
    return made


@njit(inner=True, cache=True)
def _change_knob(plan, shapes, out, made):  # type: ignore[no-untyped-def]
    """Another knob, every domain with the configuration nearest to its own."""
    q = plan.choice.copy()
    for knob in range(shapes.pp.shape[0]):
        if knob != plan.knob:
            for i in range(plan.shares):
                q[i] = _nearest_choice(shapes, knob, plan.domain[i], plan, i)
            made = _put(out, made, knob, plan.shares, plan.domain, plan.layers, q)
    return made


@njit(inner=True, cache=True)
def _exchange_domains(plan, used, shapes, out, made):  # type: ignore[no-untyped-def]
    """Two domains of the plan change places, or an unused one takes the place of one."""
    domain, choice, count = plan.domain, plan.choice, plan.shares
    d, q = domain.copy(), choice.copy()
    for a in range(count):
        for b in range(a + 1, count):
            d[a], d[b] = domain[b], domain[a]
            q[a], q[b] = choice[b], choice[a]
            made = _put(out, made, plan.knob, count, d, plan.layers, q)
            d[a], d[b] = domain[a], domain[b]
            q[a], q[b] = choice[a], choice[b]
        for new in range(len(domain)):
            if not used[new]:
                d[a] = new
                q[a] = _nearest_choice(shapes, plan.knob, new, plan, a)
                made = _put(out, made, plan.knob, count, d, plan.layers, q)
        d[a], q[a] = domain[a], choice[a]
    return made


@njit(inner=True, cache=True)
def _drop_domain(plan, out, made):  # type: ignore[no-untyped-def]
    """One domain less, its layers spread evenly over the others."""
    k, count = len(plan.domain), plan.shares
    d, n, q = np.zeros(k, np.int64), np.zeros(k, np.int64), np.zeros(k, np.int64)
    if count == 1:
        return made
    for gone in range(count):
        each, rest = plan.layers[gone] // (count - 1), plan.layers[gone] % (count - 1)
        at = 0
        for i in range(count):
            if i != gone:
                d[at], q[at] = plan.domain[i], plan.choice[i]
                n[at] = plan.layers[i] + each + (1 if at < rest else 0)
                at += 1
        made = _put(out, made, plan.knob, count - 1, d, n, q)
    return made


@njit(inner=True, cache=True)
def _add_domain(plan, used, shapes, out, made):  # type: ignore[no-untyped-def]
    """One domain more at any place, with an even share of the layers of all others."""
    k, count, total = len(plan.domain), plan.shares, plan.layers[: plan.shares].sum()
    d, n, q = np.zeros(k, np.int64), np.zeros(k, np.int64), np.zeros(k, np.int64)
    for new in range(k):
        if used[new] or count == k:
            continue
        for place in range(count + 1):
            left = total
            for i in range(count + 1):
                if i == place:
                    d[i], n[i] = new, 0
                    q[i] = _nearest_choice(shapes, plan.knob, new, plan, np.int64(0))
                else:
                    old = i if i < place else i - 1
                    d[i], q[i] = plan.domain[old], plan.choice[old]
                    n[i] = max(plan.layers[old] * count // (count + 1), 1)
                    left -= n[i]
            n[place] = left
            made = _put(out, made, plan.knob, count + 1, d, n, q)
    return made
