"""Standard Workload Format: 18 numbers a line for one job, comments behind `;`, -1 for what is not known.

Times are seconds from `; UnixStartTime`. The number of processors that were allocated (else requested)
becomes `gpus`. Definition: D. Feitelson, the Parallel Workloads Archive, version 2.2.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.units import to_ns
from ingest.parsing import text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import number, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import Source

_TABLE = "jobs"
_FIELDS = 18
_FLUSH = 1 << 16
_NAMES = (
    "job_id", "submit_ts", "start_ts", "end_ts", "gpus", "user", "status", "priority", "duration_s",
    "gpus_requested", "estimate_s",
)  # fmt: skip
_BEGAN = re.compile(r";\s*UnixStartTime:\s*(\d{1,12})")
_STATUS = {0: "failed", 1: "completed", 2: "partial", 3: "partial", 4: "partial failed", 5: "cancelled"}


class Swf:
    """Jobs of a cluster."""

    name = "swf"
    version = 2
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if name or header comments are those of SWF, and the first record has 18 numbers."""
        named = path.suffix.lower() == ".swf"
        if not named and b"UnixStartTime" not in head:
            return False
        lines = head.decode("utf-8", "replace").removeprefix("\ufeff").splitlines()
        if not named and not any(_BEGAN.match(line) for line in lines):
            return False
        records = [line.split() for line in lines[:-1] or lines if line.strip() and line.strip()[0] != ";"]
        return not records or (len(records[0]) == _FIELDS and all(map(_number, records[0])))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each job."""
        rows = RowBuilder(_TABLE, _NAMES)
        start_ns = to_ns(options.start_or_default().timestamp())
        for line, text in text_lines.numbered(source):
            if text.startswith(";"):
                began = _BEGAN.match(text)
                if began and int(began[1]) and options.start is None:
                    start_ns = to_ns(int(began[1]))
                continue
            rows.take(line, "job", text, _job, text.split(), start_ns)
            if len(rows) >= _FLUSH:
                yield rows.batch()
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "swf: a processor is taken for a GPU; priority is the queue",
            "swf: without UnixStartTime or `start`, seconds count from "
            f"{options.start_or_default().isoformat()}",
        )


def _number(cell: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?", cell))


def _job(cells: list[str], start_ns: int) -> tuple[object, ...]:
    if len(cells) != _FIELDS:
        raise ValueError(f"{len(cells)} fields, not {_FIELDS}")
    values = [number(cell) for cell in cells]
    submit_s, wait_s, run_s = values[1:4]
    if submit_s < 0:
        raise ValueError("no submit time")
    start = _instant(start_ns, submit_s + wait_s) if wait_s >= 0 else None
    end = _instant(start_ns, submit_s + wait_s + run_s) if wait_s >= 0 and run_s >= 0 else None
    processors = values[4] if values[4] > 0 else values[7]
    return (
        str(whole(values[0])), _instant(start_ns, submit_s), start, end,
        whole(processors) if processors > 0 else None, _known(values[11]),
        _STATUS.get(int(values[10])), _known(values[14]), run_s if run_s >= 0 else None,
        whole(values[7]) if values[7] > 0 else None, values[8] if values[8] >= 0 else None,
    )  # fmt: skip


def _instant(start_ns: int, seconds: float) -> int:
    return whole(start_ns + to_ns(seconds))


def _known(value: float) -> str | None:
    return str(whole(value)) if value >= 0 else None
