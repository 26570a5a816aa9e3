"""Validation of stored events: finds those that a writer would not have accepted, many alike at once.

Most payloads differ in their numbers only. A text is split into its skeleton (every number replaced by 0, 1,
0.0 or 1.5 with its sign) and its numbers. A text is canonical and fits its type if its skeleton is and does,
and each of its numbers is written in canonical form. So one skeleton is checked for all texts that share it;
texts that are not proven valid in this way are checked one by one. The rules on fields may depend on type,
sign and zero of a number, not on its size (a test checks this).
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.compiled import njit
from ingest.core.errors import DamageError
from replay.log.events import EVENT_TYPES, EventError, EventType, canonical, check, upcast

LONGEST = 4096
"""Most bytes of a text that is split; longer ones are rarely alike."""
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Integers = np.ndarray[Any, np.dtype[np.int64]]


def faults(table: pa.Table, where: str) -> Iterator[tuple[int, str]]:
    """Yields (number, problem) of every event whose type, version, form or fields are wrong; `where` names
    the file."""
    names = ("seq", "type", "version", "payload", "wall")
    doubted = table.select(names).filter(pa.array(~sound(table)))
    for seq, name, version, text, wall in zip(*(c.to_pylist() for c in doubted.columns), strict=True):
        problem = _problem(name, version, text, wall, where)
        if problem:
            yield seq, problem


def _problem(name: str, version: int, text: str, wall: str, where: str) -> str | None:
    """Returns why a writer would not have accepted this event; None if it would."""
    try:
        payload = json.loads(text)
        if canonical(payload) != text or canonical(json.loads(wall)) != wall:
            return "the payload is not in its canonical form"
        check(name, upcast(name, version, payload, where)[1])
    except (ValueError, RecursionError, EventError, DamageError) as error:
        return str(error)
    return None


def sound(table: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Returns the rows that are proven valid, as a mask; others may be valid too."""
    skeletons, fine = split(table.column("payload").combine_chunks())
    fine &= _canonical_walls(table.column("wall").combine_chunks())
    kinds = pc.binary_join_element_wise(
        table.column("type").combine_chunks(),
        pc.cast(table.column("version").combine_chunks(), pa.string()),
        " ",
    ).dictionary_encode()
    shapes = skeletons.dictionary_encode()
    width = max(len(shapes.dictionary), 1)
    codes = kinds.indices.to_numpy().astype(np.int64) * width + shapes.indices.to_numpy()
    distinct, place = np.unique(codes, return_inverse=True)
    fits = np.array(
        [
            _fits(kinds.dictionary[int(code) // width].as_py(), shapes.dictionary[int(code) % width].as_py())
            for code in distinct
        ],
        dtype=bool,
    )
    return np.asarray(fine & fits[place], dtype=np.bool_)


def _canonical_walls(texts: pa.StringArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Returns the texts that are proven canonical, as a mask."""
    skeletons, fine = split(texts)
    shapes = skeletons.dictionary_encode()
    whole = np.array([_is_canonical(shape) for shape in shapes.dictionary.to_pylist()], dtype=bool)
    return np.asarray(fine & whole[shapes.indices.to_numpy()], dtype=np.bool_)


def _is_canonical(text: bytes) -> bool:
    try:
        return canonical(json.loads(text)).encode() == text
    except (ValueError, RecursionError, EventError):
        return False


def _fits(kind: str, skeleton: bytes) -> bool:
    name, version = kind.rsplit(" ", 1)
    known = EVENT_TYPES.get(name)
    if known is None or int(version) != known.version or not skeleton:
        return False
    return _fits_type(known, skeleton)


@lru_cache(maxsize=2048)
def _fits_type(kind: EventType, skeleton: bytes) -> bool:
    """True if a skeleton is canonical and fits the current version of its type."""
    return _problem(kind.name, kind.version, skeleton.decode(), "{}", "") is None


def split(texts: pa.StringArray) -> tuple[pa.BinaryArray, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Returns (skeleton of each text, mask of texts with canonical numbers); empty: not split."""
    texts = pc.cast(texts, pa.large_string())
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    bytes_ = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    size = int(offsets[-1] - offsets[0])
    skeleton, skeleton_ends = np.empty(size, np.uint8), np.zeros(len(texts) + 1, np.int64)
    long, long_ends = np.empty(size, np.uint8), np.zeros(size // 17 + 2, np.int64)
    rows, fine = np.zeros(size // 17 + 2, np.int64), np.ones(len(texts), np.bool_)
    found = _split(bytes_, offsets, skeleton, skeleton_ends, long, long_ends, rows, fine)
    fine[rows[:found][~_shortest(long, long_ends[: found + 1])]] = False
    return _array(skeleton, skeleton_ends), fine


def _shortest(data: Bytes, ends: Integers) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Returns the decimal texts that are the shortest exact form of their float, as a mask."""
    texts = pc.cast(_array(data, ends), pa.string())
    return np.asarray(pc.equal(pc.cast(pc.cast(texts, pa.float64()), pa.string()), texts))


def _array(data: Bytes, ends: Integers) -> pa.Array:
    used = np.ascontiguousarray(data[: ends[-1]])
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(used)]
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)


QUOTE, BACKSLASH, MINUS, PLUS, POINT, ZERO, NINE = (ord(sign) for sign in '"\\-+.09')


@njit(cache=True, nogil=True)
def _split(
    data: Bytes, offsets: Integers, skeleton: Bytes, skeleton_ends: Integers,
    long: Bytes, long_ends: Integers, rows: Integers, fine: np.ndarray[Any, np.dtype[np.bool_]],
) -> int:  # fmt: skip
    """Fills skeletons and the numbers of 16 and 17 digits; returns how many of these there are."""
    at_skeleton, at_long, found = 0, 0, 0
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        start, inside = at_skeleton, False
        fine[row] = end - at <= LONGEST
        while at < end and fine[row]:
            sign = data[at]
            if inside or not (sign == MINUS or ZERO <= sign <= NINE):
                if sign == BACKSLASH:  # escapes are left to the full check
                    fine[row] = False
                if sign == QUOTE:
                    inside = not inside
                skeleton[at_skeleton] = sign
                at_skeleton += 1
                at += 1
                continue
            first = at
            while at < end and _in_number(data[at]):
                at += 1
            kind = _number(data, first, at)
            if kind == DOUBTFUL:
                fine[row] = False
                break
            at_skeleton = _stand_in(kind, sign == MINUS, skeleton, at_skeleton)
            if kind == LONG_FLOAT:
                long[at_long : at_long + at - first] = data[first:at]
                at_long += at - first
                rows[found] = row
                found += 1
                long_ends[found] = at_long
        if not fine[row]:
            at_skeleton = start
        skeleton_ends[row + 1] = at_skeleton
    return found


DOUBTFUL, NO_INTEGER, INTEGER, NO_FLOAT, FLOAT, LONG_FLOAT = range(6)
"""Kinds of numbers: not canonical or not decided here; 0; others; 0.0; others; others of 16 digits on."""


@njit(inner=True, cache=True, nogil=True)
def _stand_in(kind: int, negative: bool, skeleton: Bytes, at: int) -> int:
    """Writes a short number of the same kind (0, 1, 0.0 or 1.5) into the skeleton; returns its end."""
    if negative:
        skeleton[at] = MINUS
        at += 1
    skeleton[at] = ZERO if kind in (NO_INTEGER, NO_FLOAT) else ZERO + 1
    at += 1
    if kind >= NO_FLOAT:
        skeleton[at] = POINT
        skeleton[at + 1] = ZERO if kind == NO_FLOAT else ZERO + 5
        at += 2
    return at


@njit(inner=True, cache=True, nogil=True)
def _in_number(sign: int) -> bool:
    return bool(ZERO <= sign <= NINE or sign in (POINT, MINUS, PLUS) or sign in (69, 101))  # E, e


@njit(inner=True, cache=True, nogil=True)
def _number(data: Bytes, first: int, end: int) -> int:
    """Returns the kind of the number in data[first:end]; decimals of up to 15 digits are distinct floats."""
    at = first + (data[first] == MINUS)
    point, digits, zeros = -1, 0, 0  # significant digits, zeros before the first of them
    for place in range(at, end):
        sign = data[place]
        if sign == POINT and point < 0:
            point = place
        elif not ZERO <= sign <= NINE:
            return DOUBTFUL
        elif digits or sign != ZERO:
            digits += 1
        else:
            zeros += 1
    whole = (point if point >= 0 else end) - at
    if whole < 1 or (data[at] == ZERO and whole > 1):
        return DOUBTFUL
    if point < 0:
        if digits == 0:
            return NO_INTEGER if at == first else DOUBTFUL
        return INTEGER
    fraction = end - point - 1
    if digits == 0:
        return NO_FLOAT if fraction == 1 else DOUBTFUL
    if fraction < 1 or (data[end - 1] == ZERO and fraction > 1) or zeros > 4:
        return DOUBTFUL  # below 0.0001 floats are written with an exponent
    if data[end - 1] == ZERO:
        return FLOAT if whole <= 15 else DOUBTFUL
    if digits <= 15:
        return FLOAT
    return LONG_FLOAT if digits <= 17 and whole <= 10 else DOUBTFUL  # Arrow's text is ours below 1e10
