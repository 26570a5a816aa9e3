"""Jobs of Slurm: `sacct --json`, `squeue --json`, and `sacct --parsable2` with a header.

JSON (data parser v0.0.39 and later): `jobs` is a list; sacct's jobs have `time`, `state.current` and
`tres.allocated`, squeue's `submit_time`, `job_state` and `tres_alloc_str`. A number is plain or `{"set":
..., "infinite": ..., "number": ...}`; 0, unset and infinite mean unknown. A time limit, in minutes there, is
the estimate. Text has bars between cells; a row with a step (`123.batch`) is no job and is passed over. Times
of text are in `timezone`. Definition: Slurm, man pages sacct(1) and squeue(1). `source_row` is the place in
the list, or the line.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePath
from typing import Any
from zoneinfo import ZoneInfo

from ingest.core.units import NS_PER_S, to_ns
from ingest.parsing import text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import text, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, from_document
from ingest.parsing.source import BOM, Source

_TABLE = "jobs"
_COLUMNS = ("job_id", "submit_ts", "start_ts", "end_ts", "gpus", "user", "status", "priority", "estimate_s")
_GPUS = re.compile(r"gres/gpu(?::[^=,]+)?=(\d{1,9})")
_LIMIT = re.compile(r"(?:(\d{1,4})-)?(\d{1,5}):(\d\d):(\d\d)")
_UNKNOWN = ("", "Unknown", "None", "N/A")
_NEEDED = {"JobID", "Submit"}
_FLUSH = 1 << 16
Job = tuple[Any, ...]


class Slurm:
    """Accounting of a Slurm cluster."""

    name = "slurm"
    version = 2
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True for JSON with jobs of Slurm, or the header of `sacct --parsable2`."""
        start = head.removeprefix(BOM).lstrip()
        if start.startswith(b"{"):
            if b'"jobs"' not in head:
                return False
            ids = b'"job_id"' in head or b'"array"' in head
            return ids and (b'"association"' in head or b'"accrue_time"' in head)
        return set(_cells(start.partition(b"\n")[0].decode("utf-8", "replace"))) >= _NEEDED

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each job."""
        if source.head.removeprefix(BOM).lstrip().startswith(b"{"):
            yield from from_document(source, _TABLE, lambda found: [_batch(found)])
            return
        rows, names = RowBuilder(_TABLE, _COLUMNS), list[str]()
        for line, content in text_lines.numbered(source):
            cells = _cells(content)
            if not names:
                names = cells
            elif "." not in cells[0] or names[0] != "JobID":
                rows.take(line, "JobID", content, _of_text, names, cells, ZoneInfo(options.timezone))
            if len(rows) >= _FLUSH:
                yield rows.batch()
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (f"slurm: times of sacct's text are {options.timezone}; a job without gres/gpu has no GPUs",)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _of_text(names: list[str], cells: list[str], zone: ZoneInfo) -> Job:
    if len(cells) != len(names):
        raise ValueError(f"expected {len(names)} cells, found {len(cells)}")
    held = dict(zip(names, cells, strict=True))
    times = [_local(held.get(name, ""), zone) for name in ("Submit", "Start", "End")]
    gpus = _gpus(held.get("AllocTRES") or held.get("ReqTRES") or "")
    state = held.get("State", "").split(" ")[0] or None
    limit_s = _limit_s(held.get("Timelimit", ""))
    said = held.get("User") or None, state, held.get("Priority") or None
    return text(held["JobID"]), *times, gpus, *said, limit_s


def _local(cell: str, zone: ZoneInfo) -> int | None:
    if cell in _UNKNOWN:
        return None
    moment = datetime.fromisoformat(cell)
    return to_ns((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp())


def _limit_s(cell: str) -> float | None:
    """Seconds of a time limit, `[DAYS-]HOURS:MINUTES:SECONDS`; None where it is none or unlimited."""
    found = _LIMIT.fullmatch(cell)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _gpus(said: str) -> int:
    found = _GPUS.findall(said.split(",gres/gpu:")[0] if "gres/gpu=" in said else said)
    return sum(int(count) for count in found)


def _batch(found: Any) -> RowBatch:
    rows = RowBuilder(_TABLE, _COLUMNS)
    for row, job in enumerate(found["jobs"], 1):
        rows.take(row, "job", job, _of_json, job)
    return rows.batch()


def _of_json(job: dict[str, Any]) -> Job:
    if "time" in job:  # sacct
        times = [job["time"].get(name) for name in ("submission", "start", "end")]
        state, user = job["state"], job.get("user") or job["association"].get("user")
        limit = _number(job["time"].get("limit"))
        allocated = job.get("tres", {}).get("allocated") or ()
        gpus = sum(whole(t["count"]) for t in allocated if t["type"] == "gres" and t["name"] == "gpu")
    else:
        times = [job.get(name) for name in ("submit_time", "start_time", "end_time")]
        state, user = job["job_state"], job.get("user_name")
        limit = _number(job.get("time_limit"))
        gpus = _gpus(job.get("tres_alloc_str") or job.get("tres_req_str") or "")
    priority = _number(job.get("priority"))
    instants = [_instant(value) for value in times]
    said = None if priority is None else str(priority)
    limit_s = None if limit is None else 60.0 * limit
    return str(whole(job["job_id"])), *instants, gpus, user or None, _state(state), said, limit_s


def _state(state: Any) -> str | None:
    """The state, which is a text, a list of flags, or an object that has one of them as `current`."""
    state = state.get("current") if isinstance(state, dict) else state
    state = state[0] if isinstance(state, list) and state else state
    return state if isinstance(state, str) else None


def _number(value: Any) -> int | None:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return None if value is None else whole(value)


def _instant(value: Any) -> int | None:
    seconds = _number(value)
    return seconds * NS_PER_S if seconds else None
