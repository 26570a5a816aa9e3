"""The best schedule of a day: which plan runs in each of its hours, every move paid for with its pause.

Exact over the plans that are given: a dynamic program over hours and plans, for a day that ends with the plan
that it was begun from, so that it repeats.
"""

import numpy as np
from numpy.typing import NDArray

from twin.core.link_history import HOURS

Float = NDArray[np.float64]

HOUR_S = 3600.0


def day_schedule(rates: Float, pauses_s: Float) -> tuple[int, ...]:
    """Returns the plan of each hour (24,) by which most iterations are done.

    `rates` (24, P) are iterations per second in each hour, `pauses_s` (24, P, P) the pause of a move from one
    plan to another at the begin of each hour; 0 on the diagonal. No move takes a day or longer. A tie goes to
    the plan that comes first.
    """
    gains = _gains(rates, pauses_s)
    best, before = gains[0], []
    for gain in gains[1:]:
        through = best[:, :, None] + gain  # (plan before the day, of the hour before, of this hour)
        before.append(through.argmax(axis=1))
        best = through.max(axis=1)
    last = int(best.diagonal().argmax())
    plans = [last]
    for origin in reversed(before):
        plans.append(int(origin[last, plans[-1]]))
    return tuple(reversed(plans))


def _gains(rates: Float, pauses_s: Float) -> Float:
    """Returns iterations (24, P, P) in each hour under a plan, less those that it would have done in the
    pause of the move to it, however many hours that takes."""
    plans = np.arange(rates.shape[1])
    twice = np.concatenate([rates, rates])  # the pause may reach into the next day
    done = np.concatenate([np.zeros((1, len(plans))), np.cumsum(twice, axis=0)])  # iterations / 3600 s
    gains = np.empty_like(pauses_s)
    for hour, pause_s in enumerate(pauses_s):
        end = hour + np.minimum(pause_s / HOUR_S, HOURS)
        whole = end.astype(np.int64)
        lost = done[whole, plans] + (end - whole) * twice[whole, plans] - done[hour]
        gains[hour] = np.where(pause_s < HOURS * HOUR_S, (rates[hour] - lost) * HOUR_S, -np.inf)
    return gains
