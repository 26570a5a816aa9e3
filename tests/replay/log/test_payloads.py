"""Every payload that fits its type is stored and read back as it was; what does not fit never gets in."""

import json
import math
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue

from replay.log.events import EVENT_TYPES, EventError, canonical, check, line, payload_text, upcast
from tests.support.tally import EFFORT, tally

EXAMPLES = 100 * EFFORT
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
WRONG = (object(), {1, 2}, b"bytes", math.nan, math.inf, "\ud800", {1: 2}, 1 + 2j, [[object()]])
"""What no field of any type takes."""


def of_type(kind: Any, low: float | None = None, size: int | None = None) -> st.SearchStrategy[Any]:
    """Values of a field's type; `low` is the least number, `size` the length of a list."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is JsonValue:
        return JSON
    if origin is Annotated:
        inner, *notes = arguments
        rules = [rule for note in notes for rule in (note, *getattr(note, "metadata", ()))]
        low = max((rule.ge for rule in rules if getattr(rule, "ge", None) is not None), default=low)
        size = max((rule.min_length for rule in rules if getattr(rule, "min_length", None)), default=size)
        return of_type(inner, low, size)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of([of_type(one, low, size) for one in arguments])
    if origin is list:
        return st.lists(of_type(arguments[0]), min_size=size or 0, max_size=3 if size is None else size)
    if origin is dict:
        return st.dictionaries(TEXT, of_type(arguments[1]), max_size=3)
    plain = {int: st.integers(min_value=low), str: TEXT, bool: st.booleans(), NoneType: st.none()}
    return plain[kind] if kind in plain else st.floats(low, allow_nan=False, allow_infinity=False)


def fitting(model: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    """Payloads of a type; fields with a default may be left out."""
    fields = {
        name: of_type(Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation)
        for name, field in model.model_fields.items()
    }
    needed = {name for name, field in model.model_fields.items() if field.is_required()}
    return st.fixed_dictionaries(
        {name: fields[name] for name in needed},
        optional={name: made for name, made in fields.items() if name not in needed},
    )


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_a_payload_that_fits_reads_back_equal_and_any_misfit_is_refused(name: str) -> None:
    kind = EVENT_TYPES[name]

    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(fitting(kind.payload), st.data())
    def tried(payload: dict[str, Any], data: st.DataObject) -> None:
        assert check(name, payload) is kind
        text = payload_text(payload)
        assert text == canonical(payload) and json.loads(text) == payload
        assert upcast(name, kind.version, json.loads(text), "here") == (kind.version, payload)
        stored = json.loads(line(7, 9, name, kind.version, "job", text))
        assert stored["payload"] == payload and stored["type"] == name
        victim = data.draw(st.sampled_from(sorted(kind.payload.model_fields)))
        misfits = [{**payload, victim: data.draw(st.sampled_from(WRONG))}, {**payload, "more": 0}]
        if kind.payload.model_fields[victim].is_required():
            misfits.append({key: value for key, value in payload.items() if key != victim})
        for misfit in misfits:
            with pytest.raises(EventError):
                check(name, misfit)
                payload_text(misfit)  # a text that is none in UTF-8 is found when it is written

    tried()
    tally("payloads", EXAMPLES)
