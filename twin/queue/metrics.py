"""Figures of a schedule, all from submit times, starts and ends; the one place that computes them.

wait = start - submit; JCT (flow time) = end - submit; slowdown = JCT / run; bounded slowdown (Feitelson et
al., JSSPP 1997) = max(1, JCT / max(run, tau)) with tau = 10 s, the custom of the field, or 60 s.
Percentiles are interpolated linearly between the two nearest jobs.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ingest.core.units import NS_PER_S
from twin.queue.jobs import UNKNOWN, Float, Int
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
    worst_finish_time_fairness: the largest of the jobs (`finish_time_fairness`).
    unfair_jobs: share of jobs for which it exceeds 1.
    deadlines_met: share of the jobs with a deadline that ended by it; None without any.
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
    worst_finish_time_fairness: float
    unfair_jobs: float
    deadlines_met: float | None
    backfilled: float

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name."""
        return asdict(self)


def figures(done: QueueSchedule) -> QueueFigures:
    """Returns the figures of a schedule of at least one job."""
    wait, jct = waits_s(done), jcts_s(done)
    bounded, bounded_60 = bounded_slowdowns(done), bounded_slowdowns(done, 60.0)
    span_s, jobs = makespan_s(done), done.jobs
    rho = finish_time_fairness(jobs.submit_ns, done.end_ns, jobs.run_ns, jobs.processors, done.processors)
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
        worst_finish_time_fairness=float(rho.max()),
        unfair_jobs=float((rho > 1).mean()),
        deadlines_met=_deadlines_met(done),
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


def finish_time_fairness(submit_ns: Int, end_ns: Int, run_ns: Int, processors: Int, pool: int) -> Float:
    """Returns rho (n,) of Themis (Mahajan et al., NSDI 2020, section 3): JCT over the time that the job takes
    alone on its share of the pool, 1 / N; above 1 sharing has cost it something.

    N is the mean number of jobs that wait or run in its life. On fewer processors than it asks for a job
    takes longer in proportion, on more no less; the paper measures both. A job of no length has 1.
    """
    times, present = _present(submit_ns, end_ns)
    weights = np.diff(times) / NS_PER_S * present
    area = np.concatenate((np.zeros(1), np.cumsum(weights)))  # job-seconds up to each time
    jct_s = (end_ns - submit_ns) / NS_PER_S
    lived = area[np.searchsorted(times, end_ns)] - area[np.searchsorted(times, submit_ns)]
    mean = np.divide(lived, jct_s, out=np.ones(len(jct_s)), where=jct_s > 0)
    alone_s = run_ns / NS_PER_S * np.maximum(1.0, processors * mean / pool)
    return np.divide(jct_s, alone_s, out=np.ones(len(jct_s)), where=alone_s > 0)


def _present(submit_ns: Int, end_ns: Int) -> tuple[Int, Int]:
    """Instants (2 n,) in order at which a job comes or goes, and the jobs present after each but the last."""
    times = np.concatenate((submit_ns, end_ns))
    steps = np.concatenate((np.ones(len(submit_ns), np.int64), -np.ones(len(end_ns), np.int64)))
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(steps[order])[:-1]


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
    times, present = _present(done.jobs.submit_ns, done.end_ns)
    return float((present * (np.diff(times) / NS_PER_S)).sum() / makespan_s(done))


def _processor_s(done: QueueSchedule) -> float:
    return float((done.jobs.run_ns / NS_PER_S * done.jobs.processors).sum())


def _deadlines_met(done: QueueSchedule) -> float | None:
    """Returns the share of deadlines that were met."""
    known = done.jobs.deadline_ns != UNKNOWN
    return float((done.end_ns <= done.jobs.deadline_ns)[known].mean()) if known.any() else None


def _jain_of_users(done: QueueSchedule, bounded: Float) -> float | None:
    """Returns Jain's index of the means of users."""
    known = done.jobs.user != UNKNOWN
    if not known.any():
        return None
    _, user = np.unique(done.jobs.user[known], return_inverse=True)
    return jain(np.bincount(user, bounded[known]) / np.bincount(user))
