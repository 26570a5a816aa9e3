"""Step times from the event files of TensorBoard: `events.out.tfevents.*`.

A file is a row of records: length, its checksum, an `Event` of Protocol Buffers, its checksum. Where a run
logs `iteration-time` (as Megatron-LM does, in seconds), those are the step times. Otherwise a row is the mean
wall time of the steps between two steps with scalars, each at its first scalar, as reader `scalars` has it.
A record whose checksum is wrong is rejected. `source_row` is the number of the record. Definition:
TensorFlow, `record_writer.cc` (masked CRC-32C), `event.proto`, `summary.proto`, `tensor.proto`.
"""

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import PurePath
from typing import Any

from ingest.core.errors import InputError
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, number, whole
from ingest.parsing.protobuf_wire import exactly, fields
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import FAULTS, RowBuilder
from ingest.parsing.source import Source
from ingest.readers.training.scalars import between

_TABLE = "step_times"
_COLUMNS = ("step", "time_s", "kind", "steps")
_MARK = b"brain.Event:"
_TIMED = ("iteration-time", "iteration_time")
_WALL, _STEP, _SUMMARY, _VALUE, _TAG, _SIMPLE, _TENSOR = 1, 2, 5, 1, 1, 2, 8
_DTYPE, _CONTENT, _FLOATS, _DOUBLES = 1, 4, 5, 6
_FLOAT, _DOUBLE = 1, 2
Scalar = tuple[int, int, float, str, float]
"""Record, step, wall time in seconds, tag, value."""


class TensorBoard:
    """Scalars that a run wrote for TensorBoard."""

    name = "tensorboard"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the first record states the version of the format."""
        return _MARK in head[:64] and not head.startswith(_MARK)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each logged step but the first, or for each logged time of a step.

        Raises:
            InputError: it holds no scalars, or is cut at its beginning.
        """
        rows = RowBuilder(_TABLE, _COLUMNS, job=_job(source.path), gpu_model=options.gpu_model)
        found = list(_scalars(source, rows))
        if not found and not len(rows):
            raise InputError(f"{source.shown}: no scalars: it holds the times of no step")
        timed = [one for one in found if one[3] in _TIMED]
        for record, step, _, _, value in timed:
            rows.take(
                record, "value", repr(value), lambda s, v: (whole(s), amount(v), "step", 1), step, value
            )
        if not timed:
            _by_wall_time(found, rows)
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "tensorboard: without scalars iteration-time, the time of a step is the wall time between two "
            "logged steps, whatever was done there",
        )


def _by_wall_time(found: list[Scalar], rows: RowBuilder) -> None:
    before: tuple[int, float] | None = None
    for record, step, wall_s, _, _ in found:
        if before is not None and step == before[0]:
            continue
        if before is not None:
            rows.take(record, "step", f"{step},{wall_s}", between, before, (step, wall_s))
        before = step, wall_s


def _job(path: PurePath) -> str:
    """Name of the folder, as TensorBoard names runs; that of the file if it lies in none."""
    return path.parent.name or path.name


def _scalars(source: Source, rows: RowBuilder) -> Iterator[Scalar]:
    """Yields the scalars of a file in its order; a record that is damaged or cut goes to the rejects."""
    with source.open() as stream:
        record = 0
        while head := stream.read(12):
            record += 1
            try:
                size, check = struct.unpack("<QI", head)
                if check != masked_crc32c(head[:8]):
                    raise ValueError("the checksum of its length is wrong")
                data, (check,) = exactly(stream, size), struct.unpack("<I", exactly(stream, 4))
            except (ValueError, struct.error) as error:
                reason = f"{error}; what follows cannot be found"
                rows.reject(record, "record", head.hex(), reason)
                return
            try:
                made = _event(data)
                if made and check != masked_crc32c(data):
                    raise ValueError("its checksum is wrong")
            except (*FAULTS, struct.error) as error:
                rows.reject(record, "record", data[:40].hex(), error)
                continue
            yield from ((record, *one) for one in made)


def _event(data: bytes) -> list[tuple[int, float, str, float]]:
    """Step, wall time, tag and value of the scalars of an event."""
    wall_s, step, made = 0.0, 0, list[tuple[str, float]]()
    for number_of, value in fields(data):
        if number_of == _WALL and isinstance(value, bytes):
            wall_s = number(struct.unpack("<d", value)[0])
        elif number_of == _STEP and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
        elif number_of == _SUMMARY and isinstance(value, bytes):
            made += [one for n, held in fields(value) if n == _VALUE for one in _scalar(held)]
    return [(step, wall_s, *one) for one in made]


def _scalar(held: int | bytes) -> list[tuple[str, float]]:
    """Tag and value of a scalar, in the form of 2015 or as a tensor of one element; else nothing."""
    given = dict(fields(held)) if isinstance(held, bytes) else {}
    tag, simple, tensor = given.get(_TAG), given.get(_SIMPLE), given.get(_TENSOR)
    name = tag.decode("utf-8", "replace") if isinstance(tag, bytes) else ""
    if isinstance(simple, bytes):
        return [(name, struct.unpack("<f", simple)[0])]
    if isinstance(tensor, bytes):
        parts: dict[int, Any] = dict(fields(tensor))
        form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(parts.get(_DTYPE, 0))
        data = parts.get(_CONTENT) or parts.get(_FLOATS) or parts.get(_DOUBLES)
        if form and isinstance(data, bytes) and len(data) == struct.calcsize(form):
            return [(name, struct.unpack(form, data)[0])]
    return []


def masked_crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), turned right by 15 bits, plus 0xa282ead8."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    made = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        made.append(crc)
    return tuple(made)
