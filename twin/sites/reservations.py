"""Compiled parts of conservative backfilling over sites: free GPUs of each site over the time to come.

A step function as in `twin/queue/reservations.py`, with a row of sites in place of one number. It is made
anew in every pass from the predicted ends of running jobs, for these follow the links.
"""

from typing import NamedTuple

import numpy as np

from ingest.core.compiled import njit
from twin.queue.jobs import Int


class SiteProfile(NamedTuple):
    """Beginnings of the steps (T,), GPUs free from there on (T, K), the number of steps (1,); of each job the
    begin (-1: none), end and way of its reservation (n,)."""

    at: Int
    free: Int
    steps: Int
    begin: Int
    end: Int
    option: Int


def no_profile(jobs: int, sites: int) -> SiteProfile:
    """Returns room for the reservations of all jobs, none of which has one."""
    room = 2 * jobs + 3
    begin, end, option = (np.full(jobs, -1, np.int64) for _ in range(3))
    return SiteProfile(
        np.zeros(room, np.int64), np.zeros((room, sites), np.int64), np.zeros(1, np.int64), begin, end, option
    )


@njit(inner=True, cache=True, nogil=True)
def restart(profile: SiteProfile, time: int, free: Int) -> None:
    """Lets the profile be what is free now, for ever."""
    profile.at[0], profile.steps[0] = time, 1
    profile.free[0] = free


@njit(inner=True, cache=True, nogil=True)
def _split(profile: SiteProfile, when: int) -> int:
    """Makes a step begin at a time; returns its index."""
    at, free, i = profile.at, profile.free, profile.steps[0]
    while i > 0 and at[i - 1] > when:
        i -= 1
    if i > 0 and at[i - 1] == when:
        return int(i - 1)
    for j in range(profile.steps[0], i, -1):
        at[j] = at[j - 1]
        free[j] = free[j - 1]
    at[i] = when
    free[i] = free[i - 1]
    profile.steps[0] += 1
    return int(i)


@njit(cache=True, nogil=True)
def change(profile: SiteProfile, begin: int, end: int, gpus: Int) -> None:
    """Adds free GPUs (K,) from `begin` to `end`; takes them if negative. Both lie in the profile."""
    first = _split(profile, begin)
    for i in range(first, _split(profile, end)):
        profile.free[i] += gpus


@njit(inner=True, cache=True, nogil=True)
def give_from(profile: SiteProfile, begin: int, gpus: Int) -> None:
    """Adds free GPUs (K,) from `begin` on, for ever."""
    for i in range(_split(profile, begin), profile.steps[0]):
        profile.free[i] += gpus


@njit(inner=True, cache=True, nogil=True)
def lasts(profile: SiteProfile, i: int, end: int, gpus: Int) -> bool:
    """Returns True if GPUs (K,) are free from the i-th step to an end."""
    while i < profile.steps[0] and profile.at[i] < end:
        if not (gpus <= profile.free[i]).all():
            return False
        i += 1
    return True
