"""Estimates of the cost models at each decision of a logged run: limiting resource, and shares of waiting."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ingest.core.errors import DamageError, TwinError
from policy.core import registry
from replay.log.run_log import RunReader
from replay.store.decision_codec import plan_from_json, view_from_json
from replay.store.run_header import from_payload
from twin.estimation.bottleneck import bottleneck
from twin.scenario.prepare import cost_models

MOST = 400
"""Decisions estimated; a chart is not finer."""


@dataclass(frozen=True, slots=True)
class CostModelReading:
    """The plan in force after a decision, under the links as the filter saw them."""

    time_s: float
    limit: str  # name of the limiting resource
    saved: float  # share of an iteration without it
    bubble: float  # shares of an iteration: stages waiting for each other
    exposed: float  # and for messages


def readings(store: Path, reader: RunReader, decisions: int) -> tuple[CostModelReading, ...]:
    """Returns up to `MOST` estimates spread over the run; none for a log of training, where several jobs
    share the world, and where its cost models cannot be built: the calibration or the profiles have left the
    store, or another version wrote the scenario. Links are as the filter saw them; no lake is read."""
    header = from_payload(reader.header())
    if header.policy in registry.OPERATIONS:
        return ()
    try:
        scenario = header.scenario()
        estimator = cost_models(scenario, store)
    except (TwinError, ValidationError, KeyError):
        return ()
    if scenario.jobs or scenario.arrivals is not None:
        return ()
    stride, found = max(1, -(-decisions // MOST)), []
    for event in reader.events():
        if event.type != "decided" or event.payload["number"] % stride:
            continue
        view = view_from_json(event.payload["observation"])
        plan = view.plan if event.payload["plan"] is None else plan_from_json(event.payload["plan"])
        if plan is None:
            raise DamageError("the first decision of this log has no plan; `twin audit` says more")
        estimate = estimator.iteration(plan, view.forecast.links(), view.slowdown)
        dead = estimate.iter_s == float("inf")
        shares = (
            (0.0, 1.0)
            if dead
            else (estimate.bubble_s / estimate.iter_s, estimate.exposed_comm_s / estimate.iter_s)
        )
        limiting = bottleneck(estimator, plan, view.forecast.links(), view.slowdown).limiting
        found.append(CostModelReading(event.sim_ns / 1e9, limiting.name, limiting.saved, *shares))
    return tuple(found)


def waiting(found: Sequence[CostModelReading]) -> tuple[float, float] | None:
    """Mean shares (bubble, exposed messages) of the waiting in iterations, adding up to 1; None: unknown."""
    bubble, exposed = (max(0.0, sum(getattr(one, name) for one in found)) for name in ("bubble", "exposed"))
    return (bubble / (bubble + exposed), exposed / (bubble + exposed)) if bubble + exposed > 0 else None
