"""Mini-batch times of Alibaba's training jobs, worker by worker, without a unit.

`job_N_norm.csv` is `,worker,gpu,time,batch_time_norm`: `time` counts iterations, the time is scaled to 0-1000
inside its job (`time_norm`). `coefficient_variation.csv` has a row for each job and a column for each
iteration: standard deviation over mean of the workers' times (`variation`), blank after the job's end.
"""

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np
import pyarrow as pa

from ingest.parsing import cell_conversion as cells, csv_blocks as csvfile
from ingest.parsing.csv_blocks import Texts
from ingest.parsing.dataset import DatasetOptions
from ingest.core.errors import InputError
from ingest.parsing.reader import Batch
from ingest.parsing.source import Source

_TABLE = "step_times"
_TIMES = ["", "worker", "gpu", "time", "batch_time_norm"]
_TIME_COLUMNS = (
    cells.text("worker", "worker"),
    cells.whole("step", "time"),
    cells.number("time_norm", "batch_time_norm"),
)
_VARIATION_COLUMNS = (
    cells.text("job", "job"),
    cells.whole("step", "step"),
    cells.number("variation", "variation"),
)


class MiniBatch:
    """Relative step times and their variation."""

    name = "mini-batch"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """The header of a job, or iterations counted from 0."""
        names = csvfile.header(head)
        return names == _TIMES or _iterations(names)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[Batch]:
        """A row for each worker and iteration, or for each job and iteration."""
        names = csvfile.header(source.head)
        if names == _TIMES:
            constants = {"job": source.path.stem, "kind": "relative"}
            yield from csvfile.side_by_side(source, cells.Typed(_TABLE, names, _TIME_COLUMNS, constants))
        elif _iterations(names):
            for block in csvfile.blocks(source):
                texts = _long(csvfile.texts(block, names), names)
                yield cells.from_texts(_TABLE, texts, _VARIATION_COLUMNS, {"kind": "variation"})
        else:
            raise InputError(f"{source.shown}: neither mini-batch times nor their variation")

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """What the numbers are good for."""
        return ("mini-batch: times have no unit: only ratios inside a job mean something",)


def _iterations(names: list[str]) -> bool:
    return len(names) > 1 and names == ["", *map(str, range(len(names) - 1))]


def _long(texts: Texts, names: list[str]) -> Texts:
    """The table as one row for each filled cell, job by job."""
    count, steps = len(texts.rows), len(names) - 1
    line = np.repeat(np.arange(count), steps)
    grid = pa.concat_arrays([texts.columns[name] for name in names[1:]])
    values = grid.take(pa.array(np.arange(len(grid)).reshape(steps, count).T.ravel()))
    filled = values.is_valid()
    made = {
        "job": texts.columns[""].take(pa.array(line)).filter(filled),
        "step": pa.array(names[1:] * count, pa.string()).filter(filled),
        "variation": values.filter(filled),
    }
    rows = texts.rows.take(pa.array(line)).filter(filled)
    return Texts(made, rows, len(rows) + len(texts.rejects), texts.rejects)
