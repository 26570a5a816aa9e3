"""Files of profiled applications, as Sia and Pollux published them, read into arrays.

Of each application a folder with `placements-GPU.csv` (placement, local_bsz, step_time, sync_time),
`scalability-GPU.csv` (num_nodes and num_replicas in place of a placement) and `validation-BATCH.csv`
(progress, grad_sqr, grad_var), one row an epoch; variances are those at the smallest batch, whatever the
batch of the run.
"""

import csv
import re
from pathlib import Path

import numpy as np

from ingest.core import text_files
from ingest.core.errors import InputError, NotFoundError, UsageError
from twin.goodput.efficiency import noise_scale
from twin.goodput.throughput_model import StepTimes, Values

MOST_BYTES = 2**24
_BATCH = re.compile(r"validation-\d{1,7}")
_PLACEMENT = re.compile("[1-9]{1,64}")


def gpus_of(folder: Path, application: str) -> list[str]:
    """Returns the GPUs, by the names of the files, on which an application was profiled."""
    return sorted(one.stem.partition("-")[2] for one in (folder / application).glob("placements-*.csv"))


def placement_steps(folder: Path, application: str, gpu: str) -> dict[str, StepTimes]:
    """Returns the measured steps of each placement, one digit a node, ascending in samples a GPU.

    Raises:
        NotFoundError: no such application or GPU. InputError: a cell is no number, or no placement.
    """
    path = folder / application / f"placements-{gpu}.csv"
    if not path.is_file():
        known = sorted(one.name for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []
        gpus = gpus_of(folder, application)
        have = f"GPUs {', '.join(gpus)}" if gpus else f"applications {', '.join(known) or 'none'}"
        raise NotFoundError(f"{path}: there is no such profile; {folder} has {have}")
    held: dict[str, list[tuple[float, ...]]] = {}
    for line, row in _rows(path):
        placement = row.get("placement") or ""
        if not _PLACEMENT.fullmatch(placement):
            raise InputError(f"{path}:{line}: a placement is one digit a node, as 4 or 44; mend the row")
        times = _cells(path, line, row, "local_bsz", "step_time", "sync_time")
        held.setdefault(placement, []).append(times)
    return {name: _steps([(*shape(name), *one) for one in sorted(rows)]) for name, rows in held.items()}


def shape(placement: str) -> tuple[int, int]:
    """Returns nodes and replicas of a placement.

    Raises:
        UsageError: it is none.
    """
    if not _PLACEMENT.fullmatch(placement):
        raise UsageError("a placement is one digit a node, its GPUs, as 4 or 44")
    return len(placement), sum(map(int, placement))


def all_steps(folder: Path, application: str, gpu: str) -> StepTimes:
    """Returns every measured step of an application on a GPU: of placements, and of `scalability-GPU.csv`.

    A step that stands in both files counts once.

    Raises:
        NotFoundError: no such application or GPU. InputError: a cell is no number.
    """
    found = {row: None for one in placement_steps(folder, application, gpu).values() for row in _listed(one)}
    path = folder / application / f"scalability-{gpu}.csv"
    if path.is_file():
        names = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
        found |= {_cells(path, line, row, *names): None for line, row in _rows(path)}
    return _steps(list(found))


def noise_scales(folder: Path, application: str) -> dict[int, tuple[Values, Values]]:
    """Returns, of each global batch, the share of the training that is done and the noise scale, samples, at
    the end of each epoch.

    Raises:
        NotFoundError: no epoch was measured. InputError: a cell is no number.
    """
    home = folder / application
    epochs = {
        int(one.stem.partition("-")[2]): one
        for one in home.glob("validation-*.csv")
        if _BATCH.fullmatch(one.stem)
    }
    if not epochs:
        raise NotFoundError(f"{home}: there is no validation-BATCH.csv with gradients")
    noise, smallest = {}, min(epochs)
    for batch, one in sorted(epochs.items()):
        seen = np.array(
            [_cells(one, line, row, "progress", "grad_var", "grad_sqr") for line, row in _rows(one)]
        )
        scales = [noise_scale(var, sqr, smallest) for _, var, sqr in seen.tolist()]
        noise[batch] = seen[:, 0] / seen[-1, 0], np.array(scales)
    return noise


def useful_samples(folder: Path, application: str) -> float:
    """Returns the samples of the whole training at the smallest batch that was measured: its last epoch's
    progress counts iterations at that batch.

    Raises:
        NotFoundError: no epoch was measured. InputError: a cell is no number.
    """
    batch = min(noise_scales(folder, application))
    path = folder / application / f"validation-{batch}.csv"
    line, row = _rows(path)[-1]
    return _cells(path, line, row, "progress")[0] * batch


def _listed(steps: StepTimes) -> list[tuple[float, ...]]:
    columns = (steps.nodes, steps.replicas, steps.local, steps.step_s, steps.sync_s)
    return [tuple(row) for row in np.column_stack(columns).tolist()]


def _steps(rows: list[tuple[float, ...]]) -> StepTimes:
    nodes, replicas, local, step_s, sync_s = np.array(rows, np.float64).reshape(-1, 5).T
    return StepTimes(nodes.astype(np.int64), replicas.astype(np.int64), local, step_s, sync_s)


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Lines and cells of a CSV file; the order of its columns is free."""
    return list(enumerate(csv.DictReader(text_files.read(path, most_bytes=MOST_BYTES).splitlines()), 2))


def _cells(path: Path, line: int, row: dict[str, str], *columns: str) -> tuple[float, ...]:
    try:
        found = tuple(float(row[column]) for column in columns)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}:{line}: {', '.join(columns)} are no numbers; mend the row") from error
    if not np.isfinite(found).all():
        raise InputError(f"{path}:{line}: {', '.join(columns)} are not finite; mend the row")
    return found
