"""The loop of a run: next fact, log; at a trigger: view, policy, decision, log, apply."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S
from policy.core.protocol import Decision
from replay.run.scripted_decisions import DecisionSource
from replay.store.decision_codec import decision_to_json, digest, view_to_json
from replay.store.event_sinks import Sink, Totals
from replay.store.run_header import Header, opening
from twin.core.facts import Fact, Trigger
from twin.core.plan import Plan
from twin.core.view import View
from twin.costs.migration import needs_restart

Json = dict[str, Any]
STEPS = 1000
"""Steps of the progress of a run: drawing more often would slow a fast run."""


class FactSource(Protocol):
    """Facts in the order of time, the last one `run_finished`: the simulated `World`, or live telemetry."""

    def __iter__(self) -> Iterator[Fact]:
        """Yields the facts; after a `Trigger`, `apply` is called before the next fact is asked for."""
        ...

    def apply(self, plan: Plan | None) -> None:
        """Puts `plan` in force for the job of the last trigger; None: the job keeps its plan."""
        ...


def play(
    world: FactSource,
    header: Header,
    policies: Mapping[str, DecisionSource],
    sink: Sink,
    progress: Progress = SILENT,
) -> Totals:
    """Logs every fact of `world`; at each trigger logs and applies the decision of the job's policy."""
    sink.append(0, "run_started", header.payload(), wall=opening(header.made_by))
    number = 0
    for fact in _reported(world, header, progress):
        if fact.type == "run_finished":
            return sink.finish(fact.payload["totals"], sim_ns=fact.sim_ns)
        sink.append(fact.sim_ns, fact.type, fact.payload, job=fact.job)
        if isinstance(fact, Trigger):
            assert fact.view is not None
            decision, wall = policies[fact.job].decide(number, fact.view)
            payload = decided(number, fact.view, decision)
            sink.append(fact.sim_ns, "decided", payload, job=fact.job, wall=wall)
            world.apply(decision.plan)
            number += 1
    raise AssertionError("a world ends with run_finished")


def decided(number: int, view: View, decision: Decision) -> Json:
    """Payload of `decided`; it holds the view, so that the decision can be recomputed alone."""
    observation = view_to_json(view)
    return {
        "number": number,
        "action": action(view.plan, decision.plan),
        **decision_to_json(decision),
        "observation_digest": digest(observation),
        "observation": observation,
    }


def action(running: Plan | None, chosen: Plan | None) -> Literal["hold", "turn", "move"]:
    """Returns `turn` where only knobs change that need no restart, `move` for any other new plan."""
    if chosen is None or chosen == running:
        return "hold"
    return "turn" if running is not None and not needs_restart(running, chosen) else "move"


def _reported(facts: FactSource, header: Header, progress: Progress) -> Iterator[Fact]:
    """Yields the facts and reports the simulated time in `STEPS` steps."""
    end_ns, done = max(int(header.world["end_ns"]), 1), 0
    progress.start(STEPS, header.policy)
    for fact in facts:
        step = min(STEPS, fact.sim_ns * STEPS // end_ns)
        if step > done:
            progress.advance(step - done, f"{fact.sim_ns / NS_PER_S / 3600:.1f} h")
            done = step
        yield fact
