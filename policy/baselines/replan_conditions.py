"""When a policy that otherwise never moves has to: its plan became illegal or cannot run."""

from twin.estimate.estimator import DEAD, Estimator
from twin.core.view import View


def usable(estimator: Estimator, view: View) -> bool:
    """Whether the running plan is legal with the GPUs that live, whatever its links do just now."""
    return view.plan is not None and not estimator.problems(view.plan, view.free_gpus)


def must_replan(estimator: Estimator, view: View) -> tuple[str, ...]:
    """Why the running plan cannot go on (GPUs gone, a used link dead); empty when it can."""
    assert view.plan is not None
    problems = estimator.problems(view.plan, view.free_gpus)
    if problems:
        return tuple(problems)
    if estimator.iter_ns(view.plan, view.forecast.links(), view.slowdown) == DEAD:
        return ("a link that the plan uses is dead",)
    return ()
