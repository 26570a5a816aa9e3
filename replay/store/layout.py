"""Where runs and checkpoints lie in a store; nothing is read here but the names of folders."""

import os
from pathlib import Path

from ingest.core import names

CHECKPOINTS = "checkpoints"
REPORTS = "reports"
RUNS = "runs"


def all_ids(store: Path) -> tuple[str, ...]:
    """Returns every run of the store, by name."""
    runs = store / RUNS
    if not runs.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in runs.iterdir() if entry.is_dir()))


def beginning_with(store: Path, name: str) -> tuple[str, ...]:
    """Returns the runs whose names begin so, by name; a look among very many makes no path of the others."""
    runs = store / RUNS
    if not runs.is_dir():
        return ()
    with os.scandir(runs) as entries:
        return tuple(sorted(one.name for one in entries if one.name.startswith(name) and one.is_dir()))


def folder(store: Path, run: str) -> Path:
    """Returns the directory of a run.

    Raises:
        UsageError: `run` leads out of the folder of runs.
    """
    return names.inside(store / RUNS, run)
