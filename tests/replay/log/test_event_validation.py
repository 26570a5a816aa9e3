"""What screening proves must be so: it may doubt a sound text, never pass another one."""

import json
import random
import struct
from collections.abc import Iterator
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.log import event_validation
from replay.log.event_validation import _fits, faults, sound, split
from replay.log.events import EVENT_TYPES, EventError, canonical, check
from replay.log.segment import SCHEMA
from tests.support.histories import history


def table(rows: list[tuple[str, str]], wall: str = "{}") -> pa.Table:
    """(type, payload text) of each event."""
    full = [(n, n, kind, 1, "", text, wall) for n, (kind, text) in enumerate(rows)]
    columns = list(zip(*full, strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def is_canonical(text: str) -> bool:
    try:
        return canonical(json.loads(text)) == text
    except (ValueError, EventError):
        return False


def proves(text: str) -> bool:
    """Whether the text would be taken for canonical for its skeleton and its numbers."""
    skeletons, fine = split(pa.array([text]))
    return bool(fine[0]) and is_canonical(skeletons[0].as_py().decode())


def floats() -> Iterator[float]:
    chance = random.Random(0)
    for _ in range(20_000):
        (value,) = struct.unpack("<d", chance.randbytes(8))
        if value == value and abs(value) != float("inf"):
            yield value
        yield chance.lognormvariate(0, 12) * chance.choice([1, -1])
        yield round(chance.uniform(-1e6, 1e6), chance.randrange(8))
        yield float(chance.randrange(-(10**17), 10**17))


def test_every_float_as_python_writes_it_or_doubted_and_no_other_text() -> None:
    written = [canonical(value) for value in floats()]
    others = [
        form
        for value, text in zip(floats(), written, strict=True)
        for form in (f"{value:.17g}", f"{value:.16f}", f"{value:f}", f"{value:e}", text + "0", "0" + text)
    ]
    fine = split(pa.array([f"[{text}]" for text in written]))[1]
    assert fine.mean() > 0.4
    skeletons, fine = split(pa.array([f"[{text}]" for text in others]))
    for text, passed, skeleton in zip(others, fine, skeletons.to_pylist(), strict=True):
        if passed and is_canonical(skeleton.decode()):
            assert is_canonical(f"[{text}]")


@pytest.mark.parametrize(
    "text", ["0", "-1", "12", "0.0", "-0.0", "1.5", "0.0001", "123456789012345.0", "1e+300"]
)
def test_numbers_as_they_are_written(text: str) -> None:
    assert is_canonical(f"[{text}]")
    assert proves(f"[{text}]") or "e" in text


@pytest.mark.parametrize(
    "text",
    ["00", "01", "-0", "-", "--1", "+1", "1.", ".5", "1.50", "0.00001", "1e5", "1E5", "1.5.5", "1-1", "1 ",
     "10.5e+16", "1.5e+16e", "0x1", "1_0", "1true", "NaN", "9" * 400 + ".0", "1.5e", "0.10000000000000001",
     "10000000000000000.0", "99999999999999999.5", '"\\u0041"', '"a', "1,", "1,,2", "]"],
)  # fmt: skip
def test_other_texts_are_not_passed(text: str) -> None:
    assert not is_canonical(f"[{text}]")
    assert not proves(f"[{text}]")


@settings(max_examples=1000, deadline=None)
@given(st.text(alphabet='{}[]",:0123456789.-+eE atruefalsn\\é', max_size=24))
def test_nothing_else_is_passed(text: str) -> None:
    assert is_canonical(text) or not proves(text)


MUTATIONS = '0123456789.-+e,:[]{}" \\a'


def test_no_changed_byte_of_an_event_is_passed_unless_it_is_another_sound_event() -> None:
    chance = random.Random(1)
    rows = [(kind, canonical(payload)) for _, kind, payload, _ in history(2)]
    assert list(faults(table(rows), "x")) == []
    for kind, text in {row[0]: row for row in rows if len(row[1]) < 1500}.values():
        changed = []
        for _ in range(400):
            place = chance.randrange(len(text))
            new = chance.choice(MUTATIONS)
            changed.append((kind, text[:place] + new + text[place + chance.randrange(2) :]))
        proven = sound(table(changed))
        for (_, other), passed in zip(changed, proven, strict=True):
            if passed:
                assert is_canonical(other)
                check(kind, json.loads(other))


def test_most_events_of_a_run_are_proven() -> None:
    rows = [(kind, canonical(payload)) for _, kind, payload, _ in history() if kind != "decided"]
    assert sound(table(rows)).mean() > 0.95


def test_walls_types_and_versions_are_looked_at() -> None:
    good = ("link_failed", '{"dst":1,"src":0}')
    assert sound(table([good])).all()
    assert sound(table([good], wall='{"latency_s":0.25}')).all()
    for wall in ('{"b": 1}', "{", "", '{"b":1,"a":1}', '{"a":1.50}', '{"a":0.10000000000000001}', "[" * 4000):
        assert not sound(table([good], wall=wall)).any()
    assert "canonical" in next(faults(table([good], wall='{"b": 1}'), "x"))[1]
    assert list(faults(table([good], wall='{"b":1}'), "x")) == []
    assert "unknown" in next(faults(table([("link_burnt", "{}")]), "x"))[1]
    other = table([good]).set_column(3, SCHEMA.field("version"), pa.array([2], pa.int32()))
    assert "version 2 is unknown" in next(faults(other, "here"))[1]
    assert not _fits("link_failed 1", b"") and not _fits("link_failed 2", b'{"dst":1,"src":0}')


def test_rules_on_fields_do_not_look_at_the_size_of_numbers() -> None:
    for kind in EVENT_TYPES.values():
        seen = list(limits(kind.payload.model_fields.values()))
        assert set(seen) <= {("ge", 0), ("min_length", 3), ("max_length", 3)}, kind.name


def limits(things: Any) -> Iterator[tuple[str, Any]]:
    """Every limit in the fields of a model, in nested annotations too."""
    for thing in things:
        for rule in getattr(thing, "metadata", None) or getattr(thing, "__metadata__", ()):
            yield from (
                (name, getattr(rule, name))
                for name in ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
                if getattr(rule, name, None) is not None
            )
            yield from limits([rule] if hasattr(rule, "metadata") else [])
        yield from limits([thing.annotation] if hasattr(thing, "annotation") else get_args(thing))


def test_an_empty_table() -> None:
    assert list(faults(table([("link_failed", "{}")]).slice(1), "x")) == []
    assert event_validation.sound(table([("link_failed", "{}")]).slice(1)).shape == (0,)
