"""Transitions of logged runs: decisions, their probabilities, tokens until the next decision."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ingest.core.errors import InputError
from policy.core.protocol import Decision
from replay.log.events import Event, Json, canonical
from replay.log.fold import Fold, fold
from replay.store.decision_codec import decision_from_json, plan_to_json, view_from_json
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.core.view import View

PROBABILITIES = "probabilities"
"""Key in `Decision.extra` of a stochastic policy: probability of each candidate, in their order, with the
plan in force for holding. Without it a decision counts as certain, whatever its `log_probability`, which is
that of a network's proposal."""


@dataclass
class LoggedTransition:
    """One decision of a logged run and the time until the next."""

    view: View
    decision: Decision
    end_ns: int = 0
    tokens: int = 0
    ticks: list[tuple[int, LinkState]] = field(default_factory=list)  # (time, links) of telemetry

    @property
    def after(self) -> Plan | None:
        """Plan in force after the decision."""
        return self.decision.plan or self.view.plan


def read(run_id: str, events: Iterable[Event]) -> list[LoggedTransition]:
    """Returns the decisions of a run in order.

    Raises:
        InputError: several jobs decide in it, so that each one's decisions change the others' world.
    """
    return fold(events, _TransitionFold(run_id)).steps


class _TransitionFold(Fold):
    """Collects transitions; what happens before the first decision belongs to none."""

    def __init__(self, run_id: str) -> None:
        self.steps: list[LoggedTransition] = []
        self._run_id = run_id

    def add(self, event: Event) -> None:
        if self.steps:
            self.steps[-1].end_ns = event.sim_ns
        if self.steps or event.type in ("decided", "job_submitted"):
            super().add(event)

    def _on_job_submitted(self, event: Event, submitted: Json) -> None:
        raise InputError(
            f"{self._run_id}: several jobs share its links, so what one does changes what the others see: "
            "no estimate for one of them; use `twin replay --run` instead"
        )

    def _on_decided(self, event: Event, decided: Json) -> None:
        view, decision = view_from_json(decided["observation"]), decision_from_json(decided)
        self.steps.append(LoggedTransition(view, decision, event.sim_ns))

    def _on_iteration_done(self, event: Event, done: Json) -> None:
        self.steps[-1].tokens += done["tokens"]

    def _on_work_lost(self, event: Event, lost: Json) -> None:
        self.steps[-1].tokens -= lost["lost_tokens"]

    _on_gpu_failed = _on_work_lost

    def _on_link_observed(self, event: Event, observed: Json) -> None:
        step = self.steps[-1]
        step.ticks.append((event.sim_ns, _links(observed["samples"], len(step.view.free_gpus))))


def _links(samples: Iterable[tuple[int, int, float, float]], size: int) -> LinkState:
    seen = LinkState(np.full((size, size), np.inf), np.zeros((size, size)))
    for i, j, bandwidth_bps, latency_s in samples:
        seen.bandwidth_bps[int(i), int(j)] = bandwidth_bps
        seen.latency_s[int(i), int(j)] = latency_s
    return seen


def key(plan: Plan | None) -> str:
    """Returns the canonical text of a plan."""
    return canonical(plan_to_json(plan))


def distribution(decision: Decision, view: View) -> Mapping[str, float]:
    """Returns plan (as `key`) -> probability that this decision puts it in force."""
    chances = decision.extra.get(PROBABILITIES)
    if chances is None:
        return {key(decision.plan or view.plan): 1.0}
    found: dict[str, float] = {}
    for candidate, chance in zip(decision.candidates, chances, strict=True):
        found[key(candidate.plan)] = found.get(key(candidate.plan), 0.0) + float(chance)
    return found
