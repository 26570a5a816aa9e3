"""Requests to a service, from its OpenAPI document and from the border of what that allows.

Hypothesis draws a body as JSON values. `Now`, `RunningPlan` and `WaitingOrder` in it stand for what is known
only when it is sent. Most bodies fit their schema, so that they come far; in some a value is from the border
or of another type, and some are no JSON at all.
"""

import json
import math
import time
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from service.session.session import Session

Json = dict[str, Any]
NUMBERS = (
    5e-324,
    -5e-324,
    2.2e-308,
    1e-9,
    0,
    -0.0,
    0.5,
    1,
    1.0,
    1e15,
    1e15 + 1,
    1e308,
    math.inf,
    -math.inf,
    math.nan,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    2**64,
    10**400,
    -1,
)
LONG = "x" * 1_000_000
TEXTS = ("", "d0", "d1", "D0", "d9", "\x00", "\ud800", "é\u202e", "null", "../x", LONG)
NAMES = ("d0", "d1", "d2")
DEEP = 100_000
TYPED = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Now:
    """The service's time when the request is sent, and nanoseconds more."""

    more_ns: int = 0


@dataclass(frozen=True)
class RunningPlan:
    """The plan in force, with other fields."""

    changes: Json = field(default_factory=dict)


@dataclass(frozen=True)
class WaitingOrder:
    """The number of the order that waits, or 0."""


