"""Event types, their canonical text, and reading what older and newer versions wrote."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.core.errors import DamageError
from replay.log import events
from replay.log.events import EVENT_TYPES, EventError, canonical, check, line, payload_text, upcast
from tests.support.histories import history, totals

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(JSON)
def test_canonical_text_reads_back_equal_and_is_the_only_one(value: object) -> None:
    try:
        text = canonical(value)
    except EventError:
        assert any(
            "\ud800" <= c <= "\udfff" for c in repr(value).encode("utf-8", "replace").decode()
        ) or "\\ud" in repr(value)
        return
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == text


def test_canonical_text_sorts_and_packs() -> None:
    assert canonical({"b": 1.0, "a": [True, None, "é"]}) == '{"a":[true,null,"é"],"b":1.0}'
    assert canonical({"b": 1, "a": 2}) == canonical({"a": 2, "b": 1})
    assert canonical(0.1 + 0.2) == "0.30000000000000004"


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, {1, 2}, b"x", object(), "\ud800", {"a": {1: 2, "b": 3}}]
)
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(EventError, match="not a JSON value"):
        canonical(value)


def test_a_loop_in_a_value_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(EventError):
        canonical(loop)


FLOATS = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-400, 400).map(lambda n: float(f"1.2345e{n % 309 - 10}"))
    | st.decimals(-1, 1, places=6).map(float)
)
FIELD = st.recursive(
    FLOATS | st.integers() | st.booleans() | st.none() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("aen"), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(st.sampled_from(["samples", "count", "e", "a"]), FIELD))
def test_the_text_of_a_payload_is_its_canonical_text(payload: dict[str, object]) -> None:
    assert payload_text(payload) == canonical(payload)


@pytest.mark.parametrize(
    "number", [1e15, 1e16, 1e17, 9.999e-5, 1e-4, 1.5e-5, 1e-6, -0.0, 5e-324, 1e300, 10**400, 2**63, -1e22]
)
def test_the_text_of_a_number_is_pythons_at_the_edges_of_exponents(number: float) -> None:
    assert payload_text({"n": number, "l": [[number]]}) == canonical({"n": number, "l": [[number]]})


@pytest.mark.parametrize("value", [math.nan, [[math.inf]], ["\ud800"], [{1, 2}, "x"]])
def test_the_text_of_a_payload_refuses_what_is_no_json(value: object) -> None:
    with pytest.raises(EventError, match="not a JSON value"):
        payload_text({"n": value})


def test_every_event_of_a_run_fits_its_type() -> None:
    seen = set()
    for _, kind, payload, _ in history():
        check(kind, payload)
        seen.add(kind)
    check("run_finished", {"totals": totals()})
    assert seen | {"run_finished"} == {
        "run_started",
        "state_estimated",
        "triggered",
        "decided",
        "plan_applied",
        "link_observed",
        "iteration_done",
        "time_lost",
        "link_failed",
        "link_restored",
        "gpu_failed",
        "gpu_repaired",
        "domain_slowed",
        "run_finished",
    }


EXAMPLES = {kind: payload for _, kind, payload, _ in history()} | {
    "run_finished": {"totals": totals()},
    "job_submitted": {"reason": "", "gpus": [], "spec": {"model": "llama-2-7b"}},
    "policy_updated": {"stage": "ppo", "update": 3, "steps": 2048, "metrics": {"loss": 0.5}},
    "policy_evaluated": {
        "role": "champion",
        "checkpoint": "ab",
        "window": "validate",
        "scores": {"regret": None},
    },
    "policy_promoted": {"checkpoint": "ab", "champion": None, "reason": "first", "interval": [0.1, 0.2]},
    "policies_compared": {
        "policy": "mpc", "base": "static", "seeds": [0, 1], "runs": ["a", None], "base_runs": ["b", "c"],
        "worlds": 1, "wins": 1, "losses": 0, "ties": 0, "saved": [0.2, 0.1, 0.3], "saved_middle": None,
        "tokens": [0.2, 0.1, 0.3], "verdict": "better",
    },
    "front_reached": {"policy": "mpc", "points": 9, "coverage": 0.9, "hypervolume": 0.99, "exact": True},
    "regret_measured": {"policy": "mpc", "seed": 0, "level": None, "run": "a", "regret": 0.1, "exact": False},
    "noise_measured": {"policy": "bound", "level": 0.1, "worlds": 5, "median": 0.01, "worst": None},
    "load_measured": {
        "policy": "mpc", "load": 1.2, "worlds": 5, "stability": [0.9, 0.8, 1.0], "worst": 0.8, "queued": 0.1,
        "utilisation": 0.4,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_missing_an_unknown_or_a_wrong_field_is_refused(kind: str) -> None:
    payload = EXAMPLES[kind]
    check(kind, payload)
    with pytest.raises(EventError, match=f"{kind}: surprise"):
        check(kind, {**payload, "surprise": 1})
    required = EVENT_TYPES[kind].payload.model_fields
    for name, field in required.items():
        if field.is_required():
            with pytest.raises(EventError, match=name):
                check(kind, {key: value for key, value in payload.items() if key != name})
        with pytest.raises(EventError, match=name):
            check(kind, {**payload, name: object()})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_nan_gets_in(value: float) -> None:
    with pytest.raises(EventError, match="factor"):
        check("domain_slowed", {"domain": 0, "factor": value})
    with pytest.raises(EventError):
        canonical({"samples": [[0, 1, value, 0.1]]})


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(EventError, match="no such event type; known: run_started"):
        check("link_burnt", {})


def test_the_line_of_an_event_is_canonical_json() -> None:
    payload = {"src": 0, "dst": 1}
    text = line(7, 12, "link_failed", 1, 'a "job"', canonical(payload))
    whole = {
        "seq": 7,
        "sim_ns": 12,
        "type": "link_failed",
        "version": 1,
        "job": 'a "job"',
        "payload": payload,
    }
    assert text.decode() == canonical(whole) + "\n"


def test_old_payloads_are_lifted_to_the_current_version(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = EVENT_TYPES["link_failed"]
    monkeypatch.setitem(events.EVENT_TYPES, "link_failed", events.EventType("link_failed", 3, kind.payload))
    monkeypatch.setitem(events.UPCAST, ("link_failed", 1), lambda old: {"from": old["a"], "to": old["b"]})
    monkeypatch.setitem(events.UPCAST, ("link_failed", 2), lambda old: {"src": old["from"], "dst": old["to"]})
    assert upcast("link_failed", 1, {"a": 0, "b": 1}, "x") == (3, {"src": 0, "dst": 1})
    assert upcast("link_failed", 2, {"from": 0, "to": 1}, "x") == (3, {"src": 0, "dst": 1})
    assert upcast("link_failed", 3, {"src": 0, "dst": 1}, "x") == (3, {"src": 0, "dst": 1})


@pytest.mark.parametrize(("kind", "version"), [("link_failed", 2), ("link_failed", 0), ("link_burnt", 1)])
def test_newer_payloads_are_not_guessed_at(kind: str, version: int) -> None:
    with pytest.raises(DamageError, match="here: event type"):
        upcast(kind, version, {}, "here")


def test_every_older_version_can_be_lifted() -> None:
    for name, kind in EVENT_TYPES.items():
        for version in range(1, kind.version):
            assert (name, version) in events.UPCAST


def test_every_field_of_every_type_is_documented() -> None:
    for kind in EVENT_TYPES.values():
        for name, field in kind.payload.model_fields.items():
            assert field.description, f"{kind.name}.{name} has no meaning"
