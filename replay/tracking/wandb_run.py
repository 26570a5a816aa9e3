"""An offline run of Weights & Biases; needs the optional extra `wandb`.

`wandb` writes it in a process of its own, without a network; `wandb sync` sends it when somebody wants that.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from ingest.core import extras
from ingest.core.errors import StorageError
from ingest.core.scratch import Scratch
from replay.tracking.tracked_run import TrackedRun

LONGEST_TAG = 64
"""Characters of a tag (W&B's own limit)."""


class WandbRun:
    """A run as an offline run of the project that its scenario is.

    W&B has one step for all series: those of iterations, decisions and updates have their own in `iteration`,
    `decision` and `update`.
    """

    name = "wandb"
    extra = "wandb"

    def files(self, run: TrackedRun, folder: Path) -> Mapping[str, bytes]:
        """Returns the record file of the run, in a folder that `wandb sync` takes.

        Raises:
            UsageError: the extra is not installed. StorageError: `wandb` wrote no record file, or there is
            no place for temporary files.
        """
        try:
            import wandb
        except ImportError as error:
            raise extras.missing(self.extra, "an offline run of Weights & Biases") from error
        quiet = wandb.Settings(
            console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True, save_code=False,
            silent=True,
        )  # fmt: skip
        tags = [f"{name}={value}"[:LONGEST_TAG] for name, value in run.tags.items() if value]
        with Scratch() as place:
            if place.path is None:
                raise StorageError("no folder for temporary files can be written, in which wandb would write")
            made = wandb.init(
                mode="offline", dir=str(place.path), project=run.project, id=run.run_id, name=run.run_id,
                config=dict(run.parameters), tags=tags, settings=quiet,
            )  # fmt: skip
            for number, values in enumerate(_rows(run)):
                made.log(values, step=number)
            made.summary.update({f"total/{name}": value for name, value in run.figures.items()})
            made.finish()
            wandb.teardown()  # its process writes the last blocks when it ends, after `finish` has returned
            found = list(place.path.glob("wandb/offline-run-*/run-*.wandb"))
            if len(found) != 1:
                raise StorageError(f"wandb wrote {len(found)} record files in place of one; see its own log")
            return {f"offline-run-{run.run_id}/{found[0].name}": found[0].read_bytes()}

    def opened(self, folder: Path) -> str:
        """Returns the command that shows the files."""
        return f"wandb sync {folder}/offline-run-*"


def _rows(run: TrackedRun) -> list[dict[str, float]]:
    """The values of each time and kind of step, in order, with the step."""
    rows: dict[tuple[int, str, int], dict[str, float]] = defaultdict(dict)
    for name, one in run.series.items():
        for point in one.points:
            rows[point.epoch_ms, one.counts, point.step][name] = point.value
    return [
        {**values, counts: step, "epoch_s": at / 1e3} for (at, counts, step), values in sorted(rows.items())
    ]
