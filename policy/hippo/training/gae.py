"""Generalised advantage estimation (Schulman et al. 2016, eq. 16), truncation and termination kept apart."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def advantages(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    *,
    gamma: float,
    lam: float,
) -> tuple[Array, Array]:
    """Advantages and returns, all arrays (T, E): T steps of E environments.

    `next_values[t]` is the value of the observation that step t led to, before any reset. A terminated step
    has no future; a truncated one has (it bootstraps from `next_values`), but the sum of errors ends at both.

        delta_t = r_t + gamma (1 - terminated_t) V(s'_t) - V(s_t)
        A_t     = delta_t + gamma lambda (1 - terminated_t)(1 - truncated_t) A_{t+1}
        return_t = A_t + V(s_t)
    """
    delta = rewards + gamma * ~terminated * next_values - values
    carry = gamma * lam * ~(terminated | truncated)
    result = np.zeros_like(delta)
    running = np.zeros(delta.shape[1])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + carry[t] * running
        result[t] = running
    return result, result + values
