"""Measured speed over the number of GPUs, by model and batch: the throughput tables of ElasticFlow.

`MODEL.csv`: `global_batch_size,1,2,4,...`, iterations a second on that many GPUs; empty, nan or 0 where it
was not measured or does not fit (Gu et al., ASPLOS 2023).
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ingest.core import text_files
from ingest.core.errors import InputError

BATCH = "global_batch_size"


@dataclass(frozen=True, slots=True)
class MeasuredScaling:
    """One row: iterations a second on each number of GPUs that was measured, ascending."""

    model: str
    batch: int
    gpus: tuple[int, ...]
    rate: tuple[float, ...]


def is_scaling(folder: Path) -> bool:
    """Returns True if a folder holds such tables."""
    return any(_head(path).startswith(BATCH) for path in sorted(folder.glob("*.csv"))[:1])


def scaling_tables(folder: Path) -> Mapping[tuple[str, int], MeasuredScaling]:
    """Returns the measured rows of all tables of a folder, by model and batch.

    Raises:
        InputError: there is none, or a number is none.
    """
    found = {}
    for path in sorted(folder.glob("*.csv")):
        rows = csv.DictReader(text_files.read(path, InputError).splitlines())
        if rows.fieldnames is None or rows.fieldnames[0] != BATCH:
            raise InputError(f"{path}: no table of speeds over GPUs; its first column is {BATCH}")
        for number, row in enumerate(rows, 2):
            try:
                one = _measured(path.stem, row)
            except (TypeError, ValueError) as error:
                raise InputError(f"{path}:{number}: a batch, size or speed is no number ({error})") from error
            found[one.model, one.batch] = one
    if not found:
        raise InputError(f"{folder}: no table of speeds over GPUs (MODEL.csv, first column {BATCH})")
    return found


def _measured(model: str, row: dict[str, str]) -> MeasuredScaling:
    pairs = sorted((int(name), float(cell)) for name, cell in row.items() if name != BATCH and cell.strip())
    known = [(gpus, rate) for gpus, rate in pairs if rate > 0 and not math.isnan(rate)]
    return MeasuredScaling(
        model, int(row[BATCH]), tuple(gpus for gpus, _ in known), tuple(rate for _, rate in known)
    )


def _head(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(64).decode("utf-8", "replace")
