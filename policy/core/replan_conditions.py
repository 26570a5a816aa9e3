"""Conditions under which the running plan cannot go on."""

from ingest.core.errors import InfeasibleError
from policy.core.protocol import Decision
from twin.core.view import View
from twin.estimation.estimator import DEAD, Estimator


def usable(estimator: Estimator, view: View) -> bool:
    """Tells whether the running plan is legal on the living GPUs; its links may be dead."""
    return view.plan is not None and not estimator.problems(view.plan, view.free_gpus)


def must_replan(estimator: Estimator, view: View) -> tuple[str, ...]:
    """Returns the reasons why the running plan cannot go on (GPUs lost, a used link dead); empty if it
    can."""
    assert view.plan is not None
    problems = estimator.problems(view.plan, view.free_gpus)
    if problems:
        return tuple(problems)
    if estimator.iter_ns(view.plan, view.forecast.links(), view.slowdown) == DEAD:
        return ("a link that the plan uses is dead",)
    return ()


def nothing_runs(estimator: Estimator, view: View) -> Decision:
    """Returns the decision to hold where no plan can run at present.

    Raises:
        InfeasibleError: the job has not started, so there is nothing to hold.
    """
    if view.plan is not None:
        return Decision(None, "no plan can run with the GPUs and links that are left")
    raise InfeasibleError(
        f"no plan fits {estimator.job.model.name} into {sum(view.free_gpus)} GPUs of "
        f"{estimator.cluster.size} domains; add GPUs, take a smaller model or allow a smaller micro-batch"
    )
