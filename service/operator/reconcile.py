"""From a TrainingPlan and what its cluster has to the actions that are missing; nothing here does them.

The decision is written into the status before anything follows from it, and the children's names carry its
revision. So the actions may stop anywhere, and be made again from what is there: a restart of the operator
needs no memory of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from service.operator.cluster_view import DIGEST, ClusterView
from service.operator.plan_object import Json, PlanObject, PlanState, message


@dataclass(frozen=True, slots=True)
class AdvisedPlan:
    """The best plan for some GPUs and its seconds an iteration, and those of the plan that was given.

    `plan` None: none fits. `given_s` None: no plan was given, or it cannot run.
    """

    plan: Json | None
    iteration_s: float | None
    given_s: float | None
    reason: str = ""


class PlanAdviser(Protocol):
    """A source of plans: the service, or a search of our own."""

    def written(self, plan: PlanObject) -> Json:
        """Returns the plan of the specification.

        Raises:
            InputError, UsageError: it is none.
        """
        ...

    def ask(self, job: tuple[str, int], gpus: Mapping[str, int], given: Json | None) -> AdvisedPlan:
        """Returns the best plan for a job on these GPUs, and the seconds of `given`."""
        ...

    def counts(self, plan: Json) -> dict[str, int]:
        """Returns the GPUs of a plan by domain."""
        ...


@dataclass(frozen=True, slots=True)
class SetStatus:
    """The status becomes this."""

    state: PlanState


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """A child is deleted, with the pods below it."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """A child is applied as this manifest, by server-side apply."""

    manifest: Json


Action = SetStatus | DeleteChild | ApplyChild
Manifests = Callable[[PlanObject, PlanState], Sequence[Json]]


def reconcile(
    plan: PlanObject, view: ClusterView, adviser: PlanAdviser, manifests: Manifests
) -> list[Action]:
    """Returns the actions that are missing, in the order in which they have to be done; none: all is well.

    Raises:
        InputError, UsageError: the specification has no plan that the operator's scenario knows.
    """
    if plan.deleting:
        return [DeleteChild(child.kind, child.name) for child in view.children]
    state = decide(plan, view, adviser)
    actions: list[Action] = [] if state == plan.state else [SetStatus(state)]
    wanted = () if state.plan is None else manifests(plan, state)
    names = {(one["kind"], one["metadata"]["name"]) for one in wanted}
    actions += [DeleteChild(c.kind, c.name) for c in view.children if (c.kind, c.name) not in names]
    actions += [ApplyChild(one) for one in wanted if _missing(one, view)]
    return actions


def _missing(manifest: Json, view: ClusterView) -> bool:
    found = view.child(manifest["kind"], manifest["metadata"]["name"])
    if found is None:
        return True
    # The pods of a JobSet cannot be changed, and it is never made again under its name.
    digest: str = manifest["metadata"]["annotations"][DIGEST]
    return manifest["kind"] != "JobSet" and found.digest != digest


def decide(plan: PlanObject, view: ClusterView, adviser: PlanAdviser) -> PlanState:
    """Returns the state that the object should be in: the one that it has, or another plan."""
    old, has = plan.state, None if plan.state is None else plan.state.plan
    if old is None or has is None or (old.model, old.global_batch) != plan.job:
        return _first(plan, view, adviser)
    old = replace(old, phase=_phase(plan, old, view), fault="")
    changed = old.written != plan.written
    if old.phase == "Finished":
        return _kept(plan, old, "")
    if not _fits(adviser.counts(has), view):
        return _after_loss(plan, old, has, view, adviser)
    if not changed and (old.phase == "Failed" or plan.follow != "better"):
        return _kept(plan, old, "")
    return _moved_if_worth(plan, old, view, adviser, changed=changed)


def refused(plan: PlanObject, why: str, fault: str = "InvalidPlan") -> list[Action]:
    """Returns what is done with a specification that cannot be read: a condition says it, children stay."""
    old = plan.state or PlanState(0, "Failed", "", plan.generation, None, None, "")
    state = replace(old, message=message(why), generation=plan.generation, fault=fault)
    return [] if state == plan.state else [SetStatus(state)]


def worth(plan: PlanObject, old_s: float | None, new_s: float) -> bool:
    """Returns whether a move does more iterations within the horizon, by the margin, its pause counted.

    (H - pause) / new > (1 + margin) H / old; a plan that cannot run (None) is left at once.
    """
    if old_s is None:
        return True
    return (plan.horizon_s - plan.pause_s) / new_s > (1 + plan.min_gain) * plan.horizon_s / old_s


def _first(plan: PlanObject, view: ClusterView, adviser: PlanAdviser) -> PlanState:
    """The plan of the specification; another one where that does not fit or is slower by the margin."""
    written = adviser.written(plan)
    fits = _fits(adviser.counts(written), view)
    if fits and plan.follow != "better":
        answer = adviser.ask(plan.job, view.gpus, written)
        return _next(plan, adviser, written, answer.given_s, "the plan of the specification")
    if plan.follow == "never":
        return _waiting(plan, f"the nodes have {_words(view.gpus)}; the plan needs {_need(adviser, written)}")
    answer = adviser.ask(plan.job, view.gpus, written if fits else None)
    if answer.plan is None or answer.iteration_s is None:
        if fits:
            return _next(plan, adviser, written, answer.given_s, "the plan of the specification")
        return _waiting(plan, f"no plan fits the nodes, which have {_words(view.gpus)}: {answer.reason}")
    slower = answer.given_s is None or answer.iteration_s * (1 + plan.min_gain) < answer.given_s
    if fits and not slower:
        return _next(plan, adviser, written, answer.given_s, "the plan of the specification")
    why = f"faster than that of the specification ({answer.given_s or inf:.3g} s)" if fits else (
        f"the plan of the specification needs {_need(adviser, written)}; the nodes have {_words(view.gpus)}"
    )  # fmt: skip
    return _next(plan, adviser, answer.plan, answer.iteration_s, why)


def _after_loss(
    plan: PlanObject, old: PlanState, has: Json, view: ClusterView, adviser: PlanAdviser
) -> PlanState:
    needs = f"the plan needs {_need(adviser, has)}, the nodes have {_words(view.gpus)}"
    if old.written != plan.written and _fits(adviser.counts(adviser.written(plan)), view):
        written = adviser.written(plan)
        seconds = adviser.ask(plan.job, view.gpus, written).given_s
        return _next(plan, adviser, written, seconds, f"the new plan of the specification; {needs}")
    if plan.follow == "never":
        return _kept(plan, replace(old, phase="Pending"), f"waits: {needs}")
    answer = adviser.ask(plan.job, view.gpus, None)
    if answer.plan is None:
        return _kept(plan, replace(old, phase="Pending"), f"waits: {needs}; none fits these")
    return _next(plan, adviser, answer.plan, answer.iteration_s, f"GPUs were lost: {needs}")


def _moved_if_worth(
    plan: PlanObject, old: PlanState, view: ClusterView, adviser: PlanAdviser, *, changed: bool
) -> PlanState:
    answer = adviser.ask(plan.job, view.gpus, old.plan)
    new, new_s = answer.plan, answer.iteration_s
    if plan.follow != "better":
        new = adviser.written(plan)
        new_s = adviser.ask(plan.job, view.gpus, new).given_s if _fits(adviser.counts(new), view) else None
        if plan.follow == "never" and _fits(adviser.counts(new), view):  # an order, not an offer
            return _next(plan, adviser, new, new_s, "the new plan of the specification")
    if new is None or new_s is None or new == old.plan:
        return _kept(plan, old, "the plan in force stays: no other that runs" if changed else "")
    compared = f"{new_s:.3g} s an iteration against {answer.given_s or inf:.3g} s"
    if not worth(plan, answer.given_s, new_s):
        return _kept(plan, old, f"the plan in force stays: {compared} does not pay for a move")
    return _next(plan, adviser, new, new_s, f"moved: {compared}")


def _next(plan: PlanObject, adviser: PlanAdviser, new: Json, seconds: float | None, why: str) -> PlanState:
    before = 0 if plan.state is None else plan.state.revision
    return PlanState(
        before + 1, "Moving" if before else "Pending", why, plan.generation, *plan.job, plan.written, new,
        adviser.counts(new), None if seconds is None else round(seconds, 6),
    )  # fmt: skip


def _waiting(plan: PlanObject, why: str) -> PlanState:
    before = 0 if plan.state is None else plan.state.revision
    return PlanState(before, "Pending", why, plan.generation, *plan.job, plan.written)


def _kept(plan: PlanObject, old: PlanState, why: str) -> PlanState:
    """The state as it is; its words change with the specification, and while it waits for GPUs."""
    said = why if why and (plan.generation != old.generation or why.startswith("waits")) else old.message
    if plan.state is not None and plan.state.fault and not why:
        said = "the specification can be read again"
    if old.message.startswith("waits") and not why:
        said = "the GPUs are back"
    return replace(old, generation=plan.generation, written=plan.written, message=said)


def _phase(plan: PlanObject, state: PlanState, view: ClusterView) -> str:
    job_set = view.child("JobSet", child_name(plan, state))
    if job_set is None:
        return "Pending" if state.phase == "Running" else state.phase
    if job_set.end is not None:
        return job_set.end
    if job_set.ready:
        return "Running"
    return "Pending" if state.phase == "Running" else state.phase


def child_name(plan: PlanObject, state: PlanState) -> str:
    """Returns the name of the children of a revision."""
    return f"{plan.base}-r{state.revision}"


def _fits(counts: Mapping[str, int], view: ClusterView) -> bool:
    return all(count <= view.gpus.get(domain, 0) for domain, count in counts.items())


def _need(adviser: PlanAdviser, plan: Json) -> str:
    return _words(adviser.counts(plan))


def _words(gpus: Mapping[str, int]) -> str:
    return ", ".join(f"{count} GPUs in {domain}" for domain, count in sorted(gpus.items())) or "no GPUs"
