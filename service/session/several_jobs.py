"""The jobs of a live run as pages and programs read them: state, decision, plan, order, steps, estimates.

Called in the session's thread, by `Session.ask`; nothing changes by it.
"""

from typing import Any

from service.session.session import Session
from twin.estimation.training_cost import of_iteration
from twin.world.observed_job import ObservedJob

Json = dict[str, Any]
LAST_STEPS = 100
"""Steps over which the mean step time is taken."""
HOUR_S = 3600.0


def lines(session: Session) -> list[Json]:
    """Returns every job that was submitted, those that decide first first, ended ones last."""
    jobs = sorted(session.world.jobs.values(), key=lambda job: (not job.active, job.rank))
    return [_line(session, job) for job in jobs]


def steps(session: Session, name: str) -> Json:
    """Returns what a job has reported of its steps."""
    kept = list(session.state.steps.get(name, ()))[-LAST_STEPS:]
    seconds = [step[2] for step in kept]
    job = session.world.jobs.get(name)
    return {
        "tokens": 0 if job is None else job.tokens,
        "steps": kept[-1][1] if kept else None,
        "last_step_s": seconds[-1] if seconds else None,
        "mean_step_s": sum(seconds) / len(seconds) if seconds else None,
        "last_step_at": session.utc(kept[-1][0]) if kept else None,
    }


def estimate(session: Session, job: ObservedJob) -> Json | None:
    """Returns rates of the plan in force over the links as they are now, and the seconds that its tokens
    still take; None without a plan, or if it stands."""
    world, plan = session.world, job.orders.in_force
    if plan is None or not job.active:
        return None
    links = world.link_filter.forecast(world.now_ns).links()
    found = job.estimator.iteration(plan, links, world.glimpse_slowdown(job.name))
    if found.iter_s == float("inf"):
        return None
    rate, wanted = job.estimator.tokens(plan) / found.iter_s, job.submission.tokens
    return {
        "iteration_s": found.iter_s,
        "tokens_per_s": rate,
        "seconds_left": None if wanted is None else max(0, wanted - job.tokens) / rate,
        "egress_bytes_per_s": float(found.wan_bytes.sum()) / found.iter_s,
        "egress_usd_per_hour": found.usd / found.iter_s * HOUR_S,
        "gpu_usd_per_hour": found.gpu_usd / found.iter_s * HOUR_S,
        "power_w": found.energy_j / found.iter_s,
        "cost": of_iteration(job.estimator, plan, found).to_json(),
        "utilisation": {
            session.setup.cluster.domains[k].name: share
            for k, share in sorted(found.utilisation_by_domain.items())
        },
    }


def _line(session: Session, job: ObservedJob) -> Json:
    published = session.published.jobs.get(job.name)
    spec = job.submission
    return {
        "name": job.name,
        "state": job.state,
        "priority": job.priority,
        "model": spec.spec.model.name,
        "submitted_at": session.utc(job.since_ns),
        "started_at": None if job.started_ns is None else session.utc(job.started_ns),
        "ended_at": None if job.ended_ns is None else session.utc(job.ended_ns),
        "tokens_asked": spec.tokens,
        "plan": None if published is None else published.plan,
        "virtual": job.orders.virtual,
        "order": None if published is None else published.order,
        "obstacle": None if published is None else published.obstacle,
        "decision": None if published is None else published.decision,
        "estimate": estimate(session, job),
        **steps(session, job.name),
    }
