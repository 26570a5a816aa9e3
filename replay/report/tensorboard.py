"""Exports the learning curve of a training to TensorBoard; needs the optional extra `tensorboard`."""

import io
from collections.abc import Iterable
from pathlib import Path

from ingest.core import durable, extras
from replay.log.run_log import RunReader
from replay.store import run_index


def export(store: Path, run_id: str, folder: Path) -> Path:
    """Writes the metrics of the run's updates as scalars `stage/metric`, and returns the file.

    The axis is environment steps, of imitation its updates. Writing twice gives the same file.

    Raises:
        NotFoundError: no such run. UsageError: the extra is not installed.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise extras.missing("tensorboard", "exporting curves") from error
    stream = io.BytesIO()
    writer = RecordWriter(stream)
    writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
    for step, stage, metrics in _points(RunReader(run_index.folder(store, run_id))):
        values = [Summary.Value(tag=f"{stage}/{name}", simple_value=value) for name, value in metrics.items()]
        # Simulated trainings have no time of day: one second a step keeps their order.
        event = Event(wall_time=float(step), step=step, summary=Summary(value=values))
        writer.write(event.SerializeToString())
    path = folder / run_id / "events.out.tfevents.0.twin"
    durable.put(path, stream.getvalue(), idempotent=True)
    return path


def _points(reader: RunReader) -> Iterable[tuple[int, str, dict[str, float]]]:
    for event in reader.events():
        if event.type == "policy_updated":
            point = event.payload
            yield point["steps"] or point["update"], point["stage"], point["metrics"]
