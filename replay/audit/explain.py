"""Explains a decision: its candidates, its bottleneck, what baselines would do, where it would change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import InfeasibleError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import GBPS, NS_PER_S
from policy.control.relayed_times import time_ns
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Decision
from policy.core.reference_plan import base_plan
from replay.audit import logged_decisions
from replay.audit.logged_decisions import LoggedDecision, PolicyReplay
from replay.run import loop, runner
from replay.store.decision_codec import plan_from_json
from twin.core.plan import Plan
from twin.core.plan_text import plan_text, with_names
from twin.core.view import View
from twin.estimation.bottleneck import Bottleneck, bottleneck
from twin.estimation.estimator import DEAD, Estimator

Json = dict[str, Any]

REACH = 4.0
"""A tipping point is searched between 1/4 and 4 times the filtered bandwidth."""
PROBES = 3
"""Bandwidths tried on each side, from the near one on, before bisection: factors 4^(1/3) = 1.59, 4^(2/3), 4
and their inverses."""
PRECISION = 0.01
"""Relative width at which bisection stops."""


@dataclass(frozen=True, slots=True)
class Tipping:
    """A bandwidth of one link at which the decision changes, all else as in the view: the first that `PROBES`
    find. A change that is reversed between two probes is not found."""

    link: tuple[int, int]
    seen_bps: float
    threshold_bps: float
    direction: str  # "above" or "below": side of the threshold on which the decision differs
    answer: str  # the decision there, in words

    def sentence(self, names: tuple[str, ...]) -> str:
        """Returns, for example, "would hold if B(a->b) > 2.1 Gb/s"."""
        source, target = (names[k] for k in self.link)
        sign = ">" if self.direction == "above" else "<"
        return (
            f"would {with_names(self.answer, names)} if B({source}->{target}) {sign} "
            f"{self.threshold_bps / GBPS:.3g} Gb/s "
            f"(seen: {self.seen_bps / GBPS:.3g})"
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """One decision with its causes and alternatives."""

    run_id: str
    number: int
    at_s: float
    trigger: str
    reasons: Json  # triggers with their details
    action: str
    reason: str
    fallback: str | None
    chosen: str | None  # the plan in force afterwards
    binding: str | None  # slowest cycle of its pipeline under the links of the view
    limit: Bottleneck | None  # what would be saved there without each resource
    candidates: tuple[Json, ...]
    reward: Json  # expected components for the plan in force afterwards
    baselines: dict[str, Json]
    tipping: tuple[Tipping, ...]
    tipping_text: tuple[str, ...]
    traffic_bytes: tuple[tuple[float, ...], ...]  # (K, K) per iteration of the plan in force afterwards
    domains: tuple[str, ...]

    def to_json(self) -> Json:
        """The object of `twin audit --decision N --json`, without the record itself."""
        return {
            "run": self.run_id,
            "number": self.number,
            "at_s": self.at_s,
            "trigger": self.trigger,
            "reasons": self.reasons,
            "action": self.action,
            "reason": self.reason,
            "fallback": self.fallback,
            "chosen": self.chosen,
            "binding": self.binding,
            "limit": None if self.limit is None else self.limit.to_json(),
            "candidates": list(self.candidates),
            "reward": self.reward,
            "baselines": self.baselines,
            "tipping": [
                {
                    "src": self.domains[t.link[0]],
                    "dst": self.domains[t.link[1]],
                    "seen_bps": t.seen_bps,
                    "threshold_bps": t.threshold_bps,
                    "direction": t.direction,
                    "answer": with_names(t.answer, self.domains),
                    "text": text,
                }
                for t, text in zip(self.tipping, self.tipping_text, strict=True)
            ],
            "traffic_bytes": [list(row) for row in self.traffic_bytes],
            "domains": list(self.domains),
        }


def explain(store: Path, run_id: str, number: int, *, progress: Progress = SILENT) -> Explanation:
    """Explains decision `number` of a run from its log.

    Raises:
        NotFoundError: no such run or decision, or its data set or checkpoint is gone.
    """
    recorded = logged_decisions.find(store, run_id, number)
    return of_recorded(logged_decisions.prepared_run(store, run_id), recorded, progress)


def of_recorded(
    prepared: runner.PreparedRun, recorded: LoggedDecision, progress: Progress = SILENT
) -> Explanation:
    """Explains a decision of a prepared run."""
    said, view = recorded.event.payload, recorded.view
    estimator = prepared.context.estimator
    names = tuple(domain.name for domain in prepared.setup.cluster.domains)
    after = plan_from_json(said["plan"]) or view.plan
    links = links_of(estimator, after, view.plan)
    baselines = logged_decisions.baselines(prepared, recorded)
    tipping = tipping_points(logged_decisions.policy_replay(prepared, recorded), view, links, progress)
    estimate = estimator.iteration(after, view.forecast.links(), view.slowdown) if after else None
    traffic = np.zeros((len(names), len(names))) if estimate is None else estimate.wan_bytes
    return Explanation(
        run_id=recorded.run_id,
        number=said["number"],
        at_s=recorded.event.sim_ns / NS_PER_S,
        trigger=view.trigger,
        reasons=dict(recorded.trigger.payload.get("reasons", {})),
        action=said["action"],
        reason=with_names(said["reason"], names),
        fallback=said["fallback"] and with_names(said["fallback"], names),
        chosen=None if after is None else plan_text(after, names),
        binding=None if estimate is None else estimate.binding,
        limit=None if after is None else bottleneck(estimator, after, view.forecast.links(), view.slowdown),
        candidates=tuple({**one, "plan": plan_text(one["plan"], names)} for one in said["candidates"]),
        reward=reward(prepared, view, after, said["extra"].get("weights")),
        baselines={name: _ask(prepared, each, view, names) for name, each in baselines.items()},
        tipping=tipping,
        tipping_text=tuple(point.sentence(names) for point in tipping),
        traffic_bytes=tuple(tuple(float(size) for size in row) for row in traffic),
        domains=names,
    )


def reward(
    prepared: runner.PreparedRun, view: View, plan: Plan | None, weights: Sequence[float] | None = None
) -> Json:
    """Returns the expected components of the objective for the plan under the links of the view, relative to
    the base plan, and beside them the seconds that moving to the plan takes. `weights` are those in force
    where they adapt.
    """
    nothing: Json = {"efficiency": None, "utilisation": None, "cost": None, "total": None, "move_s": None}
    base = base_plan(prepared.context.estimator, view)
    if plan is None or base is None:
        return nothing
    own, other = _outcome(prepared, view, plan), _outcome(prepared, view, base)
    if not (np.isfinite(own.iter_s) and np.isfinite(other.iter_s)):
        return nothing
    parts = {
        name: Objective(weights, other).value(own)
        for name, weights in (("efficiency", (1, 0, 0)), ("utilisation", (0, 1, 0)), ("cost", (0, 0, 1)))
    }
    move_s = prepared.context.estimator.move(view.plan, plan, view.forecast.links()).seconds
    speed, utilisation, cost = weights or prepared.context.weights
    total = Objective((speed, utilisation, cost), other).value(own)
    return {**parts, "total": total, "move_s": move_s if np.isfinite(move_s) else None}


def _outcome(prepared: runner.PreparedRun, view: View, plan: Plan) -> PlanOutcome:
    estimator, links = prepared.context.estimator, view.forecast.links()
    estimate, iter_s = estimator.iteration(plan, links, view.slowdown), _iter_s(estimator, plan, view)
    if iter_s is None or not np.isfinite(estimate.iter_s):
        return PlanOutcome(float("inf"), 0.0, estimate.usd)
    return PlanOutcome(iter_s, estimate.utilisation * estimate.iter_s / iter_s, estimate.usd)


def tipping_points(
    replayed: PolicyReplay, view: View, links: list[tuple[int, int]], progress: Progress = SILENT
) -> tuple[Tipping, ...]:
    """Returns, for each link and direction, the first bandwidth found at which the decision changes."""
    present = in_words(replayed.ask(view), view)
    found = []
    progress.start(len(links), "tipping points", "links")
    for link in links:
        progress.advance()
        for direction, sign in (("above", 1), ("below", -1)):
            point = _tipping(replayed, view, link, present, direction, sign)
            if point is not None:
                found.append(point)
    return tuple(found)


def _tipping(
    replayed: PolicyReplay, view: View, link: tuple[int, int], present: str, direction: str, sign: int
) -> Tipping | None:
    def other(factor: float) -> bool:
        return in_words(replayed.ask(scaled(view, link, factor)), view) != present

    near, far = 1.0, None
    for probe in range(1, PROBES + 1):
        factor = REACH ** (sign * probe / PROBES)
        if other(factor):
            far = factor
            break
        near = factor
    if far is None:
        return None
    near, far = bisect(other, near, far)
    seen_bps = float(view.forecast.bandwidth_bps[0][link])
    there = in_words(replayed.ask(scaled(view, link, far)), view)
    return Tipping(link, seen_bps, seen_bps * far, direction, there)


def bisect(other: Callable[[float], bool], near: float, far: float) -> tuple[float, float]:
    """Narrows [near, far], where `other` is false at `near` and true at `far`, to `PRECISION`."""
    while abs(far / near - 1) > PRECISION:
        middle = float(np.sqrt(near * far))
        near, far = (near, middle) if other(middle) else (middle, far)
    return near, far


def scaled(view: View, link: tuple[int, int], factor: float) -> View:
    """Returns the view with the bandwidth of one link multiplied at every horizon."""
    bandwidth = view.forecast.bandwidth_bps.copy()
    bandwidth[:, link[0], link[1]] *= factor
    return replace(view, forecast=replace(view.forecast, bandwidth_bps=bandwidth))


def in_words(decision: Decision, view: View) -> str:
    """Returns a decision in words: hold, or turn or move to a plan."""
    asked = loop.action(view.plan, decision.plan)
    return "hold" if asked == "hold" else f"{asked} to {decision.plan}"


def links_of(estimator: Estimator, *plans: Plan | None) -> list[tuple[int, int]]:
    """Returns the directed links that an iteration of any of these plans uses, with relays and rings of
    replicas, each once, in order."""
    sent = sum(estimator.wan_bytes(plan) for plan in plans if plan is not None)
    return [(int(i), int(j)) for i, j in np.argwhere(sent)]


def _ask(prepared: runner.PreparedRun, replayed: PolicyReplay, view: View, names: Sequence[str]) -> Json:
    """Returns a baseline's decision on the view and its expected seconds per iteration."""
    try:
        decision = replayed.ask(view)
    except InfeasibleError as error:
        return {"answer": None, "problem": with_names(str(error), names), "reason": None, "iter_s": None}
    plan = decision.plan or view.plan
    return {
        "answer": with_names(in_words(decision, view), names),
        "problem": None,
        "reason": with_names(decision.reason, names),
        "iter_s": _iter_s(prepared.context.estimator, plan, view),
    }


def _iter_s(estimator: Estimator, plan: Plan | None, view: View) -> float | None:
    if plan is None or estimator.problems(plan, view.free_gpus):
        return None
    ns = time_ns(estimator, plan, view.forecast.links(), view.slowdown)
    return None if ns == DEAD else ns / NS_PER_S
