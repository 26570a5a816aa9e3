"""What users have had or have, and the place that it gives their jobs, in plain Python.

The referees sort by it, and the audit of a waiting job; `ordering.py` is the same, compiled.
"""

import math

from ingest.core.units import NS_PER_S
from twin.queue.jobs import Int
from twin.queue.recipe import GRAIN, OrderKeys

Key = float | tuple[float, float]
"""What a queue is sorted by, the lowest first."""
Run = tuple[int, int, int, int]
"""Job, processors, begin, and end; of a job that runs the end lies behind the present."""


def usage_of(keys: OrderKeys, runs: list[tuple[int, int, int]], now: int) -> float:
    """Returns what an order counts of a user with these runs: processors, begin, and end, which lies behind
    `now` for a job that runs."""
    if keys.usage == "held":
        return sum(size for size, _, end in runs if end > now)
    spans = [(size, begin, min(end, now)) for size, begin, end in runs]
    if keys.usage == "total":
        return sum(size * (end - begin) for size, begin, end in spans) / NS_PER_S
    rate = math.log(2) / keys.half_life_s
    worth = (
        size * (math.exp(-rate * ((now - end) / NS_PER_S)) - math.exp(-rate * ((now - begin) / NS_PER_S)))
        for size, begin, end in spans
    )
    return round(sum(worth) / rate / GRAIN)


def usage_key(keys: OrderKeys, user: Int, runs: list[Run], job: int, now: int) -> Key:
    """Returns the key of a job by the usage of its user, or of its account and then of its user in it."""
    if keys.tree is None:
        return usage_of(keys, [run[1:] for run in runs if user[run[0]] == user[job]], now)
    mine, tree = int(keys.tree.association[job]), keys.tree
    account = int(tree.account[mine])
    of_account = [run for run in runs if tree.account[tree.association[run[0]]] == account]
    own = [run for run in of_account if tree.association[run[0]] == mine]
    in_all, in_own = (usage_of(keys, [run[1:] for run in some], now) for some in (of_account, own))
    return (
        -level_fairshare(float(tree.account_share[account]), in_all, 1.0),
        -level_fairshare(float(tree.share[mine]), in_own, in_all),
    )


def level_fairshare(share: float, used: float, used_by_all: float) -> float:
    """Returns share over the part of the siblings' usage: 0 without a share, infinite without usage."""
    if share == 0:
        return 0.0
    return share / (used / used_by_all) if used else math.inf
