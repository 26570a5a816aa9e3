"""Iterations of jobs that communicate over shared links, played until they are steady.

An iteration communicates from `begin` after its start, at most at the full rate of its nodes, for `lasts`;
the next one starts when `floor` is over and all is sent. Links are fluid: flows of one rank share them
max-min fairly (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2), a lower rank goes first, in
strict priority. One pause and one overlap in an iteration are the pattern of Crux (Cao et al., SIGCOMM 2024,
section 4.2).
"""

from collections.abc import Sequence
from typing import NamedTuple

COUNTED, SETTLING = 12, 4
"""Iterations of the slowest job that are counted, and those before, in which the jobs fall into step."""
LONGEST = 60
"""Iterations of the longest kind, alone, that are played at most; a job that ends fewer than two starves."""
NEAR = 1e-9
"""Part of an iteration below which two times are one."""


class Pattern(NamedTuple):
    """An iteration: when it begins to communicate, how long that lasts alone at full rate, and when the next
    one starts at the earliest; any unit."""

    begin: float
    lasts: float
    floor: float

    @property
    def alone(self) -> float:
        """Time of an iteration at full rate."""
        return max(self.floor, self.begin + self.lasts)


class LinkFlow(NamedTuple):
    """Communication of a job: its pattern, the links that it goes over, and its rank, lower first."""

    pattern: Pattern
    links: tuple[int, ...]
    rank: int = 0


def link_rates(flows: Sequence[LinkFlow], sending: Sequence[int], capacity: Sequence[float]) -> list[float]:
    """Returns the rate of each of these flows over the full rate of its nodes, 0 where it does not send.

    `capacity`: of each link, in full rates of a node.
    """
    rates, left = [0.0] * len(flows), list(capacity)
    for rank in sorted({flows[one].rank for one in sending}):
        growing = [one for one in sending if flows[one].rank == rank]
        while growing:
            users = dict[int, int]()
            for one in growing:
                for link in flows[one].links:
                    users[link] = users.get(link, 0) + 1
            step = min(1 - rates[one] for one in growing)
            step = max(0.0, min([step, *(left[link] / count for link, count in users.items())]))
            for one in growing:
                rates[one] += step
            for link, count in users.items():
                left[link] -= step * count
            full = {link for link in users if left[link] <= NEAR}
            growing = [
                one for one in growing if rates[one] < 1 - NEAR and not full.intersection(flows[one].links)
            ]
    return rates


def played(flows: Sequence[LinkFlow], capacity: Sequence[float], offset: Sequence[float]) -> list[float]:
    """Returns the mean time of an iteration of each flow once they are steady, infinite for one that starves.

    `offset`: when the first iteration of each starts.
    """
    count, unit = len(flows), min(one.pattern.alone for one in flows)
    near, horizon = NEAR * unit, LONGEST * max(one.pattern.alone for one in flows)
    start, left = list(offset), [one.pattern.lasts for one in flows]
    ends: list[list[float]] = [[] for _ in flows]
    now = 0.0
    while now < horizon and any(len(one) <= SETTLING + COUNTED for one in ends):
        sending = [
            at
            for at, one in enumerate(flows)
            if left[at] > near and now >= start[at] + one.pattern.begin - near
        ]
        rates = link_rates(flows, sending, capacity)
        upcoming = [now + left[at] / rates[at] for at in sending if rates[at] > NEAR]
        for at, one in enumerate(flows):
            if left[at] <= near:
                upcoming.append(max(now, start[at] + one.pattern.floor))
            elif now < start[at] + one.pattern.begin - near:
                upcoming.append(start[at] + one.pattern.begin)
        if not upcoming:
            break
        then = min(upcoming)
        for at in sending:
            left[at] = max(0.0, left[at] - rates[at] * (then - now))
        now = then
        for at in range(count):
            pattern = flows[at].pattern
            if left[at] <= near and now >= start[at] + pattern.floor - near:
                ends[at].append(now)
                start[at], left[at] = now, pattern.lasts
    return [_mean(one) for one in ends]


def _mean(ends: Sequence[float]) -> float:
    """Mean time between ends, those of the first iterations left out where there are more."""
    last = len(ends) - 1
    first = min(SETTLING, last - 1)
    return (ends[last] - ends[first]) / (last - first) if last > 0 else float("inf")
