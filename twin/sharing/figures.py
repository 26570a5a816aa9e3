"""Figures of a schedule whose runs were changed, all from its events and states.

wait = first start - submission; JCT = end - submission; bounded slowdown = max(1, JCT / max(run, 10 s)), run
being the time alone on the GPUs that were asked for. Percentiles are interpolated linearly.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ingest.core.units import NS_PER_S
from twin.queue.jobs import UNKNOWN, Int
from twin.queue.metrics import TAU_S, finish_time_fairness
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.progress import ENDED, EVICT, FAULT, REFUSED, SHRINK, STALL, WIDTH, initial

KIND, JOB, RATE = 1, 2, 5
"""Columns of an event; the rate of a fault is the nanoseconds of work that it lost."""
DIGITS = 6
"""Digits behind the point: microseconds, of times that are sums of nanoseconds."""


@dataclass(frozen=True, slots=True)
class SharingFigures:
    """The figures that a schedule of changing jobs is judged by.

    refused: jobs that the scheduler turned away, as it saw that their deadline could not be met.
    deadlines_met: share of the jobs with a deadline that ended by it, refused ones missed; None without any.
    worst_finish_time_fairness, unfair_jobs: as in `twin.queue.metrics`, run alone on the GPUs asked for.
    preemptions: how often a running job lost all its GPUs; most_preemptions: the most of one job.
    changes: resumes, moves and resizes, each of which may pause its job.
    lost_gpu_h: GPU-hours held in pauses. utilisation: GPU-time held over that of the nodes in the makespan.
    restarts, most_restarts: runs that faults of nodes ended, of all jobs and of one; shrinks: runs that went
        on with the GPUs of their other nodes instead.
    evictions: runs that left a slow node.
    lost_work_gpu_h: work that faults lost, in hours of run times x GPUs asked for.
    stalled_gpu_h: GPU-hours held on nodes that had failed until that was noticed.
    availability: share of GPU time in the makespan on nodes that are not out.
    """

    jobs: int
    refused: int
    avg_wait_s: float
    p95_wait_s: float
    avg_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    avg_bounded_slowdown: float
    makespan_s: float
    utilisation: float
    deadlines_met: float | None
    worst_finish_time_fairness: float
    unfair_jobs: float
    preemptions: int
    most_preemptions: int
    changes: int
    lost_gpu_h: float
    restarts: int = 0
    most_restarts: int = 0
    shrinks: int = 0
    evictions: int = 0
    lost_work_gpu_h: float = 0.0
    stalled_gpu_h: float = 0.0
    availability: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name, to microseconds and millionths."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: round(value, DIGITS) if isinstance(value, float) else value for name, value in found.items()
        }


def sharing_figures(done: SharedSchedule) -> SharingFigures:
    """Returns the figures of a schedule of at least one job."""
    jobs, s = done.world.jobs, done.states
    ran = s.status == ENDED
    submit, end = jobs.submit_ns[ran], s.ended[ran]
    wait_s, jct_s = (s.first[ran] - submit) / NS_PER_S, (end - submit) / NS_PER_S
    span_ns = int(end.max() - jobs.submit_ns.min()) if ran.any() else 0
    rho = finish_time_fairness(submit, end, jobs.run_ns[ran], jobs.processors[ran], done.world.gpus)
    run_s = np.maximum(jobs.run_ns[ran] / NS_PER_S, TAU_S)
    return SharingFigures(
        jobs=len(jobs),
        refused=int((s.status == REFUSED).sum()),
        avg_wait_s=_mean(wait_s),
        p95_wait_s=_percentile(wait_s, 95),
        avg_jct_s=_mean(jct_s),
        p95_jct_s=_percentile(jct_s, 95),
        p99_jct_s=_percentile(jct_s, 99),
        avg_bounded_slowdown=_mean(np.maximum(1.0, jct_s / run_s)),
        makespan_s=span_ns / NS_PER_S,
        utilisation=_held_ns(done) / (done.world.gpus * span_ns) if span_ns else 0.0,
        deadlines_met=_met(done),
        worst_finish_time_fairness=float(rho.max()) if len(rho) else 1.0,
        unfair_jobs=_mean(rho > 1),
        preemptions=int(s.preempted.sum()),
        most_preemptions=int(s.preempted.max()),
        changes=int(s.changed.sum()),
        lost_gpu_h=float(s.lost.sum() / NS_PER_S / 3600),
        **_of_faults(done, span_ns),
    )


def _of_faults(done: SharedSchedule, span_ns: int) -> dict[str, Any]:
    """Figures of the faults of nodes, by name."""
    faults, events, jobs = done.world.faults, done.events, done.world.jobs
    if faults is None or not span_ns:
        return {}
    ended = events[events[:, KIND] == FAULT]
    begin_ns = int(jobs.submit_ns.min())
    out_s = faults.outages.out_gpu_s(done.world.capacity, begin_ns, begin_ns + span_ns)
    return {
        "restarts": len(ended),
        "most_restarts": int(np.bincount(ended[:, JOB]).max(initial=0)),
        "shrinks": int((events[:, KIND] == SHRINK).sum()),
        "evictions": int((events[:, KIND] == EVICT).sum()),
        "lost_work_gpu_h": float((ended[:, RATE] * jobs.processors[ended[:, JOB]]).sum() / NS_PER_S / 3600),
        "stalled_gpu_h": stalled_ns(events) / NS_PER_S / 3600,
        "availability": 1.0 - out_s / (done.world.gpus * span_ns / NS_PER_S),
    }


def stalled_ns(events: Int) -> int:
    """Returns the GPU time of jobs that stand still, from their events (events, 6)."""
    found, since = 0, dict[int, tuple[int, int]]()
    for time, kind, job, gpus, *_ in events[np.isin(events[:, KIND], (STALL, FAULT, SHRINK))].tolist():
        if kind == STALL:
            since[job] = time, gpus
        else:
            begin, held = since.pop(job)
            found += (time - begin) * held
    return found


def _mean(values: Any) -> float:
    return float(values.mean()) if len(values) else 0.0


def _percentile(values: Any, percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else 0.0


def _met(done: SharedSchedule) -> float | None:
    """Share of deadlines that were met."""
    deadline, s = done.world.jobs.deadline_ns, done.states
    known = deadline != UNKNOWN
    if not known.any():
        return None
    return float(((s.status == ENDED) & (s.ended <= deadline))[known].mean())


def _held_ns(done: SharedSchedule) -> int:
    """GPU-time that was held; GPUs that several share count once."""
    return int(done.states.held.sum())


def left_alone(world: SharingWorld, start_ns: Int) -> SharedSchedule:
    """Returns the schedule of jobs that start at these times (n,) and are never changed."""
    jobs, states = world.jobs, initial(world.jobs.run_ns, world.nodes)
    states.status[:], states.left[:], states.first[:] = ENDED, 0, start_ns
    states.ended[:], states.executed[:] = start_ns + jobs.run_ns, jobs.run_ns
    states.served[:] = states.held[:] = jobs.run_ns * jobs.processors
    return SharedSchedule(world, np.zeros((0, WIDTH), np.int64), states)
