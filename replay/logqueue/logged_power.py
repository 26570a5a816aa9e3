"""Power of a kept queue run: what its header holds of it, and the events that follow from the schedule.

The header has the power model and the signals whole, so that an audit computes power and accounts again from
the log alone. Events: `power_changed`, each step of the power at the meter, and at the end `account_charged`,
one an owner, whose exact integers sum to the integrals of the steps.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from twin.power.accounts import Account, accounts, charged
from twin.power.conversion import ConversionChain, ConversionStage, EfficiencyCurve, Overhead
from twin.power.powered_queue import Owner, PowerChoices
from twin.power.signals import CARBON, PRICE, Signal, SignalKind
from twin.power.site_power import PowerModel, site_power
from twin.power.step_series import StepSeries
from twin.queue.jobs import UNKNOWN, QueueJobs
from twin.queue.simulation import QueueSchedule

Json = dict[str, Any]
POWER = "power"
"""Key of a run's scenario."""
NO_OWNER = "unknown"
"""Account of jobs without a user, or a group."""
Timed = tuple[int, str, Json, str]


def to_json(choices: PowerChoices) -> Json:
    """Returns the model and the signals of a run without limits.

    Raises:
        UsageError: limits or delays are asked for, which a kept run does not hold.
    """
    if choices.limited:
        raise UsageError("--keep goes without --power-cap, --ramp-limit and --defer: leave them out")
    model = choices.model
    return {
        "model": {"name": model.name, "idle_mw": model.idle_mw, "job_mw": model.job_mw},
        "stages": [_stage_to_json(one) for one in model.chain.stages],
        "carbon": _signal_to_json(choices.carbon), "price": _signal_to_json(choices.price),
        **({} if choices.owner == "user" else {"owner": choices.owner}),
    }  # fmt: skip


def from_json(stored: Json) -> PowerChoices:
    """Returns what `to_json` was given."""
    chain = ConversionChain(tuple(_stage_from_json(one) for one in stored["stages"]))
    carbon, price = (
        _signal_from_json(kind, stored[key]) for key, kind in (("carbon", CARBON), ("price", PRICE))
    )
    model = PowerModel(**stored["model"], chain=chain)
    return PowerChoices(model, carbon=carbon, price=price, owner=stored.get("owner", "user"))


def owners_of(owner: Owner, jobs: QueueJobs, user: Callable[[int], str | None]) -> list[str]:
    """Returns the user or the group of each job (n,) by name; `user` names one by number."""
    if owner == "user":
        return [user(number) or NO_OWNER for number in jobs.user.tolist()]
    return [NO_OWNER if one == UNKNOWN else str(one) for one in jobs.account.tolist()]


def _stage_to_json(stage: ConversionStage) -> Json:
    if isinstance(stage, Overhead):
        return {"name": stage.name, "factor": stage.factor}
    assert isinstance(stage, EfficiencyCurve), "the stages there are"
    return {"name": stage.name, "rated_mw": stage.rated_mw, "points": [list(one) for one in stage.points]}


def _stage_from_json(stored: Json) -> ConversionStage:
    if "factor" in stored:
        return Overhead(stored["name"], stored["factor"])
    points = tuple((load, share) for load, share in stored["points"])
    return EfficiencyCurve(stored["name"], stored["rated_mw"], points)


def _signal_to_json(signal: Signal | None) -> Json | None:
    if signal is None:
        return None
    series = signal.series
    return {
        "name": signal.name, "at_ns": series.at_ns.tolist(), "micro": series.value.tolist(),
        "end_ns": series.end_ns, "ends": signal.ends,
    }  # fmt: skip


def _signal_from_json(kind: SignalKind, stored: Json | None) -> Signal | None:
    if stored is None:
        return None
    at_ns, micro = np.array(stored["at_ns"], np.int64), np.array(stored["micro"], np.int64)
    return Signal(kind, stored["name"], StepSeries(at_ns, micro, stored["end_ns"]), stored["ends"])


def events(done: QueueSchedule, choices: PowerChoices, owners: list[str]) -> Iterator[Timed]:
    """Yields steps of the power at the meter, then the account of each owner of jobs (n,), in time.

    Raises:
        UsageError: a signal does not reach to the end of the schedule.
    """
    power = site_power(done, choices.model)
    meter = power.meter
    for time_ns, milliwatts in zip(meter.at_ns.tolist(), meter.value.tolist(), strict=True):
        yield time_ns, "power_changed", {"meter_mw": milliwatts}, ""
    for one in accounts(charged(done, power, choices.carbon, choices.price), owners):
        yield meter.end_ns, "account_charged", _account(one), ""


def _account(one: Account) -> Json:
    """Exact integers as text: they exceed 64 bits."""
    return {
        "owner": one.name, "jobs": one.jobs, "gpu_ns": str(one.gpu_ns), "energy_pj": str(one.energy_pj),
        "carbon": None if one.carbon is None else str(one.carbon),
        "cost": None if one.cost is None else str(one.cost),
    }  # fmt: skip
