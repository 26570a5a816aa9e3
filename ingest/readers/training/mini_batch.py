"""Mini-batch times of Alibaba's training jobs, worker by worker, without a unit.

`job_N_norm.csv` is `,worker,gpu,time,batch_time_norm`: `time` counts iterations, the time is scaled to 0-1000
inside its job (`time_norm`). `coefficient_variation.csv` has a row for each job and a column for each
iteration: standard deviation over mean of the workers' times (`variation`), blank after the job's end.
"""

from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source
from ingest.parsing.wide_table import unpivoted

_TABLE = "step_times"
_TIMES = ["", "worker", "gpu", "time", "batch_time_norm"]
_TIME_COLUMNS = (
    cell_conversion.text("worker", "worker"),
    cell_conversion.whole("step", "time"),
    cell_conversion.number("time_norm", "batch_time_norm"),
)
_VARIATION_COLUMNS = (
    cell_conversion.text("job", "job"),
    cell_conversion.whole("step", "step"),
    cell_conversion.number("variation", "variation"),
)


class MiniBatch:
    """Relative step times and their variation."""

    name = "mini-batch"
    version = 1
    text_only = True
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header is that of a job, or iterations counted from 0."""
        names = csv_blocks.header(head)
        return names == _TIMES or _iterations(names)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each worker and iteration, or for each job and iteration."""
        names = csv_blocks.header(source.head)
        if names == _TIMES:
            constants = {"job": source.path.stem, "kind": "relative"}
            yield from csv_blocks.side_by_side(
                source, cell_conversion.Typed(_TABLE, names, _TIME_COLUMNS, constants)
            )
        elif _iterations(names):
            for block in csv_blocks.blocks(source):
                texts = unpivoted(csv_blocks.texts(block, names), names, ("job", "step", "variation"))
                yield cell_conversion.from_texts(_TABLE, texts, _VARIATION_COLUMNS, {"kind": "variation"})
        else:
            raise InputError(f"{source.shown}: neither mini-batch times nor their variation")

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("mini-batch: times have no unit: only ratios inside a job mean something",)


def _iterations(names: list[str]) -> bool:
    return len(names) > 1 and names == ["", *map(str, range(len(names) - 1))]
