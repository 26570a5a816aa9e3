"""The contract of trackers: the files of a run, written into a folder once all of them are there."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ingest.core import durable
from replay.tracking.tracked_run import TrackedRun


class Tracker(Protocol):
    """A tool that tracks experiments; `extra` is what has to be installed for it."""

    name: str
    extra: str

    def files(self, run: TrackedRun, folder: Path) -> Mapping[str, bytes]:
        """Returns the files by their names below `folder`, where they will lie; nothing is written there.

        Raises:
            UsageError: the extra is not installed.
        """
        ...

    def opened(self, folder: Path) -> str:
        """Returns the command that shows the files."""
        ...


@dataclass(frozen=True, slots=True)
class TrackedFiles:
    """Files of a run for one tracker, not yet written."""

    tracker: Tracker
    run: TrackedRun
    folder: Path
    files: Mapping[str, bytes]

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin export --json`."""
        return {
            "schema": "twin.export/1", "target": self.tracker.name, "origin": self.run.run_id,
            "scenario": self.run.project, "folder": str(self.folder),
            "files": [{"name": name, "bytes": len(data)} for name, data in sorted(self.files.items())],
            "series": {name: len(one.points) for name, one in sorted(self.run.series.items())},
            "opened": self.tracker.opened(self.folder),
        }  # fmt: skip

    def write(self, *, force: bool) -> None:
        """Writes all files, with `force` in place of older ones of these names.

        Raises:
            ExistsError: one of them is there, without `force`; nothing was written. StorageError: the disk
            refused.
        """
        durable.replace_all(self.folder, self.files, force=force)


def track(tracker: Tracker, run: TrackedRun, folder: Path) -> TrackedFiles:
    """Returns the files of a run for a tracker.

    Raises:
        UsageError: the tracker's extra is not installed.
    """
    return TrackedFiles(tracker, run, folder, tracker.files(run, folder))
