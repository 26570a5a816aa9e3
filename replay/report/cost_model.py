"""What the cost models say of a logged run, decision by decision: what bound it, and what it waited for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ingest.core.errors import TwinError
from replay.run import runner
from replay.store.run_header import from_payload
from replay.log.run_log import RunReader
from replay.store.decision_codec import plan_from_json, view_from_json

MOST = 400
"""Decisions looked at; a chart is not finer."""


@dataclass(frozen=True, slots=True)
class Look:
    """The plan in force after a decision, under the links as the filter saw them."""

    time_s: float
    binding: str
    bubble: float  # shares of an iteration: stages waiting for each other
    exposed: float  # and for messages


def looks(store: Path, reader: RunReader, decisions: int) -> tuple[Look, ...]:
    """Up to `MOST` looks spread over the run; none where its cost models cannot be made again: its data set
    has left the lake, another version wrote it, or several jobs share it."""
    try:
        stage, _ = runner.restage(store, from_payload(reader.header()), ())
    except (TwinError, ValidationError, KeyError):
        return ()
    if stage.setup.jobs:
        return ()
    estimator, every, found = stage.context.estimator, max(1, -(-decisions // MOST)), []
    for event in reader.events():
        if event.type != "decided" or event.payload["number"] % every:
            continue
        view = view_from_json(event.payload["observation"])
        plan = plan_from_json(event.payload["plan"]) or view.plan
        assert plan is not None, "where one job runs, its first decision has a plan"
        one = estimator.iteration(plan, view.forecast.links(), view.slowdown)
        dead = one.iter_s == float("inf")
        shares = (0.0, 1.0) if dead else (one.bubble_s / one.iter_s, one.exposed_comm_s / one.iter_s)
        found.append(Look(event.sim_ns / 1e9, one.binding, *shares))
    return tuple(found)


def waiting(looked: Sequence[Look]) -> tuple[float, float] | None:
    """Mean shares (bubble, exposed messages) of what iterations wait for, adding up to 1; None: unknown."""
    bubble, exposed = (
        max(0.0, sum(getattr(look, name) for look in looked)) for name in ("bubble", "exposed")
    )
    return (bubble / (bubble + exposed), exposed / (bubble + exposed)) if bubble + exposed > 0 else None
