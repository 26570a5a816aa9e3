"""Logged runs as off-policy estimation reads them: decisions, their probabilities, what they earned."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingest.core.errors import InputError
from policy.core.protocol import Decision
from replay.log.events import Event, canonical
from replay.store.decision_codec import decision_from_json, plan_to_json, view_from_json
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.core.view import View

Json = dict[str, Any]
PROBABILITIES = "probabilities"
"""In `Decision.extra` of a policy that draws: the probability of each candidate, in their order; the plan in
force stands among them for holding. Without it an answer is certain, whatever `log_probability` says of how
a network found it."""


@dataclass
class Step:
    """One decision of a logged run and the time until the next."""

    view: View
    decision: Decision
    end_ns: int = 0
    tokens: int = 0
    ticks: list[tuple[int, LinkState]] = field(default_factory=list)  # what telemetry reported, and when

    @property
    def after(self) -> Plan | None:
        """The plan in force after the decision."""
        return self.decision.plan or self.view.plan


def read(run_id: str, events: Iterable[Event]) -> list[Step]:
    """The decisions of a run in order.

    Raises:
        InputError: several jobs decide in it, so that each one's decisions change the others' world.
    """
    steps: list[Step] = []
    for event in events:
        if event.type == "job_submitted":
            raise InputError(
                f"{run_id}: several jobs share its links, so what one does changes what the others see: "
                "no estimate for one of them; use `twin replay --run` instead"
            )
        if steps:
            steps[-1].end_ns = event.sim_ns
        _take(steps, event)
    return steps


def _take(steps: list[Step], event: Event) -> None:
    said = event.payload
    if event.type == "decided":
        steps.append(Step(view_from_json(said["observation"]), decision_from_json(said), event.sim_ns))
    elif event.type == "iteration_done" and steps:
        steps[-1].tokens += said["tokens"]
    elif event.type in ("gpu_failed", "work_lost") and steps:
        steps[-1].tokens -= said["lost_tokens"]
    elif event.type == "link_observed" and steps:
        steps[-1].ticks.append((event.sim_ns, _links(said["samples"], len(steps[-1].view.free_gpus))))


def _links(samples: Iterable[tuple[int, int, float, float]], size: int) -> LinkState:
    seen = LinkState(np.full((size, size), np.inf), np.zeros((size, size)))
    for i, j, bandwidth_bps, latency_s in samples:
        seen.bandwidth_bps[int(i), int(j)] = bandwidth_bps
        seen.latency_s[int(i), int(j)] = latency_s
    return seen


def key(plan: Plan | None) -> str:
    """The text that equal plans share."""
    return canonical(plan_to_json(plan))


def distribution(decision: Decision, view: View) -> Mapping[str, float]:
    """Plan (as `key`) -> probability that this decision would have put it in force."""
    chances = decision.extra.get(PROBABILITIES)
    if chances is None:
        return {key(decision.plan or view.plan): 1.0}
    found: dict[str, float] = {}
    for candidate, chance in zip(decision.candidates, chances, strict=True):
        found[key(candidate.plan)] = found.get(key(candidate.plan), 0.0) + float(chance)
    return found
