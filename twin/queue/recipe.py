"""A scheduler as data: the order of the queue, and who may overtake its head."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from twin.queue.jobs import Float, Int, QueueJobs
from twin.queue.shares import FairTree

Backfill = Literal["none", "easy", "easy-sjbf", "conservative"]
BACKFILLS: tuple[Backfill, ...] = get_args(Backfill)
"""none: the head of the queue blocks it. easy: whoever does not delay the head may start, in the order of the
queue (Lifka 1995; Mu'alem and Feitelson, TPDS 2001). easy-sjbf: the same, shortest prediction first (Tsafrir,
Etsion and Feitelson, TPDS 2007). conservative: every job has a reservation, which nobody delays (Mu'alem and
Feitelson 2001)."""


Usage = Literal["none", "total", "decayed", "held", "tree"]
USAGES: tuple[Usage, ...] = get_args(Usage)
"""What an order counts of users: nothing; the processor-seconds that their jobs have had; these, each halved
in every half-life since; the processors that they hold now; the decayed ones of accounts, then of users in
them."""
GRAIN = 1e-6
"""Decayed processor-seconds count in such steps, so that equal ones are equal however they were summed."""


@dataclass(frozen=True, eq=False, slots=True)
class JobScorer:
    """A network that scores waiting jobs: widths of its layers, inputs first, and its weights, layer by layer
    (inputs, outputs), then biases, in one array. `scoring.py` plays it."""

    widths: tuple[int, ...]
    weights: Float


@dataclass(frozen=True, slots=True)
class OrderKeys:
    """Keys that sort the queue, lowest first, ties in order of submission; floats, one a job.

    Without `power` a job has its `static` key for ever. With power 1 or 3 its key at a time is
    -(wait / scale)^power x factor, wait in seconds: it falls while the job waits. With a `usage` it is that
    of the jobs of the same user by then; `half_life_s` belongs to "decayed" and "tree", which goes by the
    level fairshares of `tree`. With a `scorer` it is minus the score. Where a submission is not the recorded
    one, `log_weight` x log10 of their ratio is added to the
    static key; `as_recorded` says that such a key cannot be had.
    """

    static: Float
    scale: Float
    factor: Float
    power: Literal[0, 1, 3] = 0
    usage: Usage = "none"
    half_life_s: float = math.inf
    scorer: JobScorer | None = None
    tree: FairTree | None = None
    log_weight: float = 0.0
    as_recorded: bool = False

    @classmethod
    def fixed(cls, key: Float, *, log_weight: float = 0.0, as_recorded: bool = False) -> "OrderKeys":
        """Returns keys that never change."""
        static, ones = np.ascontiguousarray(key, np.float64), np.ones(len(key))
        return cls(static, ones, ones, log_weight=log_weight, as_recorded=as_recorded)

    @classmethod
    def aging(cls, scale: Float, power: Literal[1, 3], factor: Float | None = None) -> "OrderKeys":
        """Returns keys that fall with the wait."""
        ones = np.ones(len(scale))
        return cls(np.zeros(len(scale)), scale, ones if factor is None else factor, power)

    @classmethod
    def of_users(cls, jobs: int, usage: Usage, half_life_s: float = math.inf) -> "OrderKeys":
        """Returns keys that follow what users have had or have, the least first."""
        ones = np.ones(jobs)
        return cls(np.zeros(jobs), ones, ones, usage=usage, half_life_s=half_life_s)

    @classmethod
    def of_accounts(cls, tree: FairTree, half_life_s: float) -> "OrderKeys":
        """Returns keys that follow what accounts have had, and then what users in them have had."""
        ones = np.ones(len(tree.association))
        return cls(0 * ones, ones, ones, usage="tree", half_life_s=half_life_s, tree=tree)

    @classmethod
    def scored(cls, jobs: int, scorer: JobScorer) -> "OrderKeys":
        """Returns keys that a network makes anew in every pass."""
        return cls(np.zeros(jobs), np.ones(jobs), np.ones(jobs), scorer=scorer)


KeysOf = Callable[[QueueJobs, Int], OrderKeys]
"""Keys of jobs whose predicted run times (n,), nanoseconds, are given."""


@dataclass(frozen=True, slots=True)
class QueueRecipe:
    """One scheduler: its name, the order of its queue, its backfill, what it is and who published it."""

    name: str
    keys: KeysOf
    backfill: Backfill
    summary: str
    source: str
