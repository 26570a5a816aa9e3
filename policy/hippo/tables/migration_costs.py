"""What going from one plan to another takes and costs, many pairs of tabulated plans at once."""

import numpy as np
from numba import njit

from ingest.core.units import BITS_PER_BYTE, GB
from twin.core.layer_split import stage_start_compiled


@njit(cache=True, nogil=True, error_model="numpy")
def _owners(c, count, domain, layers, choice, class_of, pp, tp, dp, where, how):  # type: ignore[no-untyped-def]
    """Per layer the domain that holds it, and a number for width, replicas and stage inside the share."""
    at = 0
    for i in range(count):
        k = domain[i]
        z, q = class_of[k], choice[i]
        depth = pp[c, z, q]
        start, shape = at, (tp[c, z, q] << 20) + dp[c] << 20
        for j in range(depth):
            end = start + stage_start_compiled(j + 1, depth, layers[i], i == 0, i + 1 == count)
            where[at:end], how[at:end] = k, shape + j
            at = end


@njit(cache=True, nogil=True)
def _limited_s(moved, limits_bps, latency_s):  # type: ignore[no-untyped-def]
    """Seconds that the limits of domains ask for at least: all that one sends or receives, after the least
    latency on the way, as `twin.moving.move_s` has it."""
    slowest = 0.0
    for k in range(len(moved)):
        for way in range(2):
            size, soonest = 0.0, np.inf
            for other in range(len(moved)):
                i, j = (k, other) if way == 0 else (other, k)
                if i != j and moved[i, j] > 0:
                    size += moved[i, j]
                    soonest = min(soonest, latency_s[i, j])
            if size > 0:
                slowest = max(slowest, soonest + size * BITS_PER_BYTE / limits_bps[way, k])
    return slowest


@njit(cache=True, nogil=True)
def price_moves(  # type: ignore[no-untyped-def]
    knob0, count0, domain0, layers0, choice0, knob, count, domain, layers, choice, class_of, pp, tp, dp,
    layer_bytes, usd_per_gb, fabric_bps, per_node, limits_bps, bandwidth_bps, latency_s, seconds, usd,
):  # fmt: skip
    """Fill the last two (P,) as `Timer.moves` has it; `layer_bytes` (N,), `fabric_bps` (K, 2) inside a node
    and between nodes, `limits_bps` (2, K) of all that a domain sends and receives, infinite where none."""
    n = len(layer_bytes)
    was, now, was_how, now_how = np.zeros((4, n), np.int64)
    moved, limited = np.zeros(usd_per_gb.shape), np.isfinite(limits_bps).any()
    for p in range(len(knob)):
        _owners(knob0[p], count0[p], domain0[p], layers0[p], choice0[p], class_of, pp, tp, dp, was, was_how)
        _owners(knob[p], count[p], domain[p], layers[p], choice[p], class_of, pp, tp, dp, now, now_how)
        same = knob0[p] == knob[p] and count0[p] == count[p]
        for i in range(min(count0[p], count[p])):
            same = same and domain0[p, i] == domain[p, i] and layers0[p, i] == layers[p, i]
            same = same and choice0[p, i] == choice[p, i]
        for layer in range(n):
            i, k = was[layer], now[layer]
            if i != k:
                moved[i, k] += layer_bytes[layer]
            elif was_how[layer] != now_how[layer]:
                moved[k, k] += layer_bytes[layer] * dp[knob[p]]
        slowest, price = _limited_s(moved, limits_bps, latency_s[p]) if limited else 0.0, 0.0
        for a in range(count0[p]):
            for b in range(count[p]):
                i, k = domain0[p, a], domain[p, b]
                size = moved[i, k]
                if i != k and size > 0:
                    bps = min(bandwidth_bps[p, i, k], limits_bps[0, i], limits_bps[1, k])
                    sent_s = size * BITS_PER_BYTE / bps if bps > 0 else np.inf
                    slowest = max(slowest, latency_s[p, i, k] + sent_s)
                    price += size * usd_per_gb[i, k]
                    moved[i, k] = 0.0
        for i in range(count[p]):
            k = domain[p, i]
            at = (knob[p], class_of[k], choice[p, i])
            gpus = dp[knob[p]] * tp[at] * pp[at]
            bps = fabric_bps[k, 1 if gpus > per_node[k] else 0]
            slowest = max(slowest, moved[k, k] * BITS_PER_BYTE / (gpus * bps))
            moved[k, k] = 0.0
        seconds[p], usd[p] = -1.0 if same else slowest, price / GB
