"""Money, bytes and busy seconds of a live run, folded from its events: by minute, by month, in all.

A step counts with what the job reports of it. Sends and computing times that it does not report are those of
the plan in force. Steps alone are counted: what GPUs cost while the job stands still is not in it.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ingest.core.units import GB, NS_PER_S
from replay.log.events import Event
from replay.log.fold import Fold
from replay.store.decision_codec import plan_from_json
from twin.core.domain import LinkState, Pair
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator

Json = dict[str, Any]
MINUTE_S = 60
MINUTES = 24 * 60
"""Minutes that are kept."""
PLANS = 500
"""Changes of plan that are kept."""
UNLIMITED_BPS = 1e15


@dataclass(slots=True)
class StepSums:
    """Sums over steps; `busy_s` by domain, `sent` bytes by link."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    egress_usd: float = 0.0
    gpu_usd: float = 0.0
    busy_s: dict[int, float] = field(default_factory=dict)
    sent: dict[Pair, int] = field(default_factory=dict)

    @property
    def egress_bytes(self) -> int:
        """Bytes between domains."""
        return sum(self.sent.values())


@dataclass(frozen=True, slots=True, eq=False)
class PlanCosts:
    """Costs of a step of one plan: tokens, sends, nominal computing times, USD a second of its GPUs."""

    tokens: int
    sent: dict[Pair, int]
    busy_s: dict[int, float]
    gpu_usd_per_s: float


class AccountBook(Fold):
    """Accounts of one run; `origin_epoch_ns` is its time 0."""

    def __init__(self, origin_epoch_ns: int, estimator: Estimator) -> None:
        self._origin_ns, self._estimator = origin_epoch_ns, estimator
        self.total = StepSums()
        self.months: dict[str, StepSums] = {}
        self.minutes: OrderedDict[int, StepSums] = OrderedDict()
        """By minutes since the epoch."""
        self.plans: list[Json] = []
        """Plans that were in force: `at` (epoch seconds), `plan`, `virtual`."""
        self._mode, self._virtual, self._ordered = "shadow", True, dict[int, Json]()
        self._plan: Plan | None = None
        self._costs: dict[Plan, PlanCosts] = {}

    # -- which plan is in force

    def _on_mode_changed(self, event: Event, changed: Json) -> None:
        self._mode = changed["mode"]

    def _on_decided(self, event: Event, decided: Json) -> None:
        if decided["plan"] and self._virtual and self._mode != "active":
            self._run(event.sim_ns, decided["plan"], virtual=True)

    def _on_order_given(self, event: Event, order: Json) -> None:
        self._ordered = {order["number"]: order["plan"]}  # one waits at a time

    def _on_order_closed(self, event: Event, closed: Json) -> None:
        plan = self._ordered.pop(closed["number"], None)
        if plan is not None and closed["state"] == "applied":
            self._run(event.sim_ns, plan, virtual=False)

    def _run(self, ns: int, plan: Json, *, virtual: bool) -> None:
        before = self.plans[-1] if self.plans else None
        self._plan, self._virtual = plan_from_json(plan), virtual
        if before is None or before["plan"] != plan or before["virtual"] != virtual:
            at = round((self._origin_ns + ns) / NS_PER_S, 3)
            self.plans = [*self.plans[1 - PLANS :], {"at": at, "plan": plan, "virtual": virtual}]

    # -- steps

    def _on_telemetry_received(self, event: Event, batch: Json) -> None:
        # The world takes the steps of a batch before the plans that it reports.
        sent, busy_s = dict[int, dict[Pair, int]](), dict[int, dict[int, float]]()
        for number, i, j, size, _ in batch["sent"]:
            _add(sent.setdefault(number, {}), {(i, j): size})
        for ns, domain, seconds in batch["computed"]:
            _add(busy_s.setdefault(ns, {}), {domain: seconds})
        for ns, number, seconds in batch["steps"] if self._plan is not None else ():
            self._step(ns, seconds, sent.get(number, {}), busy_s.get(ns, {}))
        for seen in batch["plans"]:
            if seen["state"] == "running":
                self._run(event.sim_ns, seen["plan"], virtual=False)

    def _step(self, ns: int, seconds: float, sent: dict[Pair, int], busy_s: dict[int, float]) -> None:
        costs, epoch_s = self._costs_of_plan(), (self._origin_ns + ns) // NS_PER_S
        sent, busy_s = sent or costs.sent, busy_s or costs.busy_s
        price = self._estimator.cluster.usd_per_gb
        usd = sum(size * price[i][j] for (i, j), size in sent.items()) / GB
        month = datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m")
        minute = self.minutes.setdefault(epoch_s // MINUTE_S, StepSums())
        for account in (self.total, self.months.setdefault(month, StepSums()), minute):
            account.steps += 1
            account.seconds += seconds
            account.tokens += costs.tokens
            account.egress_usd += usd
            account.gpu_usd += costs.gpu_usd_per_s * seconds
            _add(account.sent, sent)
            _add(account.busy_s, busy_s)
        if len(self.minutes) > MINUTES:
            self.minutes.popitem(last=False)

    def _costs_of_plan(self) -> PlanCosts:
        plan = self._plan
        assert plan is not None
        if plan not in self._costs:
            self._costs = {plan: self._costed(plan)}
        return self._costs[plan]

    def _costed(self, plan: Plan) -> PlanCosts:
        size = self._estimator.cluster.size
        quick = LinkState(np.full((size, size), UNLIMITED_BPS), np.zeros((size, size)))
        estimate = self._estimator.iteration(plan, quick)
        domains = [share.domain for share in plan.shares]
        sent = estimate.wan_bytes
        return PlanCosts(
            tokens=self._estimator.tokens(plan),
            sent={(int(i), int(j)): int(sent[i, j]) for i, j in np.argwhere(sent)},
            busy_s=dict(zip(domains, estimate.compute_s, strict=True)),
            gpu_usd_per_s=estimate.gpu_usd / estimate.iter_s,
        )


def _add(sums: dict[Any, Any], more: dict[Any, Any]) -> None:
    for key, value in more.items():
        sums[key] = sums.get(key, 0) + value
