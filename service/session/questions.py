"""Questions to a live run that change nothing: what it would do now, and whether a job would fit."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ingest.core import config
from ingest.core.errors import InfeasibleError, UsageError
from ingest.core.units import NS_PER_S
from policy.core.protocol import Decision, Policy
from policy.search.batch_scoring import CLOSED_FORM_SCHEDULES
from policy.search.plan_search import best_plans
from replay.run.loop import action
from replay.store.decision_codec import decision_to_json, plan_to_json
from service.session.session import Session
from twin.core.plan_text import with_names
from twin.core.view import View
from twin.estimation.estimator import DEAD, Estimator
from twin.estimation.iteration_estimate import IterationEstimate
from twin.estimation.training_cost import of_iteration
from twin.scenario import cluster_and_jobs
from twin.settings.plan_document import received_plan
from twin.settings.scenario_file import JobSettings

Json = dict[str, Any]
MOST_TIMED = 8_192
"""Micro-batches times chunks of a supposed job whose operations are timed one by one: some ten seconds."""
SHOWN = 8
"""Candidates of a decision that an answer holds, the best first."""


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A live run between two facts: the view of a decision, and a copy of the policy that may be asked."""

    view: View
    policy: Policy
    obstacle: str | None
    mode: str
    virtual: bool
    next_period_s: float
    names: tuple[str, ...]  # of the sites


def moment(session: Session, job: str = "") -> Moment:
    """Returns the run as it is now, for one job. Called in the session's thread, by `Session.ask`.

    Raises:
        NotFoundError, UsageError: no such job is in the run, or none of several is named.
    """
    session.check_job(job)
    world, (context, policy) = session.world, session.by_job[job]
    # Cost models hold no state and may be large: the copy shares them.
    shared = {id(context.estimator): context.estimator}
    return Moment(
        view=world.glimpse(job),
        policy=copy.deepcopy(policy, shared),
        obstacle=world.obstacle_of(job),
        mode=world.mode,
        virtual=world.jobs[job].orders.virtual,
        next_period_s=session.next_period_s(),
        names=tuple(domain.name for domain in session.setup.cluster.domains),
    )


def dry_run(now: Moment, changed: Mapping[tuple[int, int], float], gpus: Mapping[int, int]) -> Json:
    """Returns the decision that the policy would make now, and why it is not made or not carried out.

    `changed` gives links other bandwidths (bit/s, now and in every forecast), `gpus` domains other GPUs.
    """
    view = _altered(now.view, changed, gpus)
    try:
        decision = now.policy.decide(view)
    except InfeasibleError as error:
        decision = Decision(None, str(error), fallback=str(error))
    fallback = None if decision.fallback is None else with_names(decision.fallback, now.names)
    decision = replace(decision, reason=with_names(decision.reason, now.names), fallback=fallback)
    answer = decision_to_json(decision)
    answer["candidates"] = sorted(answer["candidates"], key=lambda c: c["iter_s"] or np.inf)[:SHOWN]
    answer.pop("mask"), answer.pop("log_probability")
    what = action(view.plan, decision.plan)
    return {
        "action": what,
        **answer,
        "plan_in_force": plan_to_json(view.plan),
        "why_not_now": _reasons(now, what, decision, bool(changed or gpus)),
        "next_period_s": round(now.next_period_s, 3),
    }


def _altered(view: View, changed: Mapping[tuple[int, int], float], gpus: Mapping[int, int]) -> View:
    bandwidth = view.forecast.bandwidth_bps.copy()
    for (i, j), bps in changed.items():
        bandwidth[:, i, j] = bps
    free = tuple(gpus.get(k, count) for k, count in enumerate(view.free_gpus))
    return replace(view, forecast=replace(view.forecast, bandwidth_bps=bandwidth), free_gpus=free)


def _reasons(now: Moment, what: str, decision: Decision, supposed: bool) -> list[str]:
    """Why the decision is not in force, in words; the nearest cause first."""
    found = ["the question supposes other links or GPUs"] if supposed else []
    if now.obstacle is not None:
        found.append(now.obstacle)
    if what == "hold":
        found.append(f"the policy keeps the plan: {decision.reason}")
    elif now.mode == "shadow":
        found.append("the service is in shadow mode: it decides and orders nothing")
    if now.obstacle is None:
        found.append(f"nothing calls for a decision yet; the next is due in {now.next_period_s:.0f} s")
    return found


@dataclass(frozen=True, slots=True)
class AdmissionQuestion:
    """A job that is not submitted yet.

    `settings` replace keys of the scenario's job, `tokens` is what it is to train, `left` what the present
    job has still to train, after which its GPUs are free. `gpus` gives domains other GPUs than are known, and
    `plan` is one for the job, whose iteration is timed beside.
    """

    model: str
    settings: Json
    tokens: int | None = None
    left: int | None = None
    gpus: Mapping[int, int] = field(default_factory=dict)
    plan: Json | None = None


