"""Plans from outside: each field has its words or its range, and a message names both."""

from typing import Any

import pytest

from ingest.core.errors import UsageError
from twin.core.plan import to_json
from twin.settings.plan_document import PlanDocument, plan_fault, received_plan

SHARES = [
    {"domain": 0, "layers": 4, "tp": 1, "pp": 1, "gpus": [0, 1]},
    {"domain": 1, "layers": 5, "tp": 1, "pp": 1, "gpus": [2, 3]},
]
PLAN: dict[str, Any] = {"shares": SHARES, "dp": 2, "micro_batch": 1, "micro_batches": 8}


def test_a_plan_comes_back_as_it_was_sent() -> None:
    full = {
        **PLAN, "schedule": "interleaved", "chunks": 2, "p2p": "rendezvous", "recompute": "none", "zero": 3,
        "extra_warmup": 2, "routes": [[0, 2, 1]], "sequence_parallel": True, "context_parallel": 2, "ep": 2,
    }  # fmt: skip
    for sent in (PLAN, full):
        plan = received_plan(sent)
        assert {**to_json(plan), **sent} == to_json(plan)
    replicas = [{**share, "layers": 5} for share in SHARES]
    assert received_plan({**PLAN, "shares": replicas, "sync": {"inner_steps": 500}}).replicas == 2


@pytest.mark.parametrize(
    "field, value, words",
    [
        ("p2p", "Blocking", "'blocking', 'overlapped' or 'rendezvous'"),
        ("schedule", "x", "'gpipe', '1f1b', 'interleaved'"),
        ("recompute", "ful", "'none', 'selective' or 'full'"),
        ("zero", -1, "0 to 3"),
        ("extra_warmup", 10**18, "0 to 10,000"),
        ("dp", 2**63, "1 to 1,000,000"),
        ("dp", True, "a number"),
        ("dp", "2", "a valid integer"),
        ("micro_batch", float("inf"), "a valid integer"),
        ("sync.bytes_per_parameter", 5e-324, "0.01 to 64"),
        ("sync.bytes_per_parameter", float("nan"), "a finite number"),
        ("p2p", "\ud800", "a valid string"),
        ("zero_stage", 1, "unknown key"),
    ],
)
def test_a_fault_names_the_field_and_its_limits(field: str, value: Any, words: str) -> None:
    name, _, inner = field.partition(".")
    fault = plan_fault({**PLAN, name: {inner: value} if inner else value})
    assert fault is not None and f"plan {field}" in fault and words in fault
    fault.encode()  # it can be sent and logged


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"dp": 3}, "GPUs placed, dp*tp*pp differs"),
        ({"ep": 3}, "does not divide dp"),
        ({"chunks": 2}, "chunks"),
        ({"shares": [SHARES[0], SHARES[0]]}, "a domain appears twice"),
        ({"routes": [[0, 1, 0]]}, "once each"),
        ({"micro_batches": 10**7}, "operations; a plan has at most 2,000,000"),
    ],
)
def test_fields_agree_with_each_other(changes: dict[str, Any], words: str) -> None:
    fault = plan_fault({**PLAN, **changes})
    assert fault is not None and words in fault


@pytest.mark.parametrize("value", [None, [], "plan", 1, {}, {"shares": 1}])
def test_what_is_no_plan_is_said_to_be_none(value: Any) -> None:
    with pytest.raises(UsageError, match="plan"):
        received_plan(value)


def test_the_document_has_every_field_of_a_plan() -> None:
    from dataclasses import fields

    from twin.core.plan import Plan, Share, Sync
    from twin.settings.plan_document import ShareDocument, SyncDocument

    for document, plain in ((PlanDocument, Plan), (ShareDocument, Share), (SyncDocument, Sync)):
        assert set(document.model_fields) == {field.name for field in fields(plain)}
