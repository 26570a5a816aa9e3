"""Lists of deep learning jobs that published schedulers are judged on: ElasticFlow, Muri, Sia and Pollux.

ElasticFlow (`job_id,submission_time,duration,num_gpu`, in its simulations also `num_iteration,model_name,
deadline,batch_size`): seconds from the start of the collection; the deadline is on the same clock, and was
drawn at random like model and iterations (Gu et al., ASPLOS 2023). Muri (`job_id,num_gpu,submit_time,
iterations,model_name,...,duration,...,priority`): milliseconds (Zhao et al., SIGCOMM 2022). Sia and Pollux
(`name,time,application,num_replicas,batch_size`): seconds; the list holds no run time, which follows from
profiles of the application (Jayaram Subramanya et al., SOSP 2023; Qiao et al., OSDI 2021).
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.core.units import to_ns
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.cell_conversion import ColumnMapping
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_TABLE = "jobs"
_ITP = frozenset({"job_id", "submission_time", "duration", "num_gpu"})
_ELASTICFLOW = _ITP | {"num_iteration", "model_name", "deadline", "batch_size"}
_MURI = frozenset(
    {"job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration", "interval",
     "iteration_time", "resource_time_0", "resource_time_1", "resource_time_2", "priority"}
)  # fmt: skip
_POLLUX = frozenset({"name", "time", "application", "num_replicas", "batch_size"})
_MS = 1e-3


class JobLists:
    """Jobs of ElasticFlow, Muri, Sia and Pollux."""

    name = "job-lists"
    version = 1
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header is exactly that of one of the lists."""
        return _columns(csv_blocks.header(head), 0) is not None

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each job.

        Raises:
            InputError: it is none of the lists.
        """
        names = csv_blocks.header(source.head)
        columns = _columns(names, to_ns(options.start_or_default().timestamp()))
        if columns is None:
            raise InputError(
                f"{source.shown}: not the header of a job list of ElasticFlow, Muri, Sia or Pollux"
            )
        yield from csv_blocks.side_by_side(source, cell_conversion.Typed(_TABLE, names, columns))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (f"job-lists: times count from {options.start_or_default().isoformat()}",)


def _columns(names: Sequence[str], start_ns: int) -> list[ColumnMapping] | None:
    """The columns of the list that has this header; None if none has."""
    given = frozenset(names)
    if len(given) != len(names):
        return None
    if given in (_ITP, _ELASTICFLOW):
        return _elasticflow(start_ns, simulated=given == _ELASTICFLOW)
    if given == _MURI:
        return _muri(start_ns)
    return _pollux(start_ns) if given == _POLLUX else None


def _elasticflow(start_ns: int, *, simulated: bool) -> list[ColumnMapping]:
    measured = [
        cell_conversion.text("job_id", "job_id"),
        cell_conversion.epoch("submit_ts", "submission_time", start_ns=start_ns),
        cell_conversion.number("duration_s", "duration"),
        cell_conversion.whole("gpus", "num_gpu"),
    ]
    drawn = [
        cell_conversion.text("model", "model_name"),
        cell_conversion.epoch("deadline_ts", "deadline", start_ns=start_ns),
        cell_conversion.whole("steps", "num_iteration"),
    ]
    return measured + (drawn if simulated else [])


def _muri(start_ns: int) -> list[ColumnMapping]:
    return [
        cell_conversion.text("job_id", "job_id"),
        cell_conversion.epoch("submit_ts", "submit_time", _MS, start_ns),
        cell_conversion.number("duration_s", "duration", _MS),
        cell_conversion.whole("gpus", "num_gpu"),
        cell_conversion.text("model", "model_name"),
        cell_conversion.whole("steps", "iterations"),
        cell_conversion.text("priority", "priority"),
    ]


def _pollux(start_ns: int) -> list[ColumnMapping]:
    return [
        cell_conversion.text("job_id", "name"),
        cell_conversion.epoch("submit_ts", "time", start_ns=start_ns),
        cell_conversion.whole("gpus", "num_replicas"),
        cell_conversion.text("model", "application"),
    ]
