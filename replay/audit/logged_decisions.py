"""One decision of a logged run: found, and made again alone from what is in the log."""

import copy
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ingest.core.errors import InfeasibleError, NotFoundError
from policy.core import registry
from policy.control.break_even import LOOKED_BACK
from policy.core.protocol import Context, Decision, Policy
from replay.run import runner
from replay.store import run_index as runs
from replay.log.events import Event
from replay.store.run_header import from_payload
from replay.log.run_log import RunReader
from replay.store.decision_codec import view_from_json
from twin.core.view import View

BASELINES = ("static", "single", "greedy", "mpc")
"""Asked beside a decision: the named systems take seconds to answer and say less."""
REMEMBERS = {"mpc": LOOKED_BACK}
"""Baselines whose answer depends on earlier views, and on how many at most; the others look at one alone."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Decision `number` of a run with everything around it."""

    run_id: str
    event: Event  # the `decided` event
    trigger: Event  # the `triggered` event before it
    views: tuple[View, ...]  # those of all decisions for its job before it, in order, and its own
    after: tuple[Event, ...]  # what followed, up to the next decision

    @property
    def view(self) -> View:
        """What was seen."""
        return self.views[-1]


def find(store: Path, run_id: str, number: int) -> Recorded:
    """Decision `number` (from 0) of a run.

    Raises:
        NotFoundError: the run has no such decision.
    """
    seen: list[tuple[str, View]] = []
    trigger: Event | None = None
    found: Event | None = None
    after: list[Event] = []
    for event in RunReader(runs.folder(store, run_id)).events():
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
    return Recorded(run_id, found, trigger, views, tuple(after))


def stage_of(store: Path, run_id: str) -> runner.Stage:
    """The stage of a logged run, as the present code makes it."""
    reader = RunReader(runs.folder(store, run_id))
    return runner.restage(store, from_payload(reader.header()), ())[0]


class Rehearsal:
    """A policy brought to the state in which it made a decision, by showing it every view before that one.

    `ask` can be called again and again: each time a copy answers, so that no answer changes the next.
    """

    def __init__(self, policy: Policy, context: Context, earlier: Iterable[View]) -> None:
        policy.reset(context)
        for view in earlier:
            with suppress(InfeasibleError):  # who found no plan has still seen the view
                policy.decide(view)
        self._policy = policy
        self._context = context

    def ask(self, view: View) -> Decision:
        """The answer to `view` in this state."""
        # Cost models hold no state and may be large: all copies share them.
        shared = {id(self._context.estimator): self._context.estimator}
        return copy.deepcopy(self._policy, shared).decide(view)


def again(stage: runner.Stage, recorded: Recorded) -> Rehearsal:
    """The run's own policy just before the recorded decision."""
    context = runner.context_of(stage.header, stage.setup, recorded.event.job)
    return Rehearsal(stage.policy, context, recorded.views[:-1])


def baselines(stage: runner.Stage, recorded: Recorded) -> dict[str, Rehearsal]:
    """The plain baselines: what each would do now, had it watched the run so far."""
    context = runner.context_of(stage.header, stage.setup, recorded.event.job)
    earlier = recorded.views[:-1]
    return {
        name: Rehearsal(
            registry.create(name), context, earlier[max(len(earlier) - REMEMBERS.get(name, 0), 0) :]
        )
        for name in BASELINES
        if name != stage.header.policy
    }
