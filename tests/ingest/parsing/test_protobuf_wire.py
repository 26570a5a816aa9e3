"""Fields of messages against the examples of the format's documentation; damage is a ValueError."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.protobuf_wire import delimited, exactly, fields
from tests.support.kits_binary import counted, held


def test_examples_of_the_documentation() -> None:
    assert list(fields(b"\x08\x96\x01")) == [(1, 150)]  # "A Simple Message"
    assert list(fields(b"\x12\x07testing")) == [(2, b"testing")]  # "Length-Delimited Records"
    assert list(fields(b"\x09" + bytes(8) + b"\x15" + bytes(4))) == [(1, bytes(8)), (2, bytes(4))]


def test_messages_behind_their_lengths() -> None:
    long = b"x" * 300
    assert list(delimited(io.BytesIO(b"\x01a\x00\xac\x02" + long))) == [b"a", b"", long]


@pytest.mark.parametrize("data", [b"\x08", b"\x08\xff", b"\x12\x05abc", b"\x0b", b"\x00\x00", b"\x09abc"])
def test_damage_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        list(fields(data))


def test_a_cut_stream_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="ends inside"):
        list(delimited(io.BytesIO(b"\x05abc")))
    with pytest.raises(ValueError, match="damaged"):
        exactly(io.BytesIO(b""), 1 << 40)


VALUES = st.one_of(st.integers(0, 2**64 - 1), st.binary(max_size=40))


@given(st.lists(st.tuples(st.integers(1, 500), VALUES)), st.integers(0, 60))
def test_what_is_written_is_read_and_what_is_cut_is_named(
    made: list[tuple[int, int | bytes]], cut: int
) -> None:
    parts = [held(n, one) if isinstance(one, bytes) else counted(n, one) for n, one in made]
    message = b"".join(parts)
    assert list(fields(message)) == made
    ends = {len(b"".join(parts[:n])) for n in range(len(parts) + 1)}
    if cut < len(message) and cut not in ends:
        with pytest.raises(ValueError, match="not a message"):
            list(fields(message[:cut]))
