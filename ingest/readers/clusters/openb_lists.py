"""Lists of nodes and pods of Alibaba's openb cluster as columns, for the simulator of queues.

Nodes: `sn,cpu_milli,memory_mib,gpu,model`, with or without `rack`; those without GPUs are counted and left
out. Pods: `name,cpu_milli,memory_mib,num_gpu,gpu_milli`, with or without `gpu_spec` (models with bars)
and times; `openb.py` reads them into the lake. `gpu_milli` is for each GPU, below 1000 only where there is
one (Weng et al., USENIX ATC 2023)."""

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError
from ingest.parsing import text_lines
from ingest.parsing.reader import Reject
from ingest.readers.clusters.swf_log import opened

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "scheduled_time", "deletion_time")
WHOLE = 1000
"""Thousandths of a GPU."""
MOST = 10**15
"""Cells are whole numbers below it."""
Int = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NodeList:
    """Nodes with GPUs in the order of the file, rows of those without, and the rows that were rejected."""

    name: str
    gpus: Int
    models: tuple[str, ...]
    cpu_milli: Int
    memory_mib: Int
    racks: tuple[str, ...]
    without_gpus: tuple[int, ...]
    rejects: tuple[Reject, ...]


@dataclass(frozen=True, eq=False)
class PodList:
    """Pods in the order of the file (n,): what each asks for, its models ("" is any), and seconds of
    creation, start and deletion, nan where the file does not know."""

    name: str
    row: Int
    names: tuple[str, ...]
    gpus: Int
    milli: Int
    cpu_milli: Int
    memory_mib: Int
    models: tuple[str, ...]
    times: NDArray[np.float64]
    rejects: tuple[Reject, ...]
    rows_in: int

    def __len__(self) -> int:
        return len(self.names)


def is_pods(head: Sequence[str]) -> bool:
    """Returns True for the header of a list of pods."""
    return set(head) >= set(POD_COLUMNS)


def node_list(path: Path) -> NodeList:
    """Reads a list of nodes.

    Raises:
        InputError: it cannot be read, or no node has GPUs.
    """
    rows, rejects, _ = _rows(path, NODE_COLUMNS, _node, "nodes")
    held = [row for _, row in rows if row[0]]
    if not held:
        raise InputError(f"{path}: no node has GPUs among {len(rows):,}; name a list of nodes with GPUs")
    gpus, models, cpu, memory, racks = zip(*held, strict=True)
    return NodeList(
        path.name, np.array(gpus, np.int64), models, np.array(cpu, np.int64), np.array(memory, np.int64),
        racks, tuple(row for row, one in rows if not one[0]), rejects,
    )  # fmt: skip


def pod_list(path: Path) -> PodList:
    """Reads a list of pods.

    Raises:
        InputError: it cannot be read, or holds no pod.
    """
    rows, rejects, rows_in = _rows(path, POD_COLUMNS, _pod, "pods")
    if not rows:
        raise InputError(f"{path}: no pod among {rows_in:,} rows")
    names, gpus, milli, cpu, memory, models, times = zip(*(row for _, row in rows), strict=True)
    return PodList(
        path.name, np.array([row for row, _ in rows], np.int64), names, np.array(gpus, np.int64),
        np.array(milli, np.int64), np.array(cpu, np.int64), np.array(memory, np.int64), models,
        np.array(times, np.float64), rejects, rows_in,
    )  # fmt: skip


def _rows(
    path: Path, needed: Sequence[str], taken: Callable[[dict[str, str]], tuple[Any, ...]], what: str
) -> tuple[list[tuple[int, tuple[Any, ...]]], tuple[Reject, ...], int]:
    """Rows of a list with their numbers, from 1, those rejected, and how many there were."""
    lines = [text for _, text in text_lines.numbered(opened(path))]
    head = next(csv.reader(lines[:1]), [])
    if missing := [name for name in needed if name not in head]:
        raise InputError(
            f"{path}: no list of {what}: its header has no {missing[0]}; it needs {', '.join(needed)}"
        )
    rows, rejects = [], []
    for row, cells in enumerate(csv.reader(lines[1:]), 1):
        try:
            rows.append((row, taken(dict(zip(head, cells, strict=True)))))
        except ValueError as error:
            rejects.append(Reject(row, what, ",".join(cells)[:80], str(error)))
    return rows, tuple(rejects), len(rows) + len(rejects)


def _node(cells: dict[str, str]) -> tuple[int, str, int, int, str]:
    gpus = _whole(cells, "gpu")
    if gpus and not cells["model"]:
        raise ValueError("a node with GPUs of no model")
    cpu, memory = _whole(cells, "cpu_milli"), _whole(cells, "memory_mib")
    return gpus, cells["model"], cpu, memory, cells.get("rack", "")


def _pod(cells: dict[str, str]) -> tuple[Any, ...]:
    gpus = _whole(cells, "num_gpu")
    milli = _whole(cells, "gpu_milli") if gpus else 0
    if gpus and not 0 < milli <= WHOLE:
        raise ValueError(f"gpu_milli of a pod with GPUs is 1 to {WHOLE}")
    if gpus > 1 and milli < WHOLE:
        raise ValueError("a share of several GPUs")
    times = [float(cells.get(name) or math.nan) for name in TIMES]
    return (
        cells["name"], gpus, milli, _whole(cells, "cpu_milli"), _whole(cells, "memory_mib"),
        cells.get("gpu_spec", ""), times,
    )  # fmt: skip


def _whole(cells: dict[str, str], name: str) -> int:
    try:
        found = int(cells[name])
    except ValueError:
        raise ValueError(f"{name} is no whole number") from None
    if not 0 <= found < MOST:
        raise ValueError(f"{name} is below 0, or {MOST} or more")
    return found
