"""A store: the measurements, runs and checkpoints of one folder."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.core import resources
from ingest.core.errors import UsageError
from ingest.lake import lake
from ingest.lake.lake import DatasetInfo
from ingest.pipeline.ingest import ingest
from ingest.pipeline.ingest_report import IngestReport
from replay.api.logged_run import Run
from replay.api.query_result import QueryResult
from replay.bench import comparison
from replay.bench.comparison import Comparison
from replay.log.bucket_log import store_at
from replay.sql.query import query
from replay.sql.sandbox import Limits
from replay.store import run_index

PathLike = str | os.PathLike[str]


class Store:
    """A folder with a lake of measurements, logged runs and checkpoints; it is made when first written.

    The logs may lie in a bucket: `s3://BUCKET/PREFIX`. Then `path` is a working copy of it.
    """

    def __init__(self, path: PathLike | None = None) -> None:
        self.path = store_at(str(path or os.environ.get("TWIN_STORE") or ".twin"))

    def ingest(self, *paths: PathLike) -> IngestReport:
        """Read files or folders of measurements into the lake; without `paths` the traces that ship.

        Files that the lake holds already add nothing; bad rows are kept as rejects with their reason.

        Raises:
            UsageError: a path does not exist. InputError: no file can be read.
            LockedError: another process ingests into this store.
        """
        return ingest([Path(path) for path in paths] or [resources.traces()], self.path)

    def datasets(self) -> dict[str, DatasetInfo]:
        """Data sets of the lake by name, with their metadata, rows of each table and number of sources."""
        return lake.datasets(self.path)

    def drop(self, dataset: str) -> DatasetInfo:
        """Take a data set out of the lake; returns what was dropped.

        Raises:
            NotFoundError: the lake has no such data set. LockedError: another process writes the lake.
        """
        return lake.drop(self.path, dataset)

    def sql(self, select: str, *, timeout_s: float | None = None, memory: str = "50%") -> QueryResult:
        """Rows of one SELECT over the tables of the lake and the views of the logs (docs/reference/sql.md).

        It reads nothing else and writes nothing. `memory` is a size (`4GB`) or a share of the machine's.

        Raises:
            UsageError: not one SELECT, DuckDB refuses it, or it exceeds a limit.
            DamageError: a log is not as it was written. StorageError: a file could not be read.
        """
        return QueryResult(query(self.path, select, limits=Limits(timeout_s, memory)))

    def runs(self) -> list[Run]:
        """Every run, the oldest first."""
        ids = run_index.by_start(self.path, run_index.all_ids(self.path))
        return [Run(self.path, run_id) for run_id in ids]

    def run(self, name: str = run_index.LATEST) -> Run:
        """The run of that id, of a unique beginning of it, or for `latest` the newest finished one.

        Raises:
            NotFoundError: no run or more than one fits.
        """
        return Run(self.path, run_index.find(self.path, name))

    def compare(self, *runs: "str | Run", bound: bool = True) -> Comparison:
        """Finished runs of one world beside each other and, with `bound`, beside the clairvoyant bound.

        Raises:
            UsageError: fewer than two runs, or runs of different worlds.
            NotFoundError: no such run, or it is not finished.
        """
        chosen: Sequence[Run] = [run if isinstance(run, Run) else self.run(run) for run in runs]
        if len(chosen) < 2:
            raise UsageError("compare takes at least two runs; `twin runs` lists them")
        return comparison.of_runs(self.path, [run.id for run in chosen], with_bound=bound)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def _repr_html_(self) -> str:
        """Table of the runs, for notebooks."""
        from html import escape

        lines: list[Any] = [(run.id, run.policy, run.scenario) for run in self.runs()]
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in line) + "</tr>" for line in lines
        )
        head = "<tr><th>run</th><th>policy</th><th>scenario</th></tr>"
        return f"<p>{escape(str(self.path))}</p><table>{head}{body}</table>"
