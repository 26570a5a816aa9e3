"""Orders that follow what users have had, or have."""

from functools import partial

from ingest.core.errors import UsageError
from twin.queue.jobs import UNKNOWN, Int, QueueJobs
from twin.queue.recipe import KeysOf, OrderKeys
from twin.queue.shares import EQUAL, FairShares


def las(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """Least attained service, of the user: the processor-seconds that jobs of the same user have had by now,
    those still running included.

    A job that is never preempted has had nothing while it waits, so that LAS of jobs (Nuyens and Wierman,
    Performance Evaluation 2008) would be first come, first served. Of users it is the rule of share
    schedulers (Kay and Lauder, "A fair share scheduler", CACM 1988), without decay. Jobs without a user count
    as those of one.
    """
    return OrderKeys.of_users(len(jobs), "total")


def drf(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """Dominant resource fairness (Ghodsi et al., NSDI 2011, section 4.1): the user with the smallest dominant
    share now. Processors are the one resource that jobs of a log name, so that their share is the dominant
    one, and the rule is max-min fairness over users. Ties go by submission; the paper leaves them open.
    """
    return OrderKeys.of_users(len(jobs), "held")


def fair_tree(half_life_s: float) -> KeysOf:
    """Returns Fair Tree of Slurm (Cox and Morrison, Slurm User Group 2014) among users of one account with
    equal shares: the user with the least usage, which is halved in every half-life (PriorityDecayHalfLife).
    Usage is that of this very moment; Slurm computes it anew every five minutes (PriorityCalcPeriod). Ties
    go by submission.
    """
    return partial(_fair_tree, half_life_s)


def fair_tree_accounts(half_life_s: float, shares: FairShares = EQUAL) -> KeysOf:
    """Returns the same with accounts above users, and shares of both (`twin/queue/shares.py`)."""
    return partial(_fair_tree_accounts, half_life_s, shares)


def _fair_tree_accounts(
    half_life_s: float, shares: FairShares, jobs: QueueJobs, predicted_ns: Int
) -> OrderKeys:
    if len(jobs) and jobs.account.max() == UNKNOWN:
        raise UsageError("policy fair-tree-accounts: no job has an account (a log's group); take another")
    return OrderKeys.of_accounts(shares.tree(jobs.account, jobs.user), half_life_s)


def _fair_tree(half_life_s: float, jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    return OrderKeys.of_users(len(jobs), "decayed", half_life_s)
