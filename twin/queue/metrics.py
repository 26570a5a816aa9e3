"""Figures of a schedule, all from submit times, starts and ends; the one place that computes them.

wait = start - submit; JCT (flow time) = end - submit; slowdown = JCT / run; bounded slowdown (Feitelson et
al., JSSPP 1997) = max(1, JCT / max(run, tau)) with tau = 10 s, the custom of the field, or 60 s.
Percentiles are interpolated linearly between the two nearest jobs.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ingest.core.units import NS_PER_S
from twin.queue.jobs import UNKNOWN, Float
from twin.queue.simulation import QueueSchedule

TAU_S = 10.0
"""Runs shorter than it count as this long in the bounded slowdown."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The figures that a schedule is judged by.

    utilisation: processor-time used over that of the pool from the first submission to the last end.
    makespan_s: that time.
    jain_users: Jain's index of the users' mean bounded slowdowns, 1 where all are alike; None where no user
        is known.
    backfilled: share of jobs that overtook the head.
    """

    jobs: int
    avg_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    avg_jct_s: float
    p95_jct_s: float
    avg_bounded_slowdown: float
    p95_bounded_slowdown: float
    avg_bounded_slowdown_60s: float
    p95_bounded_slowdown_60s: float
    makespan_s: float
    utilisation: float
    jain_users: float | None
    backfilled: float

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name."""
        return asdict(self)


def figures(done: QueueSchedule) -> QueueFigures:
    """Returns the figures of a schedule of at least one job."""
    wait, jct = waits_s(done), jcts_s(done)
    bounded, bounded_60 = bounded_slowdowns(done), bounded_slowdowns(done, 60.0)
    span_s = makespan_s(done)
    return QueueFigures(
        jobs=len(done.jobs),
        avg_wait_s=float(wait.mean()),
        p95_wait_s=float(np.percentile(wait, 95)),
        max_wait_s=float(wait.max()),
        avg_jct_s=float(jct.mean()),
        p95_jct_s=float(np.percentile(jct, 95)),
        avg_bounded_slowdown=float(bounded.mean()),
        p95_bounded_slowdown=float(np.percentile(bounded, 95)),
        avg_bounded_slowdown_60s=float(bounded_60.mean()),
        p95_bounded_slowdown_60s=float(np.percentile(bounded_60, 95)),
        makespan_s=span_s,
        utilisation=_processor_s(done) / (done.processors * span_s) if span_s else 0.0,
        jain_users=_jain_of_users(done, bounded),
        backfilled=float(done.backfilled.mean()),
    )


def waits_s(done: QueueSchedule) -> Float:
    """Returns waits (n,), seconds."""
    return (done.start_ns - done.jobs.submit_ns) / NS_PER_S


def jcts_s(done: QueueSchedule) -> Float:
    """Returns job completion times (n,), seconds: from submission to end."""
    return (done.end_ns - done.jobs.submit_ns) / NS_PER_S


def bounded_slowdowns(done: QueueSchedule, tau_s: float = TAU_S) -> Float:
    """Returns bounded slowdowns (n,)."""
    return np.maximum(1.0, jcts_s(done) / np.maximum(done.jobs.run_ns / NS_PER_S, tau_s))


def makespan_s(done: QueueSchedule) -> float:
    """Returns seconds from the first submission to the last end."""
    return int(done.end_ns.max() - done.jobs.submit_ns.min()) / NS_PER_S


def jain(values: Float) -> float:
    """Returns Jain's fairness index, (sum x)^2 / (n sum x^2) (Jain, Chiu and Hawe, DEC-TR-301, 1984)."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def flow_statistics(done: QueueSchedule) -> dict[str, float]:
    """Returns average, maximum and root mean square of flow time, slowdown and bounded slowdown, by the names
    that published tables have for them."""
    flow = jcts_s(done)
    columns = {
        "flow_s": flow,
        "slowdown": flow / (done.jobs.run_ns / NS_PER_S),
        "bounded_slowdown": bounded_slowdowns(done),
    }
    found = {}
    for name, column in columns.items():
        found[f"avg_{name}"] = float(column.mean())
        found[f"max_{name}"] = float(column.max())
        found[f"rms_{name}"] = float(np.sqrt((column**2).mean()))
    return found


def utilisation_to_last_start(done: QueueSchedule) -> float:
    """Returns what RLScheduler (SC 2020) calls utilisation: all processor-time over that of the pool from the
    first submission to the last start. It can exceed the utilisation, and 1."""
    span_s = int(done.start_ns.max() - done.jobs.submit_ns.min()) / NS_PER_S
    return _processor_s(done) / (done.processors * span_s)


def mean_jobs_in_system(done: QueueSchedule) -> float:
    """Returns the mean number of jobs that wait or run over the makespan, summed event by event."""
    times = np.concatenate((done.jobs.submit_ns, done.end_ns))
    steps = np.concatenate((np.ones(len(done.jobs), np.int64), -np.ones(len(done.jobs), np.int64)))
    order = np.argsort(times, kind="stable")
    present = np.cumsum(steps[order])[:-1]
    return float((present * (np.diff(times[order]) / NS_PER_S)).sum() / makespan_s(done))


def _processor_s(done: QueueSchedule) -> float:
    return float((done.jobs.run_ns / NS_PER_S * done.jobs.processors).sum())


def _jain_of_users(done: QueueSchedule, bounded: Float) -> float | None:
    """Returns Jain's index of the means of users."""
    known = done.jobs.user != UNKNOWN
    if not known.any():
        return None
    _, user = np.unique(done.jobs.user[known], return_inverse=True)
    return jain(np.bincount(user, bounded[known]) / np.bincount(user))
