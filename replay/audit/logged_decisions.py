"""One decision of a logged run, and its policy rebuilt from the views in the log (event sourcing)."""

import copy
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ingest.core.errors import InfeasibleError, NotFoundError
from policy.control.break_even import HISTORY
from policy.core import registry
from policy.core.protocol import Context, Decision, Policy
from replay.log.events import Event
from replay.log.run_log import RunReader
from replay.run import runner
from replay.store import run_index
from replay.store.decision_codec import view_from_json
from replay.store.run_header import from_payload
from twin.core.view import View

BASELINES = ("static", "single", "greedy", "mpc")
"""Compared with a decision; the re-implemented planners are left out, since they take seconds."""
MEMORY = {"mpc": HISTORY}
"""Earlier views on which a baseline's decision depends, at most; the others depend on one view alone."""


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """Decision `number` of a run with everything around it."""

    run_id: str
    event: Event  # the `decided` event
    trigger: Event  # the `triggered` event before it
    views: tuple[View, ...]  # those of all decisions for its job before it, in order, and its own
    after: tuple[Event, ...]  # what followed, up to the next decision

    @property
    def view(self) -> View:
        """The view of this decision."""
        return self.views[-1]


def find(store: Path, run_id: str, number: int) -> LoggedDecision:
    """Finds decision `number` (from 0) of a run.

    Raises:
        NotFoundError: the run has no such decision.
    """
    seen: list[tuple[str, View]] = []
    trigger: Event | None = None
    found: Event | None = None
    after: list[Event] = []
    for event in RunReader(run_index.folder(store, run_id)).events():
        if found is not None:
            if event.type == "decided":
                break
            after.append(event)
        elif event.type == "triggered":
            trigger = event
        elif event.type == "decided":
            seen.append((event.job, view_from_json(event.payload["observation"])))
            if event.payload["number"] == number:
                found = event
    if found is None or trigger is None:
        last = f"its last one is {len(seen) - 1}" if seen else "it made none"
        raise NotFoundError(f"{run_id}: no decision {number}; {last}")
    views = tuple(view for job, view in seen if job == found.job)
    return LoggedDecision(run_id, found, trigger, views, tuple(after))


def prepared_run(store: Path, run_id: str) -> runner.PreparedRun:
    """Prepares a logged run again, with the present code."""
    reader = RunReader(run_index.folder(store, run_id))
    return runner.prepare_rerun(store, from_payload(reader.header()), ())[0]


class PolicyReplay:
    """A policy in the state in which it made a decision, rebuilt by calling it with every earlier view.

    `ask` may be called any number of times: a copy of the policy decides, so that no call changes the next.
    """

    def __init__(self, policy: Policy, context: Context, earlier: Iterable[View]) -> None:
        policy.reset(context)
        for view in earlier:
            with suppress(InfeasibleError):  # its state has taken in the view all the same
                policy.decide(view)
        self._policy = policy
        self._context = context

    def ask(self, view: View) -> Decision:
        """Returns the decision on `view` in this state."""
        # Cost models hold no state and may be large: all copies share them.
        shared = {id(self._context.estimator): self._context.estimator}
        return copy.deepcopy(self._policy, shared).decide(view)


def policy_replay(prepared: runner.PreparedRun, recorded: LoggedDecision) -> PolicyReplay:
    """Rebuilds the run's own policy just before the recorded decision."""
    context = runner.context_of(prepared.header, prepared.setup, recorded.event.job)
    return PolicyReplay(prepared.policy, context, recorded.views[:-1])


def baselines(prepared: runner.PreparedRun, recorded: LoggedDecision) -> dict[str, PolicyReplay]:
    """Rebuilds the baselines as if each had seen the run up to the recorded decision."""
    context = runner.context_of(prepared.header, prepared.setup, recorded.event.job)
    earlier = recorded.views[:-1]
    return {
        name: PolicyReplay(
            registry.create(name), context, earlier[max(len(earlier) - MEMORY.get(name, 0), 0) :]
        )
        for name in BASELINES
        if name != prepared.header.policy
    }
