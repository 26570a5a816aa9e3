"""What a wrong mapping would store, found in what it makes: refused unless `accept` says that it is meant.

A row with a time that cannot be, or a value above its range, is rejected. A file is refused whole where most
rows of a column are so, a measurement has one value in all rows, two columns are one column of the file,
names of sites are numbers, or a column that is named one-way would become a round trip. Values that are too
small reject no row, but the file where they are most. `accept = ["COLUMN.FAULT"]` in dataset.toml takes it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import time_ns
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.core.units import NS_PER_S
from ingest.parsing.reader import Reject, RowBatch

LEAST_ROWS = 8
"""Rows from which on a column without variation is suspicious."""
EARLIEST_NS = 1_104_537_600 * NS_PER_S
"""2005: before it nobody measured what the lake holds."""
_DAY_NS = 86_400 * NS_PER_S
RANGES: dict[str, tuple[float, float]] = {
    "bandwidth_bps": (1e3, 1e13),  # fastest Ethernet port: 1.6 Tb/s (IEEE 802.3dj)
    "rtt_s": (1e-7, 30.0),  # 10 m of fibre; TCP gives up later, nobody calls it a round trip
    "one_way_s": (1e-8, 30.0),
    "duration_s": (0.0, 3.2e8),  # ten years
    "streams": (1, 1e5),
    "power_w": (0.1, 5e4),  # of a GPU 1.4 kW, of a full node tens of kW
    "temp_c": (-40.0, 130.0),
    "sm_clock_mhz": (1.0, 5e3),
    "mem_used_bytes": (1e5, 1e13),
    "mem_total_bytes": (1e8, 1e13),
    "gpus": (0, 1e6),
    "gpus_available": (0, 1e6),
    "usd_per_gb": (0.0, 100.0),
    "direct_g_per_kwh": (0.1, 3000.0),  # lignite: 1,100; over the life cycle less than 3,000
    "life_cycle_g_per_kwh": (0.1, 3000.0),
    "time_s": (1e-8, 1e5),
    "forward_s": (1e-8, 1e4),
    "backward_s": (1e-8, 1e4),
    "update_s": (1e-8, 1e4),
    "param_bytes": (0, 1e14),
    "activation_bytes": (0, 1e14),
    **dict.fromkeys(("net_tx_bytes_s", "net_rx_bytes_s"), (0.0, 1e13)),
    **dict.fromkeys(
        ("nvlink_tx_bytes_s", "nvlink_rx_bytes_s", "pcie_tx_bytes_s", "pcie_rx_bytes_s"), (0.0, 1e13)
    ),
}
"""Least (of what is not zero) and largest value that is believed."""
MEASURED = frozenset(
    {"bandwidth_bps", "rtt_s", "one_way_s", "power_w", "util", "mem_used_bytes", "energy_j", "forward_s",
     "backward_s", "time_s", "time_norm"}
)  # fmt: skip
"""Columns that vary from row to row, as all measurements do."""
NAMES = frozenset({"src", "dst", "host", "domain", "op", "layer", "model", "gpu_model", "user", "status"})
ORDERED = {"end_ts": "start_ts", "start_ts": "submit_ts", "repaired_ts": "ts"}
"""Instant and the one that it cannot precede."""
_ONE_WAY = re.compile(r"one.?way|\bowd|owd\b|_owd|owd_|oneway", re.IGNORECASE)
_NUMBER = re.compile(
    r"[-+]?(\d+\.\d*|\.\d+)([eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+|-?\d{9,}|\d{4}-\d\d-\d\d[T ].*"
)


@dataclass(slots=True)
class _Seen:
    """What was seen of one column so far."""

    rows: int = 0
    out: int = 0
    first: str = ""
    values: set[Any] = field(default_factory=set)


def check_sources(shown: str, sources: Mapping[str, str], accept: tuple[str, ...]) -> None:
    """Look at the names of the columns alone.

    Raises:
        InputError: one column of the file is taken for two, or a one-way delay for a round trip.
    """
    owners: dict[str, str] = {}
    for target, source in sources.items():
        other = owners.setdefault(source, target)
        if other != target and f"{target}.shared" not in accept:
            raise InputError(
                f"{shown}: column {source!r} is mapped to both {other} and {target}; "
                f'correct [columns], or say accept = ["{target}.shared"]'
            )
    source = sources.get("rtt_s", "")
    if _ONE_WAY.search(source) and "rtt_s.one-way" not in accept:
        raise InputError(
            f"{shown}: column {source!r} is named one-way, and rtt_s is a round trip; "
            'map it to one_way_s, or say accept = ["rtt_s.one-way"]'
        )


def checked(
    shown: str, table: str, batches: Iterator[RowBatch], accept: tuple[str, ...]
) -> Iterator[RowBatch]:
    """Yields the batches with rows outside of the ranges rejected.

    Raises:
        InputError: at the end, if a column shows that the mapping is wrong.
    """
    seen: dict[str, _Seen] = {}
    series: set[Any] = set()
    for batch in batches:
        kept = _in_range(batch, seen, accept)
        _note(kept, table, seen, series)
        yield kept
    problem = _problem(seen, table, len(series), accept)
    if problem:
        raise InputError(f"{shown}: {problem}")


def _in_range(batch: RowBatch, seen: dict[str, _Seen], accept: tuple[str, ...]) -> RowBatch:
    """The batch without rows that a wrong mapping makes; each becomes a reject with the first reason."""
    count = len(batch.columns["source_row"])
    bad = np.zeros(count, bool)
    rejects = list(batch.rejects)
    for name, values in batch.columns.items():
        if name == "source_row" or not isinstance(values, pa.Array):
            continue
        here = seen.setdefault(name, _Seen())
        here.rows += len(values) - values.null_count
        found = None if f"{name}.range" in accept else _outside(name, values, batch.columns)
        if found is None:
            continue
        mask, low, reason = found
        here.out += int((mask | low).sum())
        if low.any() and not here.first:
            least = int(np.flatnonzero(low)[0])
            row = batch.columns["source_row"][least].as_py()
            here.first = f"row {row}, {_raw(batch, name, least)!r}: {reason}"
        for at in np.flatnonzero(mask & ~bad):
            raw = _raw(batch, name, int(at))
            here.first = (
                here.first or f"row {batch.columns['source_row'][int(at)].as_py()}, {raw!r}: {reason}"
            )
            reason_here = f'{reason}; accept = ["{name}.range"] takes it'
            rejects.append(Reject(batch.columns["source_row"][int(at)].as_py(), name, raw, reason_here))
        bad |= mask
    if not bad.any():
        return batch
    keep = pa.array(~bad)
    columns = {name: values.filter(keep) for name, values in batch.columns.items()}
    cells = {target: batch.raw[target].filter(keep) for target in batch.raw}
    return replace(batch, columns=columns, rejects=rejects, raw=cells)


def _outside(
    name: str, values: pa.Array, columns: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, str] | None:
    """The rows of a column that cannot be, those with less than is believed, and why."""
    low_mask = np.zeros(len(values), bool)
    if pa.types.is_timestamp(values.type):
        ticks = values.cast(pa.int64())
        late_ns = time_ns() + _DAY_NS
        masks = {
            "a time before 2005": pc.less(ticks, EARLIEST_NS),
            "a time after tomorrow": pc.greater(ticks, late_ns),
        }
        before = columns.get(ORDERED.get(name, ""))
        if isinstance(before, pa.Array):
            masks[f"before {ORDERED[name]}"] = pc.less(values, before)
    elif name in RANGES:
        low, high = RANGES[name]
        ends = pc.min_max(values).as_py()
        if ends["min"] is None or (ends["min"] >= low and ends["max"] <= high):
            return None
        small = (
            pc.and_(pc.less(values, low), pc.greater(values, 0)) if name != "temp_c" else pc.less(values, low)
        )
        low_mask = np.asarray(pc.fill_null(small, False))
        masks = {f"above {high:g}, the most that is believed": pc.greater(values, high)}
    else:
        return None
    hits = {reason: np.asarray(pc.fill_null(mask, False)) for reason, mask in masks.items()}
    found = {reason: mask for reason, mask in hits.items() if mask.any()}
    if not found:
        return np.zeros(len(values), bool), low_mask, f"below {RANGES[name][0]:g}" if low_mask.any() else ""
    return np.logical_or.reduce(list(found.values())), low_mask, " or ".join(found)


def _raw(batch: RowBatch, name: str, at: int) -> str:
    cell = (batch.raw[name] if name in batch.raw else batch.columns[name])[at]
    return str(cell.value if pa.types.is_timestamp(cell.type) else cell.as_py())


def _note(batch: RowBatch, table: str, seen: dict[str, _Seen], series: set[Any]) -> None:
    """Keep a few values of each column, and a few series."""
    names = [n for n in ("src", "dst", "host", "gpu") if isinstance(batch.columns.get(n), pa.Array)]
    if names and len(series) < LEAST_ROWS:
        rows = zip(*(batch.columns[n][:1000].to_pylist() for n in names), strict=True)
        series.update(rows)
    for name, values in batch.columns.items():
        if not isinstance(values, pa.Array) or not (name in MEASURED or name in NAMES or name == "ts"):
            continue
        here = seen.setdefault(name, _Seen())
        if len(here.values) < 2 or (name in NAMES and len(here.values) < 64):
            few = values.dictionary if pa.types.is_dictionary(values.type) else pc.unique(values)
            ticks = few.cast(pa.int64()) if pa.types.is_timestamp(few.type) else few
            here.values.update(value for value in ticks[:64].to_pylist() if value is not None)


def _problem(seen: dict[str, _Seen], table: str, series: int, accept: tuple[str, ...]) -> str:
    for name, here in seen.items():
        if here.rows and here.out * 2 > here.rows:
            return (
                f"{here.out:,} of {here.rows:,} values of {name} are not believed ({here.first}); is the "
                f'column right, and its unit in [units]? accept = ["{name}.range"] takes them'
            )
        kept = here.rows - here.out
        if _constant(name, here, kept, series) and f"{name}.constant" not in accept:
            (value,) = here.values
            return (
                f"{name} is {value!r} in all {kept:,} rows, and measurements vary; is the column right? "
                f'accept = ["{name}.constant"] takes it'
            )
        if name in NAMES and f"{name}.names" not in accept:
            numbers = Counter(bool(_NUMBER.fullmatch(str(value).strip())) for value in here.values)
            if numbers[True] > numbers[False]:
                example = min(str(value) for value in here.values)
                return (
                    f"{name} is a name, and its values are numbers or times such as {example!r}; is the "
                    f'column right? accept = ["{name}.names"] takes them'
                )
    return ""


def _constant(name: str, here: _Seen, kept: int, series: int) -> bool:
    if kept < LEAST_ROWS or len(here.values) != 1:
        return False
    return name in MEASURED or (name == "ts" and 0 < series < min(kept, LEAST_ROWS))