@dataclass(frozen=True)
class Sent:
    """One request: `body` is bytes, or JSON values with what is known later."""

    method: str
    path: str
    query: dict[str, str]
    head: dict[str, str]
    body: Any
    encoding: str = "utf-8"

    def content(self, session: Session) -> bytes | None:
        """The bytes of the body."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        items = _filled(self.body, session)
        if self.head.get("Content-Type") == "application/x-ndjson" and isinstance(items, list):
            return "\n".join(map(json.dumps, items)).encode(self.encoding)
        return json.dumps(items).encode(self.encoding)


def _filled(value: Any, session: Session) -> Any:
    match value:
        case Now():
            return time.time_ns() + value.more_ns
        case RunningPlan():
            plan = session.published.plan or (session.published.decision or {}).get("plan") or {}
            return {**plan, **value.changes}
        case WaitingOrder():
            order = session.published.order
            return 0 if order is None else order["number"]
        case dict():
            return {key: _filled(one, session) for key, one in value.items()}
        case list():
            return [_filled(one, session) for one in value]
    return value


anything = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(TEXTS) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def of_schema(schema: Json, definitions: Json) -> st.SearchStrategy[Any]:
    """Values of a JSON schema, with its limits among them, and now and then one that does not fit."""
    return st.integers(0, 30).flatmap(lambda n: anything if n == 0 else _fitting(schema, definitions))


def _fitting(schema: Json, definitions: Json) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return of_schema(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return st.one_of([of_schema(one, {**definitions, **one.get("$defs", {})}) for one in schema["anyOf"]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    low, high = schema.get("minimum", -(2**40)), schema.get("maximum", 2**40)
    match schema.get("type"):
        case "integer":
            return st.sampled_from((low, high, low - 1, high + 1)) | st.integers(low, min(high, low + 100))
        case "number":
            within = st.floats(low, high, allow_nan=False)
            return within | st.sampled_from((low, high)) | st.sampled_from(NUMBERS)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            items = [of_schema(one, definitions) for one in schema.get("prefixItems", ())]
            return (
                st.tuples(*items).map(list)
                if items
                else st.lists(of_schema(schema.get("items", {}), definitions), max_size=3)
            )
        case "string":
            return st.sampled_from((*NAMES, "llama2-7b", "gpt2-1.5b")) | st.sampled_from((*NAMES, *TEXTS))
        case "object":
            return _object(schema, definitions)
    return anything


def _object(schema: Json, definitions: Json) -> st.SearchStrategy[Json]:
    known, needed = schema.get("properties", {}), set(schema.get("required", ()))
    fields = {
        name: st.just(Now()) | st.sampled_from((-1, -(10**9), 10**10)).map(Now) | of_schema(one, definitions)
        if name == "epoch_ns"
        else of_schema(one, definitions)
        for name, one in known.items()
    }
    if isinstance(more := schema.get("additionalProperties"), dict):
        return st.dictionaries(
            st.sampled_from((*NAMES, "d9", "\ud800")), of_schema(more, definitions), max_size=3
        )
    whole = st.fixed_dictionaries(
        {name: one for name, one in fields.items() if name in needed or name == "epoch_ns"},
        optional={name: one for name, one in fields.items() if name not in needed and name != "epoch_ns"},
    )
    spoilt = st.tuples(whole, st.sampled_from((*known, "unknown")), anything)
    changed = spoilt.map(lambda drawn: {**drawn[0], drawn[1]: drawn[2]})
    return st.integers(0, 11).flatmap(lambda n: changed if n == 0 else whole)


PLAN_CHANGES = st.dictionaries(
    st.sampled_from(
        (
            "p2p",
            "recompute",
            "schedule",
            "zero",
            "extra_warmup",
            "dp",
            "micro_batch",
            "micro_batches",
            "routes",
            "sync",
            "chunks",
            "ep",
            "context_parallel",
            "sequence_parallel",
            "shares",
            "unknown",
        )
    ),
    st.sampled_from(
        (
            "Blocking",
            "blocking",
            "overlapped",
            "rendezvous",
            "x",
            "1f1b",
            "gpipe",
            "zb-h1",
            "full",
            "none",
            "selective",
            0,
            1,
            2,
            3,
            4,
            8,
            -1,
            True,
            False,
            10**18,
            10**7,
            2**63,
            5e-324,
            None,
            [],
            [[0, 2, 1]],
            {},
            {"inner_steps": 4},
        )
    )
    | anything,
    max_size=2,
)
links = st.fixed_dictionaries(
    {
        "kind": st.just("link"),
        "epoch_ns": st.just(Now()),
        "ends": st.permutations(NAMES),
        "bandwidth_bps": st.sampled_from(
            (0, 0, 1, 1, 1, 1.5, 1e3, 1e9, 2e9, 1e12, 1e15, 0.999, 5e-324, math.inf)
        ),
    },
    optional={"latency_s": st.sampled_from((0, None, 1e-9, 0.05, 1.0, 1e7, 5e-324))},
).map(lambda item: {**item, "src": item["ends"][0], "dst": item["ends"][1]})
steps = st.fixed_dictionaries(
    {
        "kind": st.just("step"),
        "epoch_ns": st.just(Now()),
        "step": st.integers(0, 2**53 + 1),
        "seconds": st.sampled_from((1e-9, 1e-3, 1, 10.0, 1e7, 5e-324, 1e308)),
    },
    optional={
        "compute_s": st.dictionaries(
            st.sampled_from(NAMES), st.sampled_from((0, 1e-9, 1, 1e7, 5e-324)), max_size=3
        ),
        "sent": st.lists(
            st.tuples(
                st.sampled_from(NAMES),
                st.sampled_from(NAMES),
                st.sampled_from((0, 1, 2**53)),
                st.sampled_from((0, 1e-9, 1e7)),
            ).map(list),
            max_size=2,
        ),
        "memory_peak_bytes": st.sampled_from((0, 2**40, 2**53, 2**64)),
    },
)
machines = st.fixed_dictionaries(
    {"kind": st.just("domain"), "epoch_ns": st.just(Now()), "domain": st.sampled_from(NAMES)},
    optional={"gpus": st.integers(0, 5), "slowdown": st.sampled_from((0.01, 1, 1.3, 1000, 5e-324, 1e9))},
)
plans = st.fixed_dictionaries(
    {
        "kind": st.just("plan"),
        "epoch_ns": st.just(Now()),
        "state": st.just("running"),
        "plan": st.just(RunningPlan()) | PLAN_CHANGES.map(RunningPlan),
    }
) | st.fixed_dictionaries(
    {
        "kind": st.just("plan"),
        "epoch_ns": st.just(Now()),
        "state": st.sampled_from(("applied", "refused")),
        "order": st.just(WaitingOrder()) | st.sampled_from((0, 2**53, -1)),
    },
    optional={"pause_s": st.sampled_from((0, 1e-9, 5.0, 1e7, 5e-324)), "reason": st.sampled_from(TEXTS)},
)
observations = st.one_of(links, links, steps, machines, plans)
submitted = st.fixed_dictionaries(
    {
        "kind": st.just("submit"),
        "id": st.sampled_from(("a", "b", "c", "../x")),
        "gpus": st.integers(0, 5),
        "estimate_s": st.sampled_from((1, 60.0, 8_640_000, 5e-324, 1e300)),
    },
)
jobs = submitted | st.fixed_dictionaries(
    {
        "kind": st.sampled_from(("start", "start", "end", "cancel")),
        "id": st.sampled_from(("a", "b", "c", "../x")),
    },
    optional={"gpus": st.sampled_from((1, 1, 4, 5, {"d0": 1}, {"d0": 4}, {}, 2**63))},
)
JUNK = (
    b"",
    b"{",
    b"[" * DEEP,
    b'{"a":' * DEEP,
    b'"' + b"x" * 1_000_000 + b'"',
    b"\xff\xfe\x00",
    b"\x00",
    b"null",
    b"1e999",
    b'"\\ud800"',
    b"[NaN]",
    b"\xef\xbb\xbf[]",
    "[{}]".encode("utf-16"),
    '{"mode":"hold"}'.encode("utf-32"),
    '{"mode":"shadow","reason":"é"}'.encode("latin-1"),
    b'{"mode":"hold","mode":"shadow"}',
    b"[" + b"{}," * 1000 + b"{}]",
    b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--b--",
)
CONTENT = (
    *["application/json"] * 12,
    "application/json; charset=utf-16",
    "application/x-ndjson",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
)


def requests(document: Json) -> st.SearchStrategy[Sent]:
    """Requests to every operation of an OpenAPI document, but to the stream, which has no end."""
    definitions = document.get("components", {}).get("schemas", {})
    found = [
        _request(method.upper(), path, operation, definitions)
        for path, operations in sorted(document["paths"].items())
        for method, operation in sorted(operations.items())
        if path != "/v1/stream"
    ]
    far = st.lists(observations, min_size=1, max_size=4).map(
        lambda items: Sent("POST", "/v1/observations", {}, TYPED, items)
    )
    queue = st.lists(jobs, max_size=3).map(lambda items: Sent("POST", "/v1/jobs", {}, TYPED, items))
    active = st.just(Sent("POST", "/v1/mode", {}, TYPED, {"mode": "active"}))
    usual = (far, far, far, far, queue, active)  # `one_of` would weigh all alike
    return st.integers(0, 2 * len(usual)).flatmap(lambda n: usual[n] if n < len(usual) else st.one_of(found))


def _request(method: str, path: str, operation: Json, definitions: Json) -> st.SearchStrategy[Sent]:
    query, head, names = {}, {}, {}
    for one in operation.get("parameters", ()):
        place = {"query": query, "header": head, "path": names}[one["in"]]
        place[one["name"]] = of_schema(one["schema"], definitions)
    content = operation.get("requestBody", {}).get("content", {})
    fits = of_schema(content["application/json"]["schema"], definitions) if content else st.none()
    return st.builds(
        Sent,
        st.just(method),
        st.fixed_dictionaries({name: one.map(_as_head) for name, one in names.items()}).map(
            lambda drawn: path.format(**drawn)
        ),
        st.fixed_dictionaries({}, optional={name: one.map(_as_text) for name, one in query.items()}),
        st.fixed_dictionaries(
            {"Content-Type": st.sampled_from(CONTENT)} if content else {},
            optional={name: one.map(_as_head) for name, one in head.items()},
        ),
        st.integers(0, 9).flatmap(lambda n: st.sampled_from(JUNK) if n == 0 and content else fits),
        st.sampled_from(("utf-8", "utf-8", "utf-8", "utf-8", "utf-16", "utf-32", "utf-8-sig")),
    )


def _as_text(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()[:2000]


def _as_head(value: Any) -> str:
    return "".join(letter for letter in str(value)[:300] if " " <= letter <= "~")
