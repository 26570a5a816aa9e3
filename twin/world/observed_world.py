"""The world of a job that runs outside: links and steps as they are reported, triggers as in a simulation.

It takes facts from outside in the order of time (`OUTSIDE`), yields each and what follows from it: filtered
samples, failures, triggers, orders. It is a pure function of them, of the scenario and of the decisions, so
that a service that was killed goes on, and an audit makes a run again, by taking the same facts once more.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import to_ns, to_s
from twin.core.domain import LinkState, Matrix, Pair
from twin.core.facts import Fact, Trigger
from twin.core.plan import Plan, to_json
from twin.core.view import View
from twin.filters.slowdown_filter import SlowdownFilter
from twin.scenario.prepare import PreparedScenario
from twin.world.decision_trigger import TRIGGERS
from twin.world.orders import Orders
from twin.world.sample_rounds import rounds
from twin.world.step_accounts import StepAccounts, steps_in_order
from twin.world.telemetry import moved_links, present_links
from twin.world.totals import Totals

OUTSIDE = (
    "telemetry_received", "decision_requested", "mode_changed", "rollback_requested", "jobs_changed",
    "renewal_requested", "run_continued",
)  # fmt: skip
"""Types of the facts that come from outside; all others follow from them."""
Json = dict[str, Any]


class ObservedWorld:
    """One job of `setup`, observed; iterate over it once, and call `apply` after each `Trigger`.

    Time 0 is the beginning of the service; the filters begin with what the recorded past has taught them.
    `order_s`: seconds for which an order waits for the job. `plan_of` reads a plan that the job reports.
    Decisions for links that moved keep the distance of a telemetry period; failures and requests do not wait.
    While an order waits, reasons for decisions are collected.
    """

    def __init__(
        self, setup: PreparedScenario, outside: Iterable[Fact], *, order_s: float,
        plan_of: Callable[[Json], Plan],
    ) -> None:  # fmt: skip
        self._outside, self._plan_of = outside, plan_of
        self.mode = "shadow"
        self.orders = Orders(to_ns(order_s))
        self.link_filter = setup.link_filter()
        self.slowdown_filter = SlowdownFilter(setup.cluster.size)
        self.estimator = setup.estimator()
        self.accounts = StepAccounts(self.estimator, self._emit)
        self.tokens = 0
        self._totals = Totals(setup.cluster.size)
        self._threshold = setup.scenario.control.change_threshold
        telemetry = setup.scenario.telemetry
        self._gap_ns = to_ns(min(telemetry.period_s, setup.scenario.control.period_s))
        self._gpus = [domain.gpus for domain in setup.cluster.domains]
        self.free_gpus = list(self._gpus)
        self._facts: deque[Fact] = deque()
        self._reasons: dict[str, list[Any]] = {}
        self._bandwidth_at_decision: Matrix | None = None
        self._decisions, self._decided_ns = 0, -self._gap_ns
        self._open: Trigger | None = None
        self.now_ns = 0

    def __iter__(self) -> Iterator[Fact]:
        """Yields every fact from outside and what follows from it."""
        for fact in self._outside:
            self.now_ns = fact.sim_ns
            yield fact
            self._expire()
            getattr(self, f"_on_{fact.type}")(fact.payload)
            self._decide_if_due()
            while self._facts:
                following = self._facts.popleft()
                yield following
                if self._open is not None and following is self._open:
                    raise RuntimeError("a trigger must be answered with `apply` before the world goes on")

    def apply(self, plan: Plan | None) -> None:
        """Takes the decision about the last trigger: an order to the job if the mode is active.

        In shadow mode a plan becomes the virtual one while the job reports none that it runs.
        """
        if self._open is None:
            raise RuntimeError("`apply` answers a trigger; none is open")
        self._open, number = None, self._decisions - 1
        target = plan or (self.orders.in_force if self.orders.virtual else None)
        if self.mode == "active" and target is not None:
            self._order(target, number, "decided")
        elif plan is not None and self.orders.virtual:
            self.orders.run(self.now_ns, plan, virtual=True)

    def glimpse(self) -> View:
        """Returns the view that a decision would have now; nothing changes by it."""
        return self._view("period", self.glimpse_slowdown())

    def glimpse_slowdown(self) -> NDArray[np.float64]:
        """Returns (K,) computing time over nominal that a view would show now; nothing changes by it."""
        return deepcopy(self.slowdown_filter).factor(self.now_ns)

    def _view(self, trigger: str, slowdown: NDArray[np.float64]) -> View:
        return View(
            now_ns=self.now_ns,
            trigger=trigger,
            forecast=self.link_filter.forecast(self.now_ns),
            plan=self.orders.in_force,
            free_gpus=tuple(self.free_gpus),
            slowdown=slowdown,
            since_move_s=to_s(self.now_ns - self.orders.since_ns),
            tokens=float(self.tokens),
        )

    @property
    def obstacle(self) -> str | None:
        """Reason for which no decision is made now, whatever is asked; None: nothing stands against one."""
        if self.mode == "hold":
            return "the service is on hold; `POST /v1/mode` with shadow or active ends that"
        if self.orders.waiting is not None:
            return f"order {self.orders.waiting.number} waits for the job"
        return None

    # -- facts from outside

    def _on_decision_requested(self, requested: Json) -> None:
        by = requested["by"]
        self._request(
            "start" if by == "start" else "period", *([] if by != "pull" else [{"pull": requested["client"]}])
        )

    def _on_mode_changed(self, changed: Json) -> None:
        if self.orders.waiting is not None and changed["mode"] != "active":
            self._close("withdrawn", f"mode is {changed['mode']}")
        self.mode = changed["mode"]
        plan = self.orders.in_force
        if self.mode == "active" and self.orders.waiting is None and self.orders.virtual and plan is not None:
            self._order(plan, self._decisions - 1, f"promoted: {changed['reason']}")

    def _on_rollback_requested(self, requested: Json) -> None:
        """Orders the plan before the one in force; an order that waits is withdrawn."""
        if self.orders.waiting is not None:
            self._close("withdrawn", "rollback")
        if self.orders.earlier:
            self._order(self.orders.earlier[-1], None, f"rollback: {requested['reason']}")

    def _on_jobs_changed(self, changed: Json) -> None:
        """Takes changes of the queue beside the job: nothing follows from them here."""

    def _on_renewal_requested(self, requested: Json) -> None:
        """Ends the run; the one that takes its place begins with `run_continued`."""
        self._reasons = {}
        self._emit("run_finished", {"totals": self._totals.payload()})

    def _on_run_continued(self, before: Json) -> None:
        """Takes what the run before knew at its end, then asks for the first decision."""
        self._take_links(before["links"])
        self._take_machines(
            [[domain, self.now_ns, alive] for domain, alive in enumerate(before["gpus"])],
            [[domain, self.now_ns, slow] for domain, slow in enumerate(before["slowdowns"]) if slow != 1.0],
        )
        self.orders.take_over(
            before["next_order"], [self._plan_of(plan) for plan in before["earlier"]],
        )  # fmt: skip
        self.accounts.begin(before["accounted_ns"])
        if before["plan"] is not None:
            plan = self._plan_of(before["plan"])
            if before["virtual"]:
                self.orders.run(self.now_ns, plan, virtual=True)
            else:
                self._runs(before["accounted_ns"], plan, 0.0)
            self.orders.since_ns = self.now_ns - before["since_ns"]
        self.tokens = before["tokens"]
        self._reasons = {}
        self._request("start", {"after": before["after"]})

    def _on_telemetry_received(self, batch: Json) -> None:
        self._take_links(batch["links"])
        self._take_machines(batch["gpus"], batch["slowdowns"])
        computed = _computed(batch["computed"])
        for ns, seen in steps_in_order(batch["steps"], batch["plans"]):
            if isinstance(seen, dict):
                self._take_plan(ns, seen)
            else:
                self._take_step(ns, seen[2], computed.get(ns, {}))
        self.accounts.flush()

    # -- telemetry

    def _take_links(self, samples: list[list[float]]) -> None:
        size = self.link_filter.size
        for sampled_ns, state in rounds(samples, size, self._gap_ns):
            before = self.link_filter.dead.copy()
            rows, columns = self.link_filter.rows, self.link_filter.columns
            seen = np.flatnonzero(~np.isnan(state.bandwidth_bps[rows, columns]))
            links = rows[seen], columns[seen]
            fields = (*links, state.bandwidth_bps[links], state.latency_s[links])
            taken = [list(row) for row in zip(*(column.tolist() for column in fields), strict=True)]
            self._emit("link_observed", {"sampled_ns": sampled_ns, "samples": taken})
            alarms = self.link_filter.observe(sampled_ns, state)
            if alarms:
                self._request("alarm", [list(pair) for pair in alarms])
            for link in np.flatnonzero(before != self.link_filter.dead):
                self._link_changed((int(rows[link]), int(columns[link])), bool(self.link_filter.dead[link]))
        if samples:
            present = self.link_filter.present_bps(self.now_ns)
            if moved := moved_links(self._bandwidth_at_decision, present, self._threshold):
                self._request("change", [list(pair) for pair in moved])

    def _link_changed(self, pair: Pair, dead: bool) -> None:
        self._emit("link_failed" if dead else "link_restored", {"src": pair[0], "dst": pair[1]})
        self._request("failure" if dead else "repair", {"link": list(pair)})

    def _take_machines(self, gpus: list[list[int]], slowdowns: list[list[float]]) -> None:
        for domain, _, alive in gpus:
            lost, self.free_gpus[domain] = self.free_gpus[domain] - alive, alive
            if lost > 0:
                losses = {"lost_iterations": 0, "lost_tokens": 0}
                self._emit("gpu_failed", {"domain": domain, "gpus": lost, "free": alive, **losses})
                self._request("failure", {"domain": domain})
            elif lost < 0:
                self._emit("gpu_repaired", {"domain": domain, "gpus": -lost, "free": alive})
                self._request("repair", {"domain": domain})
        for slowed, _, factor in slowdowns:
            self._emit("domain_slowed", {"domain": int(slowed), "factor": float(factor)})
            self._observe_slowdown({int(slowed): float(factor)})

    def _take_step(self, ns: int, seconds: float, computed_s: dict[int, float]) -> None:
        plan = self.orders.in_force
        self.tokens += self.estimator.tokens_per_iteration if plan is None else self.estimator.tokens(plan)
        if pace := self.accounts.step(ns, seconds, computed_s):
            self._observe_slowdown(pace)

    def _observe_slowdown(self, factors: dict[int, float]) -> None:
        ratio = np.full(len(self._gpus), np.nan)
        for domain, factor in factors.items():
            ratio[domain] = factor
        self.slowdown_filter.observe(self.now_ns, ratio)
        if slow := self.slowdown_filter.moved(self.now_ns, self._threshold):
            self._request("change", {"domains": slow})

    def _take_plan(self, ns: int, seen: Json) -> None:
        """Takes a report of the job: that it runs a plan, or what became of an order."""
        waiting, state = self.orders.waiting, seen["state"]
        if state == "running":
            self._runs(ns, self._plan_of(seen["plan"]), 0.0)
        elif waiting is not None and seen["order"] == waiting.number:
            self._close(state, seen["reason"])
            if state == "applied":
                self._runs(ns, waiting.plan, seen["pause_s"])

    def _runs(self, ns: int, plan: Plan, pause_s: float) -> None:
        links = LinkState(self.link_filter.present_bps(self.now_ns), np.zeros((len(self._gpus),) * 2))
        self.accounts.run(ns, plan, pause_s, links)
        self.orders.run(self.now_ns, plan, virtual=False)

    # -- orders and decisions

    def _order(self, plan: Plan, decision: int | None, reason: str) -> None:
        order = self.orders.give(self.now_ns, plan, decision, reason)
        payload = {"number": order.number, "decision": decision, "plan": to_json(plan), "reason": reason}
        self._emit("order_given", payload)

    def _close(self, state: str, reason: str) -> None:
        self._emit("order_closed", {"number": self.orders.close().number, "state": state, "reason": reason})

    def _expire(self) -> None:
        if self.orders.expired(self.now_ns):
            self._close("expired", "the job said nothing in time")

    def _request(self, trigger: str, *details: Any) -> None:
        self._reasons.setdefault(trigger, []).extend(details)

    def _decide_if_due(self) -> None:
        """Makes one trigger of all reasons, unless something stands against a decision now."""
        urgent = self._reasons.keys() - {"alarm", "change"}
        early = self.now_ns - self._decided_ns < self._gap_ns
        if not self._reasons or self.obstacle is not None or (early and not urgent):
            return
        reasons = {name: self._reasons[name] for name in TRIGGERS if name in self._reasons}
        self._reasons, trigger = {}, next(iter(reasons))
        view = self._view(trigger, self.slowdown_filter.factor(self.now_ns))
        self._bandwidth_at_decision = view.forecast.bandwidth_bps[0]
        self._emit("state_estimated", {"links": present_links(view.forecast)})
        payload = {"number": self._decisions, "trigger": trigger, "reasons": reasons}
        self._open = Trigger(self.now_ns, "triggered", payload, "", view)
        self._facts.append(self._open)
        self._decisions, self._decided_ns = self._decisions + 1, self.now_ns

    def _emit(self, kind: str, payload: Json) -> None:
        self._totals.add(kind, payload)
        self._facts.append(Fact(self.now_ns, kind, payload))


def _computed(rows: list[list[float]]) -> dict[int, dict[int, float]]:
    """Seconds of computing by the end of the step and domain."""
    found: dict[int, dict[int, float]] = {}
    for ns, domain, seconds in rows:
        found.setdefault(int(ns), {})[int(domain)] = seconds
    return found