def admission(session: Session, now: Moment, asked: AdmissionQuestion) -> Json:
    """Returns when a job not submitted yet could start, and its tokens/s, egress and price on the free GPUs.

    Raises:
        UsageError: an unknown model, settings that do not fit, or a plan that is none for this job.
    """
    view = _altered(now.view, {}, asked.gpus)
    estimator = estimator_of(session, asked.model, asked.settings)
    beside = free_beside(view)
    at_once = best_of(estimator, view, beside)
    alone = best_of(estimator, view, list(view.free_gpus))
    wait_s = None if asked.left is None else seconds_left(session, view, asked.left)
    return {
        "model": asked.model,
        "free_gpus": by_domain(session, beside),
        "starts_in_s": 0.0 if at_once else wait_s if alone else None,
        "given_iteration_s": None if asked.plan is None else _given_s(estimator, view, asked.plan),
        "reason": _why_wait(at_once is not None, alone is not None, wait_s),
        "now": None if at_once is None else job_figures(session, estimator, *at_once, asked.tokens),
        "alone": None if alone is None else job_figures(session, estimator, *alone, asked.tokens),
    }


def estimator_of(session: Session, model: str, settings: Json) -> Estimator:
    """Returns the estimator of another job on this cluster.

    Raises:
        UsageError: an unknown model, or settings that do not fit.
    """
    scenario = session.setup.scenario
    own = config.parse(JobSettings, {**scenario.job.model_dump(mode="json"), **settings}, source="job:")
    if _operations(own) > max(MOST_TIMED, _operations(scenario.job)):
        raise UsageError(
            f"job: {own.global_batch:,} sequences in micro-batches of {min(own.micro_batches)} under "
            f"{own.schedule} are {_operations(own):,} to be timed in each stage; at most {MOST_TIMED:,} are"
        )
    return session.setup.estimator(cluster_and_jobs.job(scenario, model, own))


def _operations(job: JobSettings) -> int:
    """Micro-batches times chunks whose operations a search has to time one by one; 0 where it has a form."""
    if job.schedule in CLOSED_FORM_SCHEDULES:
        return 0
    return job.global_batch // min(job.micro_batches) * job.chunks


def free_beside(view: View) -> list[int]:
    """Returns the GPUs of each domain that the present job does not hold."""
    held = [0] * len(view.free_gpus)
    for share in () if view.plan is None else view.plan.shares:
        held[share.domain] = len(share.gpus)
    return [max(0, free - used) for free, used in zip(view.free_gpus, held, strict=True)]


def _given_s(estimator: Estimator, view: View, value: Json) -> float | None:
    """Seconds of an iteration of a given plan; None: a dead link."""
    plan = received_plan(value)
    if problems := estimator.problem_texts(plan):
        raise UsageError(f"plan: it cannot run: {'; '.join(problems)}")
    ns = estimator.iter_ns(plan, view.forecast.links(), view.slowdown)
    return None if ns == DEAD else ns / NS_PER_S


def _why_wait(now: bool, alone: bool, wait_s: float | None) -> str:
    if now:
        return "it fits beside the present job"
    if not alone:
        return "no plan fits it into the cluster, even alone"
    if wait_s is None:
        return "it fits only when the present job ends, and nobody said how many tokens that has left"
    return "it fits only when the present job has ended"


def best_of(estimator: Estimator, view: View, free: list[int]) -> tuple[Any, IterationEstimate, int] | None:
    """Returns the best plan on the free GPUs, its iteration and its tokens; None: none fits."""
    found = best_plans(estimator, view.forecast.links(), free_gpus=free, slowdown=view.slowdown, top=1)
    if not found:
        return None
    plan = found[0][0]
    return plan, estimator.iteration(plan, view.forecast.links(), view.slowdown), estimator.tokens(plan)


def job_figures(
    session: Session, estimator: Estimator, plan: Any, estimate: IterationEstimate, each: int,
    tokens: int | None,
) -> Json:  # fmt: skip
    """Returns speed, egress and price of a plan, and of `tokens` with it."""
    rate = each / estimate.iter_s
    iterations = None if tokens is None else -(-tokens // each)
    total = (
        {}
        if iterations is None
        else {
            "seconds": iterations * estimate.iter_s,
            "egress_usd": iterations * estimate.usd,
            "gpu_usd": iterations * estimate.gpu_usd,
            "egress_bytes": int(iterations * estimate.wan_bytes.sum()),
        }
    )
    return {
        "plan": plan_to_json(plan),
        "placement": [
            {"domain": session.setup.cluster.domains[share.domain].name, "gpus": len(share.gpus)}
            for share in plan.shares
        ],
        "iteration_s": estimate.iter_s,
        "tokens_per_s": rate,
        "egress_bytes_per_s": float(estimate.wan_bytes.sum()) / estimate.iter_s,
        "egress_usd_per_hour": estimate.usd / estimate.iter_s * 3600,
        "gpu_usd_per_hour": estimate.gpu_usd / estimate.iter_s * 3600,
        "cost": of_iteration(estimator, plan, estimate).to_json(),
        "whole": total or None,
    }


def seconds_left(session: Session, view: View, left: int) -> float:
    """Returns the seconds in which the present job trains `left` tokens."""
    own = session.context.estimator
    if view.plan is None:
        return 0.0
    estimate = own.iteration(view.plan, view.forecast.links(), view.slowdown)
    return left / own.tokens(view.plan) * estimate.iter_s


def by_domain(session: Session, counts: list[int]) -> dict[str, int]:
    """Returns numbers of the domains by their names."""
    return {domain.name: n for domain, n in zip(session.setup.cluster.domains, counts, strict=True)}
