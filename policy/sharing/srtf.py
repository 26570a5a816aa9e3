"""Shortest remaining time and shortest remaining service first, preemptive.

SRTF: the job whose rest is shortest runs first (Schrage, Operations Research 1968). SRSF: rest times GPUs, as
in Gu et al. (Tiresias, NSDI 2019), whose simulator Muri's stands on. Ties: the order of the event before,
those who came later behind. A job that does not fit waits, later ones may start (both simulators). The rest
is what the prediction leaves; the papers take it as known.
"""

from dataclasses import dataclass, field

import numpy as np

from twin.queue.jobs import Int
from twin.sharing import placing
from twin.sharing.view import Allocation, SharingView


@dataclass
class KeptOrder:
    """The order of jobs at the last event, for ties."""

    jobs: Int = field(default_factory=lambda: np.zeros(0, np.int64))

    def sort(self, view: SharingView, key: Int) -> Int:
        """Returns the rows by a key (rows,), lowest first, ties as at the event before, new jobs last."""
        known, row = np.isin(self.jobs, view.job), np.searchsorted(view.job, self.jobs)
        before = row[known]
        new = np.setdiff1d(np.arange(len(view)), before)
        rows = np.concatenate((before, new)).astype(np.int64)
        rows = rows[np.argsort(key[rows], kind="stable")]
        self.jobs = view.job[rows]
        return rows


@dataclass
class Srtf:
    """Shortest remaining time first; with `by_service` remaining time x GPUs."""

    by_service: bool = False
    order: KeptOrder = field(default_factory=KeptOrder)

    def decide(self, view: SharingView) -> Allocation:
        """Returns places for jobs in the order of what is left of them."""
        key = view.left_ns * view.asked if self.by_service else view.left_ns
        return placing.fill(view, self.order.sort(view, key))
