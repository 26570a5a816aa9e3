"""Pause and egress of migrations between many pairs of coded plans."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE, GB
from twin.core.layer_split import stage_start_compiled


class MoveCosts(NamedTuple):
    """Constants of migrations as arrays for compiled code; C knobs, N layers, K domains."""

    dp: NDArray[np.int64]  # (C,) replicas
    layer_bytes: NDArray[np.float64]  # (N,) moved with a layer
    usd_per_gb: NDArray[np.float64]  # (K, K) egress price
    fabric_bps: NDArray[np.float64]  # (K, 2) inside a node and between nodes
    gpus_per_node: NDArray[np.int64]  # (K,)
    limits_bps: NDArray[np.float64]  # (2, K) of all that a domain sends and receives, infinite where none


@njit(inner=True, cache=True, nogil=True, error_model="numpy")
def _owners(c, count, domain, layers, choice, shapes, dp, domain_of, shape_of):  # type: ignore[no-untyped-def]
    """Fills (N,) the domain of each layer, and a number for tp, dp and stage inside the share."""
    at = 0
    for i in range(count):
        k = domain[i]
        z, q = shapes.class_of[k], choice[i]
        depth = shapes.pp[c, z, q]
        start, shape = at, (shapes.tp[c, z, q] << 20) + dp[c] << 20
        for j in range(depth):
            end = start + stage_start_compiled(j + 1, depth, layers[i], i == 0, i + 1 == count)
            domain_of[at:end], shape_of[at:end] = k, shape + j
            at = end


@njit(inner=True, cache=True, nogil=True)
def _limited_s(moved, limits_bps, latency_s):  # type: ignore[no-untyped-def]
    """Least seconds under the limits of domains: all that one sends or receives, after the least latency, as
    in `twin.costs.migration.move_s`."""
    slowest = 0.0
    for k in range(len(moved)):
        for direction in range(2):
            size, soonest = 0.0, np.inf
            for other in range(len(moved)):
                i, j = (k, other) if direction == 0 else (other, k)
                if i != j and moved[i, j] > 0:
                    size += moved[i, j]
                    soonest = min(soonest, latency_s[i, j])
            if size > 0:
                slowest = max(slowest, soonest + size * BITS_PER_BYTE / limits_bps[direction, k])
    return slowest


@njit(cache=True, nogil=True)
def price_moves(old, new, shapes, costs, bandwidth_bps, latency_s, seconds, usd):  # type: ignore[no-untyped-def]
    """Fills `seconds` and `usd` (P,) as `Timer.moves` returns them; links are (P, K, K)."""
    dp, limits_bps = costs.dp, costs.limits_bps
    n = len(costs.layer_bytes)
    old_domain, new_domain, old_shape, new_shape = np.zeros((4, n), np.int64)
    moved, limited = np.zeros(costs.usd_per_gb.shape), np.isfinite(limits_bps).any()
    for p in range(len(new.knob)):
        c, n_old, n_new = new.knob[p], old.shares[p], new.shares[p]
        _owners(
            old.knob[p], n_old, old.domain[p], old.layers[p], old.choice[p], shapes, dp, old_domain, old_shape
        )
        _owners(c, n_new, new.domain[p], new.layers[p], new.choice[p], shapes, dp, new_domain, new_shape)
        same = old.knob[p] == c and n_old == n_new
        for i in range(min(n_old, n_new)):
            same = same and old.domain[p, i] == new.domain[p, i] and old.layers[p, i] == new.layers[p, i]
            same = same and old.choice[p, i] == new.choice[p, i]
        for layer in range(n):
            i, k = old_domain[layer], new_domain[layer]
            if i != k:
                moved[i, k] += costs.layer_bytes[layer]
            elif old_shape[layer] != new_shape[layer]:
                moved[k, k] += costs.layer_bytes[layer] * dp[c]
        slowest, price = _limited_s(moved, limits_bps, latency_s[p]) if limited else 0.0, 0.0
        for a in range(n_old):
            for b in range(n_new):
                i, k = old.domain[p, a], new.domain[p, b]
                size = moved[i, k]
                if i != k and size > 0:
                    bps = min(bandwidth_bps[p, i, k], limits_bps[0, i], limits_bps[1, k])
                    sent_s = size * BITS_PER_BYTE / bps if bps > 0 else np.inf
                    slowest = max(slowest, latency_s[p, i, k] + sent_s)
                    price += size * costs.usd_per_gb[i, k]
                    moved[i, k] = 0.0
        for i in range(n_new):
            k = new.domain[p, i]
            at = (c, shapes.class_of[k], new.choice[p, i])
            gpus = dp[c] * shapes.tp[at] * shapes.pp[at]
            bps = costs.fabric_bps[k, 1 if gpus > costs.gpus_per_node[k] else 0]
            slowest = max(slowest, moved[k, k] * BITS_PER_BYTE / (gpus * bps))
            moved[k, k] = 0.0
        seconds[p], usd[p] = -1.0 if same else slowest, price / GB
