"""Run times of job lists that hold none, from measured profiles of Gavel, Sia and Pollux.

Gavel (Narayanan et al., OSDI 2020): steps over the steps a second of the job's type and GPUs, alone and
consolidated, in `simulation_throughputs.json`. Sia and Pollux (Jayaram Subramanya et al., SOSP 2023; Qiao et
al., OSDI 2021): iterations of all epochs at the batch (last row of `APPLICATION/validation-BATCH.csv`) times
the step time of the replicas on as few nodes as hold them (`APPLICATION/placements-GPU.csv`, which has the
part of a node first), linear between the two nearest batches a GPU. A batch a GPU above the largest that was
measured is accumulated in equal parts.
"""

import csv
import json
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.core import text_files
from ingest.core.errors import InputError, UsageError

THROUGHPUTS = "simulation_throughputs.json"
MOST_BYTES = 2**26
NODE_GPUS = {"aws": 4, "azure": 8, "rtx": 8, "quad": 4, "dgx": 8, "dgx-ext": 8}
"""GPUs of a node of each kind in Sia's profiles."""
GAVEL_GPU, SIA_GPU = "v100", "dgx-ext"
"""GPUs whose profiles are taken if none is named."""


@dataclass(frozen=True, slots=True)
class RunProfiles:
    """Folder of the profiles, and the GPU as they name it; None: `GAVEL_GPU` or `SIA_GPU`."""

    folder: Path
    gpu: str | None = None

    @property
    def note(self) -> str:
        """Returns what is to be known of jobs with these run times."""
        gpu = self.gpu or (GAVEL_GPU if (self.folder / THROUGHPUTS).is_file() else SIA_GPU)
        return f"run times are not of the log: profiles in {self.folder.name}, GPU {gpu}"


def filled(rows: pa.Table, path: Path, profiles: RunProfiles) -> pa.Table:
    """Returns rows of the table `jobs` with the measured run time of each that has none and has a profile.

    Raises:
        InputError: the profiles cannot be read. UsageError: they have no such GPU.
    """
    known = rows.column("duration_s").to_pylist()
    if (profiles.folder / THROUGHPUTS).is_file():
        found = _gavel(rows, profiles)
    else:
        found = _sia(rows, path, profiles)
    lasted = [old if old is not None else new for old, new in zip(known, found, strict=True)]
    at = rows.schema.get_field_index("duration_s")
    return rows.set_column(at, rows.schema.field(at), pa.array(lasted, pa.float64()))


def _gavel(rows: pa.Table, profiles: RunProfiles) -> list[float | None]:
    path, gpu = profiles.folder / THROUGHPUTS, profiles.gpu or GAVEL_GPU
    try:
        rates = json.loads(text_files.read(path, most_bytes=MOST_BYTES))
    except ValueError as error:
        raise InputError(f"{path}: no JSON: {error}") from error
    if not isinstance(rates, dict) or gpu not in rates:
        known = ", ".join(rates) if isinstance(rates, dict) else "none"
        raise UsageError(f"{path} has no GPU {gpu!r}; it has {known}")
    found: list[float | None] = []
    for model, gpus, steps in _columns(rows, "model", "gpus", "steps"):
        rate = rates[gpu].get(f"('{model}', {gpus})", {}).get("null")
        found.append(steps / rate if steps and isinstance(rate, float | int) and rate > 0 else None)
    return found


def _columns(rows: pa.Table, *names: str) -> Any:
    return zip(*(rows.column(name).to_pylist() for name in names), strict=True)


def _sia(rows: pa.Table, path: Path, profiles: RunProfiles) -> list[float | None]:
    gpu = profiles.gpu or SIA_GPU
    if gpu not in NODE_GPUS:
        raise UsageError(f"profiles of Sia have no GPU {gpu!r}; they have {', '.join(NODE_GPUS)}")
    batches = listed_batches(path)
    if not batches:
        raise UsageError(
            f"{path} is no list of Gavel, Sia or Pollux that fits the profiles in {profiles.folder}"
        )
    tables: dict[str, dict[str, Any]] = {}
    found: list[float | None] = []
    for job, model, gpus in _columns(rows, "job_id", "model", "gpus"):
        batch = batches.get(job, "")
        folder = profiles.folder / str(model)
        if not batch.isdigit() or not gpus or not (folder / f"placements-{gpu}.csv").is_file():
            found.append(None)
            continue
        if model not in tables:
            tables[model] = _steps(folder / f"placements-{gpu}.csv")
        found.append(_run_s(folder, int(batch), gpus, NODE_GPUS[gpu], tables[model]))
    return found


def listed_batches(path: Path) -> dict[str, str]:
    """Returns the batch of each job of a list of Sia or Pollux, by its name, as it is written; nothing for
    any other file."""
    listed = _table(path)
    if not listed or not {"name", "application", "num_replicas", "batch_size"} <= {*listed[0]}:
        return {}
    return {row["name"]: row["batch_size"] or "" for row in listed}


def is_sia(folder: Path) -> bool:
    """Returns True for a folder of profiles of Sia and Pollux: a folder an application."""
    return any(folder.glob("*/placements-*.csv"))


def _table(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file by the names in its header."""
    return list(csv.DictReader(text_files.read(path, most_bytes=MOST_BYTES).splitlines()))


def _steps(path: Path) -> dict[str, Any]:
    """Batches a GPU and step times of each placement, ascending."""
    held: dict[str, list[tuple[float, float]]] = {}
    for number, row in enumerate(_table(path), 2):
        try:
            one = float(row["local_bsz"]), float(row["step_time"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}:{number}: local_bsz and step_time are no numbers") from error
        held.setdefault(row["placement"], []).append(one)
    return {name: np.array(sorted(rows)).T for name, rows in held.items()}


def _run_s(folder: Path, batch: int, gpus: int, node: int, steps: dict[str, Any]) -> float | None:
    """Seconds of a job; None where its batch or its placement was not measured."""
    progress = folder / f"validation-{batch}.csv"
    full, rest = divmod(gpus, node)
    placement = (str(rest) if rest else "") + str(node) * full
    if not progress.is_file() or placement not in steps:
        return None
    sizes, times = steps[placement]
    each = batch / gpus
    parts = max(1, ceil(each / float(sizes[-1])))
    step_s = float(np.interp(each / parts, sizes, times))
    iterations = float(_table(progress)[-1]["iteration"])
    return iterations * parts * step_s
