"""Orders whose key a job has from its submission on. Equal keys go by submission, then by job number."""

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.queue.jobs import UNKNOWN, Float, Int, QueueJobs
from twin.queue.recipe import OrderKeys


def fcfs(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """First come, first served: the time of submission."""
    return OrderKeys.fixed(np.zeros(len(jobs)))  # all equal: submission decides


def sjf(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """Shortest job first: the predicted run time."""
    return OrderKeys.fixed(predicted_ns / NS_PER_S)


def ljf(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """Largest job first: processors, most first (Mu'alem and Feitelson, TPDS 2001, as a packing order)."""
    return OrderKeys.fixed(-jobs.processors.astype(np.float64))


def saf(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """Smallest area first: predicted run time x processors (Carastan-Santos, de Camargo, Trystram and Zrigui,
    "One can only gain by replacing EASY Backfilling", CCGrid 2019)."""
    return OrderKeys.fixed(predicted_ns / NS_PER_S * jobs.processors)


def f1(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """F1 of Carastan-Santos and de Camargo (SC 2017, table 4): log10(r) n + 870 log10(s), with r the
    predicted run time and s the submission, seconds since the log began. Where either is not positive it
    counts as 0.1, so that the logarithm exists."""
    key = _log10(predicted_ns) * jobs.processors + 870 * _log10(jobs.submit_ns)
    return OrderKeys.fixed(key, log_weight=870)


def priority(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """Lowest priority number first; jobs that have none come last."""
    if len(jobs) and jobs.priority.max() == UNKNOWN:
        raise UsageError("policy priority: no job has a priority (the queue number of a log); take another")
    key = jobs.priority.astype(np.float64)
    return OrderKeys.fixed(np.where(jobs.priority == UNKNOWN, np.inf, key))


def edf(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """Earliest deadline first (Liu and Layland, JACM 1973); jobs that have none come last."""
    if len(jobs) and jobs.deadline_ns.max() == UNKNOWN:
        raise UsageError("policy edf: no job has a deadline; take another")
    key = jobs.deadline_ns / NS_PER_S
    return OrderKeys.fixed(np.where(jobs.deadline_ns == UNKNOWN, np.inf, key))


def _log10(times_ns: Int) -> Float:
    return np.log10(np.where(times_ns <= 0, 0.1, times_ns / NS_PER_S))
