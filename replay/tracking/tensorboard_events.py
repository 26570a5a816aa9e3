"""Event files of TensorBoard; needs the optional extra `tensorboard`."""

import io
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from ingest.core import extras
from replay.tracking.tracked_run import TrackedRun


class TensorboardEvents:
    """A run as scalars, and its parameters as text; writing twice gives the same bytes."""

    name = "tensorboard"
    extra = "tensorboard"

    def files(self, run: TrackedRun, folder: Path) -> Mapping[str, bytes]:
        """Returns one event file, in a folder of the run's name, which is what TensorBoard shows it as.

        Raises:
            UsageError: the extra is not installed.
        """
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.plugins.text.summary import text_pb
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            raise extras.missing(self.extra, "an event file of TensorBoard") from error
        stream = io.BytesIO()
        writer = RecordWriter(stream)
        begin_s = run.began_ms / 1e3
        writer.write(Event(wall_time=begin_s, file_version="brain.Event:2").SerializeToString())
        text = "\n".join(f"    {name}: {value}" for name, value in {**run.parameters, **run.tags}.items())
        writer.write(Event(wall_time=begin_s, step=0, summary=text_pb("run", text)).SerializeToString())
        at: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
        for name, one in run.series.items():
            for point in one.points:
                at[point.epoch_ms, point.step][name] = point.value
        for (epoch_ms, step), values in sorted(at.items()):
            summary = Summary(
                value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            )
            writer.write(Event(wall_time=epoch_ms / 1e3, step=step, summary=summary).SerializeToString())
        return {f"{run.run_id}/events.out.tfevents.0.twin": stream.getvalue()}

    def opened(self, folder: Path) -> str:
        """Returns the command that shows the files."""
        return f"tensorboard --logdir {folder}"
