"""The arrays of the compiled event loop: what it is given, and the state of a pool."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twin.queue.jobs import Float, Int, QueueJobs
from twin.queue.recipe import BACKFILLS, USAGES, Backfill, OrderKeys
from twin.queue.reservations import NOT_YET
from twin.queue.rules import QueueRules

NONE, EASY, SJBF, CONSERVATIVE = range(len(BACKFILLS))
UNCOUNTED, TOTAL, DECAYED, HELD, TREE = range(len(USAGES))
FREE, FIRST, WAITING, RUNNING, PREDICTED, CHOSEN, LATEST, SPARE, ENDED, SETTLED = range(10)
"""Places of `Pool.now`: processors free, where the queue begins, jobs waiting, running, in the list by
predicted end, the committed job (-1: none), the latest end of those who overtake the head, the
processors that they may hold longer, 1 if a job has ended since the last pass, and 1 if no waiting job may
start before another ends."""

DONE, RATE, BASE, SHARE, ACCOUNT = range(5)
"""Rows of `Pool.used`: a user's processor-seconds of ended jobs, processors in use, and their sum of
processors x start; if usage decays, the first is all usage as it was at the third, seconds. Then the share,
and the column of the account, -1 for none."""


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
    """Rules and recipe as numbers; `moving`: keys change while jobs wait; `usage`: place in `USAGES`."""

    backfill: int
    power: int
    usage: int
    moving: bool
    submissions_first: bool
    passes_each_event: bool
    frees_predicted: bool
    commits: bool
    spares: bool
    strict: bool
    by_submission: bool


class Scoring(NamedTuple):
    """A network that scores jobs, and the trail of its choices (`scoring.py` has the meaning of columns).

    `fixed`: features that no event changes (n, 3); `history`, `last`: of users; `hidden`, `features`:
    scratch; `row`: place of a waiting job's features in the trail, -1 if it has none (n,); `rows`, `job` of
    each, `eligible`, `decisions`: the trail, as far as `counts` says.
    """

    widths: Int
    weights: Float
    fixed: Float
    history: Float
    last: Int
    hidden: Float
    features: Float
    counts: Int
    row: Int
    rows: Float
    job: Int
    eligible: Int
    decisions: Int


class Pool(NamedTuple):
    """All that changes. `start`, `backfilled`, `released`, `key`: one element a job; `used` (5, users and
    accounts): `DONE`, `RATE`, `BASE`, `SHARE`, `ACCOUNT` of each. `decay` (1,): its rate, 0 for none.
    """

    start: Int
    backfilled: NDArray[np.bool_]
    released: NDArray[np.bool_]
    key: Float
    queue: Int
    end_at: Int
    end_of: Int
    predicted_at: Int
    predicted_of: Int
    used: Float
    decay: Float
    now: Int


def unscored() -> Scoring:
    """Returns the arrays of a pool whose order no network makes."""
    floats, ints, table = np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
    return Scoring(
        ints, floats, np.zeros((0, 0)), floats, table, np.zeros((0, 0)), floats, ints, ints, np.zeros((0, 0)),
        ints, ints, table,
    )  # fmt: skip


def inputs_of(jobs: QueueJobs, predicted: Int, keys: OrderKeys) -> Inputs:
    """Returns jobs and keys as arrays; users are numbered only where the order asks for them. With accounts
    a user in two of them counts as two."""
    asked, tree = keys.usage != "none" or keys.scorer is not None, keys.tree
    users = np.unique(jobs.user, return_inverse=True)[1] if asked else np.zeros(len(jobs))
    return Inputs(
        jobs.submit_ns, jobs.run_ns, jobs.processors, predicted, keys.scale, keys.factor,
        users.astype(np.int64) if tree is None else tree.association,
    )  # fmt: skip


def flags_of(keys: OrderKeys, backfill: Backfill, rules: QueueRules) -> Flags:
    """Returns rules and recipe as numbers."""
    moving = bool(keys.power) or keys.usage != "none" or keys.scorer is not None
    return Flags(
        BACKFILLS.index(backfill), keys.power, USAGES.index(keys.usage), moving, rules.submissions_first,
        rules.passes_each_event, rules.frees_predicted, rules.commits, rules.spares, rules.strict,
        rules.backfills_by_submission,
    )  # fmt: skip


def idle(processors: int, keys: OrderKeys, users: int) -> Pool:
    """Returns a pool in which nothing has happened."""
    key = keys.static
    count = len(key)
    start, now = np.full(count, NOT_YET, np.int64), np.zeros(10, np.int64)
    now[FREE], now[CHOSEN] = processors, -1
    backfilled, released = (np.zeros(count, np.bool_) for _ in range(2))
    queue, ends, end_of, predicted, predicted_of = (np.zeros(count + 1, np.int64) for _ in range(5))
    return Pool(
        start, backfilled, released, key.copy(), queue, ends, end_of, predicted, predicted_of,
        _unused(users, keys), np.array([math.log(2) / keys.half_life_s]), now,
    )  # fmt: skip


def _unused(users: int, keys: OrderKeys) -> Float:
    """Returns the usage of users, and of the accounts behind them, who have had nothing."""
    tree = keys.tree
    used = np.zeros((5, users + (0 if tree is None else len(tree.account_share))))
    used[ACCOUNT] = -1
    if tree is not None and len(tree.account):
        used[SHARE] = np.concatenate((tree.share, tree.account_share))
        used[ACCOUNT, :users] = users + tree.account
    return used
