"""`joint`: `mpc` where several jobs share GPUs and links; domains are granted by a choice for all jobs.

At a decision the job knows the plans of the other running jobs and which jobs wait. Links that others use are
planned at the share that is left (`policy.control.shared_links`). A job without a plan takes the GPUs of its
option in the best choice for itself and all waiting jobs (`policy.control.joint_choice`). A running job keeps
its domains. While others wait that the free GPUs cannot hold, it considers its options inside its own
domains: it gives GPUs up where the waiting jobs gain more than it loses over the horizon, its pause charged
twice as in `policy.control.break_even`, by more than the margin. Domains that become free are offered to a
running job in the same way, when no job waits. What is granted is planned by `mpc`, with the migration
charged. A world without a job list has nothing to grant: there `joint` is `mpc`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ingest.core.units import NS_PER_S
from policy.baselines.mpc import TUNED, Mpc, Tuning
from policy.control.break_even import COST_FACTOR
from policy.control.horizon import pause_s
from policy.control.joint_choice import CHOSEN_TOGETHER, Gpus, Option, best_choice, domains_worth, options
from policy.control.knobs import default_knobs
from policy.control.shared_links import shared_forecast
from policy.core.protocol import Context, Decision
from policy.core.replan_conditions import must_replan
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator


@dataclass(frozen=True, slots=True)
class Sharing:
    """The constants of the joint choice."""

    price: float = 0.2  # of the GPUs of a mean domain, as a share of a job's best rate
    """The one of seven that trains most over past draws (`benchmarks/policy/joint_price.py`)."""


class Joint(Mpc):
    """Plans as `mpc` on the GPUs that the best choice for all present jobs gives to the job that decides."""

    name = "joint"

    def __init__(self, tuning: Tuning = TUNED, sharing: Sharing = Sharing()) -> None:
        super().__init__(tuning)
        self.sharing = sharing

    def reset(self, context: Context) -> None:
        """Starts a run."""
        super().reset(context)
        self._estimator_of = context.estimator_of
        self._reconsidered_for: tuple[Gpus, tuple[str, ...]] | None = None

    def decide(self, view: View) -> Decision:
        """Returns the decision of `mpc` on the granted GPUs and the links that others leave."""
        if not view.job or self._estimator_of is None:
            return super().decide(view)
        view = replace(view, forecast=shared_forecast(view, self._estimator_of))
        granted = self._granted(view)
        return super().decide(replace(view, free_gpus=granted))

    def _granted(self, view: View) -> Gpus:
        """Returns the GPUs (K,) that the job may use now."""
        free, names = tuple(view.free_gpus), waiting_jobs(view)
        if view.plan is None or must_replan(self.estimator, view):
            waiting = [self._options_of(name, view, free) for name in names]
            own = self._options(self.estimator, view, free)
            _, chosen = best_choice(free, [own, *waiting])
            # GPUs are not left idle for a job that is not asked now.
            first = chosen[0] or next(iter(own), None)
            return free if first is None else first.gpus
        held = _held(view.plan, free)
        if self._reconsidered_for == (free, names) or (not names and held == free):
            return held
        self._reconsidered_for = free, names
        return self._reconsidered(view, view.plan, held, names)

    def _reconsidered(self, view: View, plan: Plan, own: Gpus, names: Sequence[str]) -> Gpus:
        """Returns the GPUs of a running job: those of its domains, `own`, or of an option that is better for
        all."""
        free = tuple(view.free_gpus)
        waiting = [self._options_of(name, view, free) for name in names]
        rest = tuple(all_ - kept for all_, kept in zip(free, own, strict=True))
        others_worth, placed = best_choice(rest, waiting)
        inside = self._options(self.estimator, view, own if waiting else free)
        if not inside or (waiting and all(placed)):
            return own
        moved = [self._after_pause(view, plan, option) for option in inside]
        worth, chosen = best_choice(free, [moved, *waiting])
        gain = worth - others_worth - self._worth_of_running(view, plan, inside[0])
        return own if chosen[0] is None or gain <= self.tuning.margin else chosen[0].gpus

    def _options_of(self, name: str, view: View, gpus: Gpus) -> list[Option]:
        """Returns the options of a job that waits."""
        assert self._estimator_of is not None
        return self._options(self._estimator_of(name), view, gpus)

    def _options(self, estimator: Estimator, view: View, gpus: Gpus) -> list[Option]:
        return options(estimator, view.forecast.links(), gpus, view.slowdown, self.sharing.price)

    def _worth_of_running(self, view: View, plan: Plan, best: Option) -> float:
        """Returns the worth of keeping the plan, on the scale of the job's options."""
        ns = self.estimator.iter_ns(
            default_knobs(self.estimator.job, plan), view.forecast.links(), view.slowdown
        )
        gpus = sum(len(share.gpus) for share in plan.shares)
        price = self.sharing.price * domains_worth(self.estimator.cluster, gpus)
        return NS_PER_S / ns * best.share / best.rate - price

    def _after_pause(self, view: View, plan: Plan, option: Option) -> Option:
        """Returns the option with the pause of going there charged over the horizon."""
        move = self.estimator.move(plan, option.plan, view.forecast.links())
        pause = COST_FACTOR * pause_s(self.estimator, move, self.restart_s)
        return replace(option, share=option.share * max(0.0, 1.0 - pause / self.tuning.horizon_s))


def waiting_jobs(view: View) -> tuple[str, ...]:
    """Returns the other jobs without GPUs, the longest wait first, as many as are chosen for at once."""
    return tuple(other.name for other in view.others if other.plan is None)[: CHOSEN_TOGETHER - 1]


def _held(plan: Plan, free_gpus: Gpus) -> Gpus:
    """Returns the GPUs (K,) of the domains that the plan uses, free ones included."""
    return tuple(n if k in plan.order else 0 for k, n in enumerate(free_gpus))
