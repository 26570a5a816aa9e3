"""Rows of the lake's table `jobs` in the fields of a log, for the simulator of queues."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.core.errors import InputError
from ingest.core.units import NS_PER_S
from ingest.parsing.reader import Reject
from ingest.readers.clusters.swf_log import FIELDS, SwfLog

UNKNOWN = -1.0
"""What a log writes where it does not know."""
_WHOLE = re.compile(r"\d{1,15}")
_TIMES = ("submit_ts", "start_ts", "end_ts", "deadline_ts")
_NUMBERS = ("source_row", "gpus", "gpus_requested", "duration_s", "estimate_s")
_TEXTS = ("job_id", "user", "priority")
Column = NDArray[np.float64]


def plain(rows: pa.Table) -> pa.Table:
    """Returns the columns of a table of jobs that a queue needs: times as nanoseconds, text as text."""
    kinds = {
        **dict.fromkeys(_TIMES, pa.int64()), **dict.fromkeys(_NUMBERS, pa.float64()),
        **dict.fromkeys(_TEXTS, pa.string()),
    }  # fmt: skip
    return pa.table({name: rows.column(name).cast(kind) for name, kind in kinds.items()})


def log_of(name: str, rows: pa.Table, rejects: Sequence[Reject], rows_in: int) -> SwfLog:
    """Returns the log of rows of the table `jobs`; time 0 is the first submission.

    A job has the number that its id is, where all ids are numbers, else that of its row. Users and priorities
    that are not numbers are numbered in their order. An id that was there before is rejected.

    Raises:
        InputError: there is no job.
    """
    ids = rows.column("job_id").to_pylist()
    first = {one: at for at, one in reversed(list(enumerate(ids)))}
    again = np.array([first[one] != at for at, one in enumerate(ids)], np.bool_)
    line = _numbers(rows, "source_row").astype(np.int64)
    repeated = [
        Reject(int(line[at]), "job", ids[at][:80], "a job of that id came before")
        for at in again.nonzero()[0]
    ]
    kept = rows.filter(pa.array(~again))
    if not len(kept):
        raise InputError(f"{name}: no job among {rows_in:,} rows")
    numbers = _numbered(kept, "job_id", by_place=True)
    table = np.full((len(kept), len(FIELDS)), UNKNOWN)
    held = {**_times(kept), **_demands(kept), "job": numbers}
    users = _numbered(kept, "user")
    for field, column in {**held, "user": users, "queue": _numbered(kept, "priority")}.items():
        table[:, FIELDS.index(field)] = column
    found = tuple(sorted((*rejects, *repeated), key=lambda reject: reject.row))
    return SwfLog(
        name, {}, table, line[~again], found, rows_in,
        ids=_names(numbers, kept, "job_id"), users=_names(users, kept, "user"),
        deadline_s=_seconds(kept, "deadline_ts", _origin(kept)),
    )  # fmt: skip


def _times(rows: pa.Table) -> dict[str, Column]:
    """Submission, wait and run time; a duration that was measured goes before end minus start."""
    origin = _origin(rows)
    submit, start, end = (_seconds(rows, name, origin) for name in _TIMES[:3])
    run = _numbers(rows, "duration_s")
    began = np.isfinite(start)
    lasted = np.where(np.isfinite(run), run, np.where(began & np.isfinite(end), end - start, UNKNOWN))
    return {"submit_s": submit, "wait_s": np.where(began, start - submit, UNKNOWN), "run_s": lasted}


def _demands(rows: pa.Table) -> dict[str, Column]:
    names = {"processors": "gpus", "processors_requested": "gpus_requested", "estimate_s": "estimate_s"}
    return {field: np.nan_to_num(_numbers(rows, name), nan=UNKNOWN) for field, name in names.items()}


def _origin(rows: pa.Table) -> int:
    return int(pc.min(rows.column("submit_ts")).as_py())


def _seconds(rows: pa.Table, name: str, origin_ns: int) -> Column:
    """Seconds since the origin; nan where the time is not known."""
    times = rows.column(name).cast(pa.int64())
    shifted = np.asarray(pc.fill_null(times, origin_ns).to_numpy()) - origin_ns
    return np.where(np.asarray(times.is_null()), np.nan, shifted / NS_PER_S)


def _numbers(rows: pa.Table, name: str) -> Column:
    return np.asarray(rows.column(name).cast(pa.float64()).to_numpy(), np.float64)


def _numbered(rows: pa.Table, name: str, *, by_place: bool = False) -> Column:
    """Texts as numbers: their own where all are numbers, else their place, sorted or as in the table."""
    texts: list[Any] = rows.column(name).to_pylist()
    known = sorted({one for one in texts if one is not None})
    if all(_WHOLE.fullmatch(one) for one in known):
        return np.array([UNKNOWN if one is None else float(one) for one in texts])
    if by_place:
        return np.arange(1.0, len(texts) + 1)
    place = {one: float(at) for at, one in enumerate(known, 1)}
    return np.array([place.get(one, UNKNOWN) for one in texts])


def _names(numbers: Column, rows: pa.Table, name: str) -> dict[int, str]:
    """Texts by the numbers that stand for them."""
    texts = rows.column(name).to_pylist()
    return {int(number): text for number, text in zip(numbers, texts, strict=True) if text is not None}
