"""The arrays of the compiled event loop: what it is given, and the state of a pool."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twin.queue.jobs import Float, Int, QueueJobs
from twin.queue.recipe import BACKFILLS, Backfill, OrderKeys
from twin.queue.reservations import NOT_YET
from twin.queue.rules import QueueRules

NONE, EASY, SJBF, CONSERVATIVE = range(len(BACKFILLS))
FREE, FIRST, WAITING, RUNNING, PREDICTED, CHOSEN, LATEST, SPARE, ENDED, SETTLED = range(10)
"""Places of `Pool.now`: processors free, where the queue begins, jobs waiting, running, in the list by
predicted end, the committed job (-1: none), the latest end of those who overtake the head, the
processors that they may hold longer, 1 if a job has ended since the last pass, and 1 if no waiting job may
start before another ends."""


class Inputs(NamedTuple):
    """Jobs and keys as they are given, one element a job."""

    submit: Int
    run: Int
    processors: Int
    predicted: Int
    scale: Float
    factor: Float
    user: Int


class Flags(NamedTuple):
    """Rules and recipe as numbers."""

    backfill: int
    power: int
    by_user: bool
    submissions_first: bool
    passes_each_event: bool
    frees_predicted: bool
    commits: bool
    spares: bool
    strict: bool
    by_submission: bool


class Pool(NamedTuple):
    """All that changes. `start`, `backfilled`, `released`, `key`: one element a job; `done`, `rate`, `base`:
    a user's processor-seconds of ended jobs, processors in use, and their sum of processors x start."""

    start: Int
    backfilled: NDArray[np.bool_]
    released: NDArray[np.bool_]
    key: Float
    queue: Int
    end_at: Int
    end_of: Int
    predicted_at: Int
    predicted_of: Int
    done: Float
    rate: Float
    base: Float
    now: Int


def inputs_of(jobs: QueueJobs, predicted: Int, keys: OrderKeys) -> Inputs:
    """Returns jobs and keys as arrays; users are numbered only where the order asks for them."""
    users = np.unique(jobs.user, return_inverse=True)[1] if keys.by_user else np.zeros(len(jobs))
    return Inputs(
        jobs.submit_ns, jobs.run_ns, jobs.processors, predicted,
        keys.scale, keys.factor, users.astype(np.int64),
    )  # fmt: skip


def flags_of(keys: OrderKeys, backfill: Backfill, rules: QueueRules) -> Flags:
    """Returns rules and recipe as numbers."""
    return Flags(
        BACKFILLS.index(backfill), keys.power, keys.by_user, rules.submissions_first, rules.passes_each_event,
        rules.frees_predicted, rules.commits, rules.spares, rules.strict, rules.backfills_by_submission,
    )  # fmt: skip


def idle(processors: int, key: Float, users: int) -> Pool:
    """Returns a pool in which nothing has happened."""
    count = len(key)
    start, now = np.full(count, NOT_YET, np.int64), np.zeros(10, np.int64)
    now[FREE], now[CHOSEN] = processors, -1
    backfilled, released = (np.zeros(count, np.bool_) for _ in range(2))
    queue, ends, end_of, predicted, predicted_of = (np.zeros(count + 1, np.int64) for _ in range(5))
    done, rate, base = (np.zeros(users) for _ in range(3))
    return Pool(
        start, backfilled, released, key.copy(), queue, ends, end_of, predicted, predicted_of,
        done, rate, base, now,
    )  # fmt: skip
