"""Step times of Sia and Pollux: `placements-<gpu>.csv` and `scalability-<gpu>.csv`, a folder an application.

Columns in any order: `local_bsz` (samples a GPU), `step_time` and `sync_time` (seconds of a step, and of its
gradient synchronisation), and where the replicas lie: `placement`, one digit a node, its replicas (`12`: one
on one node, two on another), or `num_nodes` and `num_replicas`. Without a suffix the GPU is that of `aws`
(Jayaram Subramanya et al., SOSP 2023; Qiao et al., OSDI 2021).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from ingest.core.errors import InputError
from ingest.parsing import csv_blocks, text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, folder
from ingest.parsing.source import Source

_TABLE = "step_times"
_COLUMNS = ("job", "worker", "gpus", "time_s", "kind")
_NAME = re.compile(r"(?:placements|scalability)(?:-([a-z][a-z-]{0,15}))?\.csv")
_TIMES = {"local_bsz", "step_time", "sync_time"}
_WHERE = ({"placement"}, {"num_nodes", "num_replicas"})
_DEFAULT = "aws"
_KINDS = {"alone": "step_time", "synchronisation": "sync_time"}


class Pollux:
    """Step times by placement and batch size."""

    name = "pollux"
    version = 1
    text_only = True
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the name has the kind of table, and the header its columns."""
        names = csv_blocks.header(head)
        return bool(_NAME.fullmatch(path.name)) and _fits(names)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields two rows for each line: the step, and the synchronisation in it."""
        names, named = csv_blocks.header(source.head), _NAME.fullmatch(source.path.name)
        if named is None or not _fits(names):
            raise InputError(f"{source.shown}: not placements-<gpu>.csv or scalability-<gpu>.csv of Pollux")
        rows = RowBuilder(_TABLE, _COLUMNS, gpu_model=options.gpu_model or named[1] or _DEFAULT)
        application = folder(source, options) or source.path.stem
        for row, (_, content) in enumerate(text_lines.numbered(source)):
            if row:
                for kind in _KINDS:
                    rows.take(row, "line", content, _row, names, content.split(","), application, kind)
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "pollux: the application is the folder of the file, the GPU its suffix (none: aws)",
            "pollux: worker is the placement, one digit a node; kind synchronisation is a part of the step",
        )


def _fits(names: list[str]) -> bool:
    return any(set(names) == _TIMES | where for where in _WHERE) and len(set(names)) == len(names)


def _row(names: list[str], cells: list[str], application: str, kind: str) -> tuple[Any, ...]:
    if len(cells) != len(names):
        raise ValueError(f"expected {len(names)} cells, found {len(cells)}")
    held = dict(zip(names, cells, strict=True))
    gpus, where = _placement(held)
    time_s = amount(held[_KINDS[kind]])
    return f"{application} ({whole(held['local_bsz'])} samples a GPU)", where, gpus, time_s, kind


def _placement(held: Mapping[str, str]) -> tuple[int, str]:
    """GPUs of a placement, and the placement in words."""
    if "placement" not in held:
        gpus, nodes = whole(held["num_replicas"]), whole(held["num_nodes"])
        return gpus, f"{gpus} on {nodes} nodes"
    digits = held["placement"].strip()
    if not digits.isdigit():
        raise ValueError(f"placement {digits!r} is not one digit a node")
    return sum(map(int, digits)), f"placement {digits}"
