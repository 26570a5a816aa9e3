"""Events: typed, versioned, each with one canonical text, over which the digest of a run is taken.

When the meaning of a payload changes, its version goes up and a function in `UPCAST` converts the older form
on reading; what is stored, and the digest over it, never changes.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from ingest.core.errors import DamageError
from replay.log import payloads

Json = dict[str, Any]

MAX_INTEGER = 2**63 - 1
"""Largest `seq` and `sim_ns` (Arrow int64)."""

_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode


class EventError(ValueError):
    """An event that must not be written: unknown type, field of the wrong kind, NaN. A programming error."""


@dataclass(frozen=True, slots=True)
class EventType:
    """A type of event: its name, its current version, the model of its payload."""

    name: str
    version: int
    payload: type[payloads.Payload]


EVENT_TYPES: dict[str, EventType] = {
    name: EventType(name, version, payload)
    for name, version, payload in (
        ("run_started", 1, payloads.RunStarted),
        ("link_observed", 1, payloads.LinkObserved),
        ("state_estimated", 1, payloads.StateEstimated),
        ("triggered", 1, payloads.Triggered),
        ("decided", 1, payloads.Decided),
        ("plan_applied", 1, payloads.PlanApplied),
        ("iteration_done", 1, payloads.IterationDone),
        ("time_lost", 1, payloads.TimeLost),
        ("state_copied", 1, payloads.StateCopied),
        ("work_lost", 1, payloads.WorkLost),
        ("link_failed", 1, payloads.LinkChanged),
        ("link_restored", 1, payloads.LinkChanged),
        ("gpu_failed", 1, payloads.GpuFailed),
        ("gpu_repaired", 1, payloads.GpuRepaired),
        ("domain_slowed", 1, payloads.DomainSlowed),
        ("node_down", 1, payloads.NodeChanged),
        ("node_up", 1, payloads.NodeChanged),
        ("job_submitted", 1, payloads.JobChanged),
        ("job_started", 1, payloads.JobChanged),
        ("job_preempted", 1, payloads.JobChanged),
        ("job_finished", 1, payloads.JobChanged),
        ("job_failed", 1, payloads.JobChanged),
        ("job_out_of_memory", 1, payloads.OutOfMemory),
        ("power_changed", 1, payloads.PowerChanged),
        ("account_charged", 1, payloads.AccountCharged),
        ("policy_updated", 1, payloads.PolicyUpdated),
        ("retraining_step", 1, payloads.RetrainingStep),
        ("policy_evaluated", 1, payloads.PolicyEvaluated),
        ("policy_promoted", 1, payloads.PolicyJudged),
        ("policy_rejected", 1, payloads.PolicyJudged),
        ("policies_compared", 1, payloads.PoliciesCompared),
        ("front_reached", 1, payloads.FrontReached),
        ("regret_measured", 1, payloads.RegretMeasured),
        ("noise_measured", 1, payloads.NoiseMeasured),
        ("load_measured", 1, payloads.LoadMeasured),
        ("telemetry_received", 1, payloads.TelemetryReceived),
        ("decision_requested", 1, payloads.DecisionRequested),
        ("mode_changed", 1, payloads.ModeChanged),
        ("rollback_requested", 1, payloads.RollbackRequested),
        ("renewal_requested", 1, payloads.RenewalRequested),
        ("clock_jumped", 1, payloads.ClockJumped),
        ("clock_settled", 1, payloads.ClockSettled),
        ("run_continued", 1, payloads.RunContinued),
        ("jobs_changed", 1, payloads.JobsChanged),
        ("message_quarantined", 1, payloads.MessageQuarantined),
        ("order_given", 1, payloads.OrderGiven),
        ("order_closed", 1, payloads.OrderClosed),
        ("run_finished", 1, payloads.RunFinished),
    )
}

UPCAST: dict[tuple[str, int], Callable[[Json], Json]] = {}
"""(type, version) -> function that converts a payload of that version to the next one."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a run. `wall` (wall-clock figures) is stored but not part of the run's digest."""

    seq: int
    sim_ns: int
    type: str
    version: int
    job: str
    payload: Json
    wall: Json = field(default_factory=dict)


def canonical(value: Any) -> str:
    """Returns the canonical text of a JSON value: sorted keys, no spaces, shortest exact floats.

    Raises:
        EventError: NaN, infinity, a lone surrogate, a key that is no string, or no JSON value at all.
    """
    try:
        text = _ENCODE(value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"not a JSON value: {error}") from error
    return text


def payload_text(payload: Json) -> str:
    """Returns the canonical text of a checked payload: that of `canonical`, in a third of the time for fields
    that are all numbers.

    Raises:
        EventError: as `canonical`.
    """
    return "{" + ",".join([f'"{name}":{_field_text(payload[name])}' for name in sorted(payload)]) + "}"


def _field_text(value: Any) -> str:
    """Numbers alone are written by pydantic: its floats have the same shortest digits as Python's, and equal
    texts unless one has an exponent (an `e`, or five digits behind `0.`). ASCII is quoted directly."""
    if type(value) is str and value.isascii():
        return encode_basestring(value)
    if value == {}:
        return "{}"
    if type(value) in (int, float, list):
        try:
            fast = to_json(value, inf_nan_mode="strings")
        except ValueError:
            return canonical(value)  # raises with the reason
        if not (b'"' in fast or b"e" in fast or b"0.0000" in fast):  # text, objects, booleans; exponents
            return fast.decode()
    return canonical(value)


def check(name: str, payload: Json) -> EventType:
    """Returns the type `name` after checking `payload` against it.

    Raises:
        EventError: unknown type, or a field that is missing, unknown or of the wrong kind.
    """
    kind = EVENT_TYPES.get(name)
    if kind is None:
        raise EventError(f"{name}: no such event type; known: {', '.join(EVENT_TYPES)}")
    try:
        kind.payload.__pydantic_validator__.validate_python(payload)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise EventError(f"{name}: {faults}") from error
    return kind


def line(seq: int, sim_ns: int, name: str, version: int, job: str, payload: str) -> bytes:
    """Returns the bytes of one event in the digest; `payload` is its canonical text."""
    quoted = encode_basestring(job)
    head = f'{{"job":{quoted},"payload":'
    return f'{head}{payload},"seq":{seq},"sim_ns":{sim_ns},"type":"{name}","version":{version}}}\n'.encode()


def upcast(name: str, version: int, payload: Json, where: str) -> tuple[int, Json]:
    """Converts a payload to the current version of its type.

    Raises:
        DamageError: an unknown type, or a version that this program is too old for; `where` names the file.
    """
    kind = EVENT_TYPES.get(name)
    if kind is None or not 1 <= version <= kind.version:
        raise DamageError(
            f"{where}: event type {name!r} version {version} is unknown to this version of twin; "
            "read it with the version that wrote it or a later one"
        )
    while version < kind.version:
        payload = UPCAST[name, version](payload)
        version += 1
    return version, payload
