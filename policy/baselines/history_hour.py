"""`history-hour`: the schedule of plans by hour of the day that would have done most over the past before the
run, free knobs turned.

A change of plan at the begin of an hour is in the schedule only where it pays for its pause every day
(`policy.control.day_schedule`); money has no weight, as in `history`. What it gains over `history` is what
the time of day is worth, and what a policy that forecasts gains over it is what looking ahead is worth.
"""

from collections.abc import Iterator

from policy.baselines.history import History
from policy.control.daily_plans import daily_plans
from policy.control.knobs import default_knobs
from policy.core.protocol import Context, Decision
from twin.core.plan import Plan
from twin.core.view import View


class HistoryHour(History):
    """Follows the best schedule of the day; `history` where less than a week of past is known.

    Where the plan of the hour cannot run, the move to it is made as soon as it can within its hours. A plan
    that replaced another one by need is kept until the schedule moves, as `history` keeps it.
    """

    name = "history-hour"

    def reset(self, context: Context) -> None:
        """Starts a run."""
        super().reset(context)
        self._job = context.estimator.job
        self._history, self._day = context.history, self._schedule(context)
        self._followed: Plan | None = None
        self.kept = History.kept if self._day is None else "the day's schedule keeps the plan"

    def decide(self, view: View) -> Decision:
        """Returns the plan of the hour where the schedule moves to it; else what `history` does."""
        plan = self._of_hour(view)
        if plan is None or view.plan is None or self._followed is None:
            self._followed = plan
        elif plan != self._followed and self._can_run(plan, view):
            self._followed = plan
            job = self._job
            if default_knobs(job, view.plan) != default_knobs(job, plan):
                self._stands_since_ns = None
                return Decision(plan, f"{self._merit(plan, view)}: {plan}")
        return super().decide(view)

    def _schedule(self, context: Context) -> tuple[Plan, ...] | None:
        if context.history is None:
            return None
        free = tuple(domain.gpus for domain in context.cluster.domains)
        assert self._past.states is not None
        found = self._past.best(free, self._past.states)
        return daily_plans(context.estimator, context.history, found, context.restart_s)

    def _of_hour(self, view: View) -> Plan | None:
        if self._day is None or self._history is None:
            return None
        return self._day[self._history.hour(view.now_ns)]

    def _merit(self, plan: Plan, view: View) -> str:
        if self._day is None:
            return f"no week of past is known, so {super()._merit(plan, view)}"
        if plan != self._of_hour(view):
            return super()._merit(plan, view)
        return "most over this hour of the past days, moves paid for"

    def _plans(self, view: View) -> Iterator[Plan]:
        plan = self._of_hour(view)
        if plan is not None and self._can_run(plan, view):
            yield plan
        yield from super()._plans(view)

    def _can_run(self, plan: Plan, view: View) -> bool:
        return not self.estimator.problems(plan, view.free_gpus) and self._runs(plan, view)
