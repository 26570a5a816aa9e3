"""A tracking store of MLflow in one SQLite file; needs the optional extra `mlflow`.

MLflow keeps its older store of plain files in maintenance and refuses it by default (3.17), so that the file
is a database, as of `mlflow server` without options.
"""

import logging
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from ingest.core import extras
from ingest.core.errors import StorageError
from ingest.core.scratch import Scratch
from replay.tracking.tracked_run import TrackedRun

DATABASE = "mlflow.db"
MOST_METRICS = 1_000
"""Metrics that one call takes (MLflow's own limit)."""
LONGEST = 6_000
"""Characters of a parameter (MLflow's own limit)."""


class MlflowStore:
    """A run as a run of the experiment that its scenario is."""

    name = "mlflow"
    extra = "mlflow"

    def files(self, run: TrackedRun, folder: Path) -> Mapping[str, bytes]:
        """Returns the database, with this run alone.

        Raises:
            UsageError: the extra is not installed. StorageError: there is no place for temporary files.
        """
        try:
            import alembic  # noqa: F401 - the store needs it and MLflow imports it late
            import sqlalchemy  # noqa: F401
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param
        except ImportError as error:
            raise extras.missing(self.extra, "a store of MLflow") from error
        for chatty in ("mlflow", "alembic"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        with Scratch() as place:
            if place.path is None:
                raise StorageError(
                    "no folder for temporary files can be written, in which MLflow would write"
                )
            path = place.path / DATABASE
            client = MlflowClient(tracking_uri=f"sqlite:///{path}")
            artifacts = (folder / "artifacts").absolute().as_uri()
            experiment = client.create_experiment(run.project, artifact_location=artifacts)
            tags = {**run.tags, "mlflow.source.name": "twin"}
            made = client.create_run(experiment, run.began_ms, tags, run_name=run.run_id).info.run_id
            parameters = [Param(name, value[:LONGEST]) for name, value in run.parameters.items()]
            client.log_batch(made, params=parameters)
            metrics = (
                Metric(name, point.value, point.epoch_ms, point.step)
                for name, one in run.series.items() for point in one.points
            )  # fmt: skip
            while some := list(islice(metrics, MOST_METRICS)):
                client.log_batch(made, metrics=some)
            end_ms = run.ended_ms
            totals = [Metric(f"total/{name}", value, end_ms, 0) for name, value in run.figures.items()]
            client.log_batch(made, metrics=totals)
            client.set_terminated(
                made, "FINISHED" if run.tags["twin.finished"] == "yes" else "KILLED", end_ms
            )
            return {DATABASE: path.read_bytes()}

    def opened(self, folder: Path) -> str:
        """Returns the command that shows the files."""
        return f"mlflow server --backend-store-uri sqlite:///{(folder / DATABASE).absolute()}"
