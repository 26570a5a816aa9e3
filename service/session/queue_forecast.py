"""Jobs that would be submitted in an order: where and when each starts, or why it does not.

First come, first served: nobody overtakes. A job starts at the first time at which some plan fits the GPUs
that are free then; it takes the fastest one by the present forecast, keeps it to its end, and has the links
to itself. Nothing is changed by the question.
"""

from dataclasses import dataclass
from typing import Any

from service.session.questions import (
    Moment,
    best_of,
    by_domain,
    estimator_of,
    free_beside,
    job_figures,
    seconds_left,
)
from service.session.session import Session

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job to be submitted: `job` replaces keys of the scenario's own, `tokens` is what it trains."""

    model: str
    job: Json
    tokens: int | None


@dataclass(slots=True)
class _Held:
    """GPUs by domain until a time; None: nobody knows the end."""

    gpus: list[int]
    until_s: float | None
    name: str


def queue(session: Session, now: Moment, jobs: list[QueuedJob], left: int | None) -> list[Json]:
    """Returns for each job `starts_in_s`, `ends_in_s` (None: not known), `reason`, figures of its plan.

    `left` is what the present job has still to train; None: it does not end.

    Raises:
        UsageError: an unknown model, or settings that do not fit.
    """
    view = now.view
    present = [have - free for have, free in zip(view.free_gpus, free_beside(view), strict=True)]
    until_s = None if left is None else seconds_left(session, view, left)
    held = [_Held(present, until_s, "the present job")] if any(present) else []
    answers, earliest_s = list[Json](), 0.0
    blocked = ""
    for number, job in enumerate(jobs):
        estimator = estimator_of(session, job.model, job.job)
        answer: Json = {"model": job.model, "starts_in_s": None, "ends_in_s": None, "plan": None}
        answers.append(answer)
        if best_of(estimator, view, list(view.free_gpus)) is None:
            answer["reason"] = "no plan fits it into the cluster, even alone"
            continue  # it never starts: it holds nobody up
        if blocked:
            answer["reason"] = f"it stands behind {blocked}"
            continue
        ends_s = sorted({one.until_s for one in held if one.until_s is not None and one.until_s > earliest_s})
        for at_s in (earliest_s, *ends_s):
            running = [one for one in held if one.until_s is None or one.until_s > at_s]
            free = [have - sum(one.gpus[k] for one in running) for k, have in enumerate(view.free_gpus)]
            found = best_of(estimator, view, free)
            if found is None:
                continue
            figures = job_figures(session, estimator, *found, job.tokens)
            used = [0] * len(free)
            for share in found[0].shares:
                used[share.domain] += len(share.gpus)
            end_s = None if figures["whole"] is None else at_s + figures["whole"]["seconds"]
            held.append(_Held(used, end_s, f"job {number}"))
            answer |= {"starts_in_s": at_s, "ends_in_s": end_s, "gpus": by_domain(session, used)}
            answer |= {"plan": figures, "reason": _reason(at_s, earliest_s, free, session)}
            earliest_s = at_s
            break
        else:
            names = [one.name for one in held if one.until_s is None]
            answer["reason"] = f"it waits for GPUs of {', '.join(names)}, whose end nobody said"
            blocked = f"job {number}, which does not start"
    return answers


def _reason(at_s: float, earliest_s: float, free: list[int], session: Session) -> str:
    if at_s == 0:
        return "it fits now"
    if at_s == earliest_s:
        return "it starts with the job before it: nobody overtakes"
    names = ", ".join(f"{count} in {name}" for name, count in by_domain(session, free).items() if count)
    return f"it waits until GPUs are free: {names}"
