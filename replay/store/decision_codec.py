"""Views, plans and decisions as JSON and back, exactly, so that a logged decision can be recomputed alone."""

import hashlib
import math
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import DamageError
from ingest.core.terminal import SENTENCE, clipped
from policy.core.protocol import Candidate, Decision
from replay.log.events import canonical
from twin.core.plan import Plan, Share, Sync, to_json
from twin.core.view import Forecast, OtherJob, View

Json = dict[str, Any]


def digest(value: Any) -> str:
    """Returns the SHA-256 (64 hex digits) of the canonical text of `value`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def plan_to_json(plan: Plan | None) -> Json | None:
    """Returns a plan as JSON; None stays None."""
    return None if plan is None else to_json(plan)


def plan_from_json(value: Json | None) -> Plan | None:
    """Returns the plan that `plan_to_json` wrote.

    Raises:
        DamageError: it is no plan.
    """
    if value is None:
        return None
    try:
        shares = tuple(Share(**{**share, "gpus": tuple(share["gpus"])}) for share in value["shares"])
        routes = tuple(tuple(route) for route in value.get("routes", ()))
        sync = Sync(**value["sync"]) if value.get("sync") else None
        plan = Plan(**{**value, "shares": shares, "routes": routes, "sync": sync})
        if not all(type(n) is int for n in _counts(plan)):
            raise TypeError("what should be a whole number is none")
        if type(plan.sequence_parallel) is not bool:
            raise TypeError("sequence_parallel is neither true nor false")
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise DamageError(
            f"a logged plan is none ({clipped(str(error), SENTENCE)}); `twin audit` says more"
        ) from error
    return plan


def plan_in_force(value: Json | None) -> Plan:
    """Returns the plan that `plan_to_json` wrote, where there must be one.

    Raises:
        DamageError: there is none.
    """
    plan = plan_from_json(value)
    if plan is None:
        raise DamageError("a log has no plan where one is in force; `twin audit` says more")
    return plan


def _counts(plan: Plan) -> tuple[Any, ...]:
    own = (
        plan.dp,
        plan.micro_batch,
        plan.micro_batches,
        plan.extra_warmup,
        plan.zero,
        plan.chunks,
        plan.context_parallel,
        plan.ep,
    )
    shares = ((share.domain, share.layers, share.tp, share.pp, *share.gpus) for share in plan.shares)
    return (*own, *chain.from_iterable(shares), *chain.from_iterable(plan.routes))


def view_to_json(view: View) -> Json:
    """Returns a view as JSON: infinities (diagonal of the bandwidth) become null, the rest is exact."""
    forecast = view.forecast
    return {
        "now_ns": int(view.now_ns),
        "trigger": view.trigger,
        "horizons_s": _numbers(forecast.horizons_s),
        "bandwidth_bps": _numbers(forecast.bandwidth_bps),
        "sd_log": _numbers(forecast.sd_log),
        "widths": _numbers(forecast.widths),
        "latency_s": _numbers(forecast.latency_s),
        "plan": plan_to_json(view.plan),
        "free_gpus": [int(n) for n in view.free_gpus],
        "slowdown": _numbers(view.slowdown),
        "since_move_s": _number(float(view.since_move_s)),
        "tokens": float(view.tokens),
        **({"job": view.job} if view.job else {}),
        **({"others": [_other_job(other) for other in view.others]} if view.others else {}),
    }


def view_from_json(value: Json) -> View:
    """Returns the view that `view_to_json` wrote, equal in every bit."""
    forecast = Forecast(
        _array(value["horizons_s"]),
        _array(value["bandwidth_bps"]),
        _array(value["sd_log"]),
        _array(value["latency_s"]),
        *([_array(value["widths"])] if "widths" in value else []),  # older logs have none
    )
    since = value["since_move_s"]
    return View(
        now_ns=value["now_ns"],
        trigger=value["trigger"],
        forecast=forecast,
        plan=plan_from_json(value["plan"]),
        free_gpus=tuple(value["free_gpus"]),
        slowdown=_array(value["slowdown"]),
        since_move_s=math.inf if since is None else since,
        tokens=value["tokens"],
        job=value.get("job", ""),
        others=tuple(
            OtherJob(other["name"], plan_from_json(other["plan"]))
            for other in value.get("others", ())  # older logs have none
        ),
    )


def decision_to_json(decision: Decision) -> Json:
    """Returns a decision as JSON; plan null: hold."""
    return {
        "plan": plan_to_json(decision.plan),
        "reason": decision.reason,
        "candidates": [_candidate(candidate) for candidate in decision.candidates],
        "predicted_iter_s": _optional(decision.predicted_iter_s),
        "log_probability": _optional(decision.log_probability),
        "mask": [bool(open_) for open_ in decision.mask],
        "fallback": decision.fallback,
        "extra": decision.extra,
    }


def decision_from_json(value: Json) -> Decision:
    """Returns the decision that `decision_to_json` wrote; infinite figures read as +inf."""
    return Decision(
        plan=plan_from_json(value["plan"]),
        reason=value["reason"],
        candidates=tuple(_candidate_from_json(candidate) for candidate in value["candidates"]),
        predicted_iter_s=value["predicted_iter_s"],
        log_probability=value["log_probability"],
        mask=tuple(value["mask"]),
        fallback=value["fallback"],
        extra=value["extra"],
    )


def _other_job(other: OtherJob) -> Json:
    return {"name": other.name, "plan": plan_to_json(other.plan)}


def _candidate_from_json(value: Json) -> Candidate:
    plan = plan_in_force(value["plan"])
    figures = ("score", "iter_s", "utilisation", "usd")
    return Candidate(plan, *(math.inf if value[name] is None else value[name] for name in figures))


def _candidate(candidate: Candidate) -> Json:
    return {
        "plan": plan_to_json(candidate.plan),
        "score": _number(candidate.score),
        "iter_s": _number(candidate.iter_s),
        "utilisation": _number(candidate.utilisation),
        "usd": _number(candidate.usd),
    }


def _optional(value: float | None) -> float | None:
    return None if value is None else _number(value)


def _number(value: float) -> float | None:
    number = float(value)
    if math.isnan(number):
        raise ValueError("a NaN has no place in an event")
    return number if math.isfinite(number) else None


def _numbers(array: NDArray[np.float64]) -> list[Any]:
    return [_numbers(row) if row.ndim else _number(row) for row in np.asarray(array, dtype=np.float64)]


def _array(value: list[Any]) -> NDArray[np.float64]:
    # None becomes NaN in float64; the only value written as null is infinity.
    array = np.array(value, dtype=np.float64)
    array[np.isnan(array)] = np.inf
    return array
