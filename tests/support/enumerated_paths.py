"""The best sequence of plans by enumeration."""

import numpy as np

Array = np.ndarray


def done(edges: Array, rate: Array, plan: int, start: float, end: float) -> float:
    """Work of a plan between two instants."""
    overlap = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], start), 0, None)
    return float(rate[:, plan] @ overlap)


def enumerated(edges: Array, rate: Array, pause: Array, restart: float, moves: int) -> float:
    """Best work with at most `moves` moves; each leaves or lands at an edge, or leaves upon landing."""

    def rest(plan: int, since: float, left: int) -> float:
        best = done(edges, rate, plan, since, edges[-1])
        for q in range(rate.shape[1]) if left else ():
            if q == plan:
                continue
            d = restart + pause[plan, q]
            instants = {since, *edges.tolist(), *(edges - d).tolist()}
            for leave in sorted(t for t in instants if t >= since and t + d < edges[-1]):
                best = max(best, done(edges, rate, plan, since, leave) + rest(q, leave + d, left - 1))
        return best

    return max(rest(p, 0.0, moves) for p in range(rate.shape[1]))
