"""What lists of training jobs say beyond a queue's log: model, batch, iterations, and times of stages.

Muri (Zhao et al., SIGCOMM 2022): milliseconds that an iteration takes, and that it holds storage and CPU, the
GPU, and the network; the three need not add up to the iteration. ElasticFlow (Gu et al., ASPLOS 2023): model,
global batch and iterations, drawn at random by its authors. The lists themselves are read by `job_lists.py`.
"""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ingest.core.errors import InputError
from ingest.parsing import csv_blocks
from ingest.readers.clusters import swf_log

MURI_STAGES = ("resource_time_0", "resource_time_1", "resource_time_2")
_WANTED = {"job_id", "model_name", "batch_size"}


@dataclass(frozen=True, slots=True)
class TrainingDemand:
    """One job as its list has it: `stages_ms` are empty, and `iterations` 0, where the list has none."""

    model: str
    batch: int
    iterations: int
    iteration_ms: float = 0.0
    stages_ms: tuple[float, ...] = ()


def training_demands(path: Path) -> Mapping[str, TrainingDemand]:
    """Returns what a list of Muri or ElasticFlow says of each job, by its id; nothing for any other log.

    Raises:
        InputError: a number is none.
    """
    source = swf_log.opened(path)
    names = set(csv_blocks.header(source.head))
    if not names >= _WANTED or not names & {"iterations", "num_iteration"}:
        return {}
    found = {}
    for number, row in enumerate(csv.DictReader(io.StringIO(source.data().decode("utf-8", "replace"))), 2):
        try:
            found[row["job_id"].strip()] = _demand(row)
        except (TypeError, ValueError, AttributeError):
            continue  # the reader of the list says which rows are no jobs, and why
        if found[row["job_id"].strip()].batch < 1:
            raise InputError(
                f"{path}:{number}: batch_size is {row['batch_size']}; a batch has 1 sample or more"
            )
    return found


def _demand(row: dict[str, str]) -> TrainingDemand:
    model, batch = row["model_name"].strip(), int(row["batch_size"])
    if "num_iteration" in row:
        return TrainingDemand(model, batch, int(float(row["num_iteration"])))
    stages = tuple(float(row[name]) for name in MURI_STAGES)
    return TrainingDemand(model, batch, int(float(row["iterations"])), float(row["iteration_time"]), stages)
