"""Rules that hold for every row of a canonical table, whatever reader made it, checked column by column."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.config import suggestion
from ingest.lake.schema import LINK_KINDS, TABLES

FRACTIONS = frozenset({"loss", "util", "sm_active", "tensor_active", "dram_active", "cumulative"})
"""Columns that lie between 0 and 1."""
SIGNED = frozenset({"temp_c", "source_row", "step", "value", "usd_per_mwh"})
"""Numbers that may be negative; all others may not."""
LIMITS = {"latitude_deg": 90, "longitude_deg": 180}
"""Largest size of numbers that may be negative."""
POSITIVE = frozenset({"streams", "micro_batch", "tp", "ranks", "nodes", "seq", "steps"})
MEASURES = {
    "link_samples": ("bandwidth_bps", "rtt_s", "loss", "one_way_s"),
    "gpu_samples": ("util", "power_w", "mem_used_bytes", "sm_active", "temp_c", "energy_j"),
    "layer_profiles": (
        *("forward_s", "backward_s", "update_s", "forward_backward_s"),
        *("param_bytes", "activation_bytes", "states_bytes", "peak_bytes"),
    ),
    "collective_profiles": ("time_s", "bandwidth_bps"),
    "carbon_intensity": ("direct_g_per_kwh", "life_cycle_g_per_kwh"),
    "step_times": ("time_s", "time_norm", "variation", "energy_j", "peak_mem_bytes"),
}
"""Tables of which a row must hold at least one of these: a row that measures nothing is no sample."""
WORDS = {("link_samples", "kind"): LINK_KINDS}
"""Columns of texts that say how a row is to be taken: any other text than these (or none) is a mistake."""
ADDED = ("dataset", "source_file", "ingest_id")
"""Columns that the ingest adds after this check."""
_FIRST_NS, _LAST_NS = 0, 7_258_118_400_000_000_000
"""Instants a measurement can bear: 1970 to 2200."""
_NAMED = 16
"""Unknown words of a batch up to which the reason suggests the nearest known one."""
_SLACK = 1e-9
"""By how much a fraction may exceed one through rounding."""

Fault = tuple[str, pa.BooleanArray, str]
"""Column, mask of the rows at fault, reason."""


def canonical(table: str, columns: Mapping[str, Any]) -> pa.Table:
    """The columns in the schema's order, missing ones null.

    Text is held as dictionaries and every integer in 64 bits, until the rows that do not fit are gone.
    """
    schema = TABLES[table]
    length = len(columns["source_row"])
    arrays = []
    fields = [f for f in schema if f.name not in ADDED]
    for field in fields:
        given = columns.get(field.name)
        arrays.append(_as(given if given is not None else pa.nulls(length, field.type), _wide(field.type)))
    return pa.Table.from_arrays(arrays, names=[field.name for field in fields])


def settled(table: str, rows: pa.Table) -> pa.Table:
    """Rows without faults in the integer types of the schema."""
    for at, field in enumerate(rows.schema):
        kind = TABLES[table].field(field.name).type
        if pa.types.is_integer(kind) and field.type != kind:
            rows = rows.set_column(at, field.name, rows.column(field.name).cast(kind))
    return rows


def _wide(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(kind) else kind


def _as(values: Any, kind: pa.DataType) -> Any:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = pa.array(values, kind)
    if kind == pa.string():
        return values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    return values if values.type == kind else values.cast(kind)


def faults(table: str, rows: pa.Table) -> Iterator[Fault]:
    """Every rule that some row breaks, with the mask of those rows."""
    schema = TABLES[table]
    for field in schema:
        if field.name in ADDED:
            continue
        column = rows.column(field.name)
        if not field.nullable and column.null_count:
            yield field.name, pc.is_null(column), "a required value is missing"
        if column.null_count == len(column):
            continue
        if pa.types.is_floating(field.type) or pa.types.is_integer(field.type):
            yield from _number(field.name, column)
            if field.type == pa.int32():
                yield from _any(field.name, pc.greater(column, 2**31 - 1), "too large")
        elif pa.types.is_timestamp(field.type):
            yield from _instant(field.name, column)
        elif not field.nullable and any("" in chunk.dictionary.to_pylist() for chunk in column.chunks):
            yield from _any(field.name, pc.equal(column.cast(pa.string()), ""), "a required value is blank")
        elif (table, field.name) in WORDS:
            yield from _word(field.name, column, WORDS[table, field.name])
    if table in MEASURES:
        measures = [rows.column(name) for name in MEASURES[table]]
        if all(column.null_count for column in measures):
            nothing = reduce(pc.and_, [pc.is_null(column) for column in measures])
            yield from _any(MEASURES[table][0], nothing, "the row measures nothing")


def _number(name: str, column: pa.ChunkedArray) -> Iterator[Fault]:
    ends = pc.min_max(column).as_py()
    low, high = ends["min"], ends["max"]
    floating = pa.types.is_floating(column.type)
    if floating and not pc.all(pc.is_finite(column)).as_py():
        yield name, pc.fill_null(pc.invert(pc.is_finite(column)), False), "not a finite number"
    if name in LIMITS:
        yield from _any(name, pc.greater(pc.abs(column), LIMITS[name]), f"beyond {LIMITS[name]}")
    if name in SIGNED or name in LIMITS:
        return
    if not low >= 0:
        yield from _any(name, pc.less(column, 0), "negative")
    if name in POSITIVE and low <= 0:
        yield from _any(name, pc.equal(column, 0), "must be at least 1")
    if name in FRACTIONS and not high <= 1 + _SLACK:
        yield from _any(name, pc.greater(column, 1 + _SLACK), "above 1, not a fraction")


def _instant(name: str, column: pa.ChunkedArray) -> Iterator[Fault]:
    ticks = column.cast(pa.int64())
    ends = pc.min_max(ticks).as_py()
    if ends["min"] < _FIRST_NS or ends["max"] > _LAST_NS:
        outside = pc.or_(pc.less(ticks, _FIRST_NS), pc.greater(ticks, _LAST_NS))
        yield from _any(name, outside, "outside the years 1970 to 2200")


def _word(name: str, column: pa.ChunkedArray, known: tuple[str, ...]) -> Iterator[Fault]:
    said = {word for chunk in column.chunks for word in chunk.dictionary.to_pylist()}
    unknown = sorted(said - {None, "", *known})
    near = len(unknown) <= _NAMED
    reasons = {word: suggestion(word.lower() if near else "", known) for word in unknown}
    for reason in sorted({*reasons.values()}):
        words = pa.array([word for word in unknown if reasons[word] == reason], pa.string())
        yield from _any(name, pc.is_in(column.cast(pa.string()), words), f"unknown{reason}")


def _any(name: str, mask: pa.ChunkedArray, reason: str) -> Iterator[Fault]:
    mask = pc.fill_null(mask, False)
    if pc.any(mask).as_py():
        yield name, mask, reason
