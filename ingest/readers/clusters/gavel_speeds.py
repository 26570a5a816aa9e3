"""Speeds of Gavel's job types on several GPU models (Narayanan et al., OSDI 2020).

`simulation_throughputs.json`: `{GPU: {"('TYPE', GPUS)": {"null": steps a second alone, ...}}}`; a GPU named
`..._unconsolidated` holds the speeds of jobs whose GPUs lie on several nodes. Types of jobs stand in its job
lists (`gavel_trace.py`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core import text_files
from ingest.core.errors import InputError, UsageError
from ingest.parsing.dataset import DatasetOptions
from ingest.readers.clusters import swf_log
from ingest.readers.clusters.gavel_trace import GavelTrace
from ingest.readers.clusters.profiled_runs import MOST_BYTES, THROUGHPUTS

SPREAD = "_unconsolidated"


@dataclass(frozen=True, eq=False)
class GavelSpeeds:
    """Steps a second of job types by GPU model, as the file has them."""

    path: Path
    table: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def model(self, name: str) -> str:
        """Returns the name in the file of a GPU model, whose case does not matter.

        Raises:
            UsageError: the file has none of that name.
        """
        known = [one for one in self.table if not one.endswith(SPREAD)]
        found = [one for one in known if one.lower() == name.lower()]
        if not found:
            raise UsageError(f"{self.path} has no GPU {name!r}; it has {', '.join(known)}")
        return found[0]

    def steps_per_s(self, kind: str, gpus: int, model: str, node_gpus: int) -> float:
        """Returns steps a second of a job of that type on so many GPUs, on one node, or on several if it is
        larger than one; 0 where it was not measured or does not fit."""
        table = self.table.get(f"{model}{SPREAD}" if gpus > node_gpus else model, {})
        rate = table.get(f"('{kind}', {gpus})", {}).get("null", 0.0)
        return float(rate) if isinstance(rate, float | int) else 0.0


def is_gavel(folder: Path) -> bool:
    """Returns True if a folder holds Gavel's throughputs."""
    return (folder / THROUGHPUTS).is_file()


def gavel_speeds(folder: Path) -> GavelSpeeds:
    """Returns the throughputs of a folder.

    Raises:
        InputError: they cannot be read.
    """
    path = folder / THROUGHPUTS
    try:
        table = json.loads(text_files.read(path, most_bytes=MOST_BYTES))
    except ValueError as error:
        raise InputError(f"{path}: no JSON: {error}") from error
    if not isinstance(table, dict):
        raise InputError(f"{path}: no object of GPU models, as Gavel's throughputs are")
    return GavelSpeeds(path, table)


def job_types(path: Path) -> Mapping[str, str]:
    """Returns the type of each job of a list of Gavel by its id; nothing for any other log."""
    source, reader = swf_log.opened(path), GavelTrace()
    if not reader.can_read(source.path, source.head):
        return {}
    found = dict[str, str]()
    for batch in reader.read(source, DatasetOptions(name="log")):
        names, types = (batch.columns[name] for name in ("job_id", "model"))
        found |= dict(zip(map(str, names), map(str, types), strict=True))
    return found
