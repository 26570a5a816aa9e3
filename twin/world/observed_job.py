"""A job that runs outside, as a service knows it: plan and orders, steps, reasons for its next decision."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from ingest.core.units import to_s
from twin.core.domain import Matrix
from twin.core.plan import Plan
from twin.core.view import OtherJob
from twin.estimation.estimator import Estimator
from twin.filters.slowdown_filter import SlowdownFilter
from twin.scenario.submission import Submission
from twin.world.decision_trigger import TRIGGERS
from twin.world.gpu_allocator import Counts, at_least, counts
from twin.world.orders import Orders
from twin.world.step_accounts import StepAccounts

Json = dict[str, Any]
JobState = Literal["waiting", "placed", "running", "ended"]


@dataclass(slots=True)
class PlanAhead:
    """A plan whose GPUs other jobs still hold: it is ordered when all of `until` have stopped."""

    plan: Plan
    decision: int
    until: set[str] = field(default_factory=set)


class ObservedJob:
    """A submitted job of `size` domains, `since_ns` the time of its submission.

    An order expires after `order_ns`. `emit` is called with type and payload of each fact about it.
    """

    def __init__(
        self, submission: Submission, estimator: Estimator, since_ns: int, order_ns: int,
        emit: Callable[[str, Json], None],
    ) -> None:  # fmt: skip
        self.submission, self.name, self.priority = submission, submission.name, submission.priority
        self.estimator, self.since_ns = estimator, since_ns
        self._size = estimator.cluster.size
        self.orders = Orders(order_ns)
        self.slowdown_filter = SlowdownFilter(self._size)
        self.accounts = StepAccounts(estimator, emit, since_ns)
        self.tokens = 0
        self.active = True
        self.started_ns: int | None = None  # when it first had a plan
        self.ended_ns: int | None = None
        self.ahead: PlanAhead | None = None
        self.reasons: dict[str, list[Any]] = {}
        self.bandwidth_at_decision: Matrix | None = None
        self.decided_ns: int | None = None
        self.decision: int | None = None  # number of the last one

    @property
    def state(self) -> JobState:
        """State of the job: `placed` has a plan and has not said that it runs it."""
        if not self.active:
            return "ended"
        if self.orders.in_force is None:
            return "waiting"
        return "placed" if self.orders.virtual else "running"

    @property
    def rank(self) -> tuple[int, int, str]:
        """Order in which jobs decide at one instant: the greater priority, then the earlier submission."""
        return (-self.priority, self.since_ns, self.name)

    @property
    def held(self) -> Counts:
        """GPUs (K,) of the plan in force, and of the one that is ordered or will be."""
        waiting = self.orders.waiting
        target = waiting.plan if waiting is not None else self.ahead.plan if self.ahead is not None else None
        return at_least(counts(self.orders.in_force, self._size), counts(target, self._size))

    @property
    def preemptible(self) -> bool:
        """False while the job changes its plan."""
        return self.orders.waiting is None and self.ahead is None

    @property
    def obstacle(self) -> str | None:
        """Reason for which nothing is decided for the job now; None: nothing stands against it."""
        if self.orders.waiting is not None:
            return f"order {self.orders.waiting.number} waits for the job"
        if self.ahead is not None:
            return f"its next plan waits for {', '.join(sorted(self.ahead.until))} to stop"
        return None

    def as_seen_by_others(self) -> OtherJob:
        """Returns what the views of other jobs show of this one."""
        return OtherJob(self.name, self.orders.in_force)

    def since_move_s(self, now_ns: int) -> float:
        """Returns the seconds for which the plan in force has been that."""
        return to_s(now_ns - self.orders.since_ns)

    def request(self, trigger: str, *details: Any) -> None:
        """Adds a reason for a decision."""
        self.reasons.setdefault(trigger, []).extend(details)

    def taken_reasons(self) -> dict[str, list[Any]]:
        """Returns all reasons, the most urgent first; none is left."""
        reasons = {name: self.reasons[name] for name in TRIGGERS if name in self.reasons}
        self.reasons = {}
        return reasons
