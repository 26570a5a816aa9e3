"""Files of trackers are read back by the trackers themselves."""

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import ExistsError, UsageError
from replay.tracking.contract import track
from replay.tracking.registry import TRACKERS, tracker
from replay.tracking.tracked_run import TrackedRun, tracked

MODULES = {
    "mlflow": "mlflow", "tensorboard": "tensorboard.compat.proto.event_pb2", "wandb": "wandb",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(kept_store: Path) -> TrackedRun:
    return tracked(kept_store, "tri-7b-static")


def test_tensorboard_reads_series_and_parameters(run: TrackedRun, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = track(tracker("tensorboard"), run, tmp_path)
    found.write(force=False)
    assert found.files == tracker("tensorboard").files(run, tmp_path)  # the same bytes
    read = EventAccumulator(str(tmp_path / run.run_id)).Reload()
    assert set(read.Tags()["scalars"]) == set(run.series)
    assert [(one.step, one.wall_time) for one in read.Scalars("iteration_s")] == [
        (one.step, one.epoch_ms / 1e3) for one in run.series["iteration_s"].points
    ]
    values = [one.value for one in run.series["so_far/gpu_usd"].points]
    assert [one.value for one in read.Scalars("so_far/gpu_usd")] == np.float32(values).tolist()
    (told,) = read.Tensors("run")
    assert b"policy: static" in told.tensor_proto.string_val[0]
    with pytest.raises(ExistsError, match="is there already"):
        found.write(force=False)


def test_mlflow_reads_series_parameters_and_sums(run: TrackedRun, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    from mlflow import MlflowClient

    track(tracker("mlflow"), run, tmp_path).write(force=False)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(run.project)
    (read,) = client.search_runs([experiment.experiment_id])
    assert (read.info.run_name, read.info.status, read.info.start_time) == (
        run.run_id,
        "FINISHED",
        run.began_ms,
    )
    assert read.data.params == dict(run.parameters) and read.data.tags["twin.links"] == "SYNTHETIC"
    assert read.data.metrics["total/tokens"] == run.figures["tokens"]
    for name, one in run.series.items():
        history = client.get_metric_history(read.info.run_id, name)
        points = sorted((point.step, point.timestamp, point.value) for point in history)
        assert points == sorted(set(map(tuple, one.points)))


def test_wandb_writes_what_its_own_records_are(run: TrackedRun, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    found = track(tracker("wandb"), run, tmp_path)
    (content,) = found.files.values()
    kinds: dict[str, list[Record]] = {}
    for data in _records(content):
        record = Record.FromString(data)
        kinds.setdefault(record.WhichOneof("record_type"), []).append(record)
    assert kinds["run"][0].run.project == run.project and kinds["run"][0].run.run_id == run.run_id
    rows = [{item.key or "/".join(item.nested_key): item.value_json for item in one.history.item}
            for one in kinds["history"]]  # fmt: skip
    times = [float(row["iteration_s"]) for row in rows if "iteration_s" in row]
    assert times == [one.value for one in run.series["iteration_s"].points]


def _records(content: bytes) -> list[bytes]:
    """The records of a file of W&B: a head of seven bytes, then LevelDB's log format in blocks of 32 KiB."""
    assert content[:4] == b":W&B"
    found, part, at = list[bytes](), b"", 7
    while at + 7 <= len(content):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        part += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            found.append(part)
            part = b""
    return found


@pytest.mark.parametrize("name", TRACKERS)
def test_without_the_extra_the_message_says_what_to_install(
    name: str, run: TrackedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, MODULES[name], None)
    with pytest.raises(UsageError, match=rf"needs the extra '{name}': python -m pip install "):
        track(tracker(name), run, tmp_path)
    assert list(tmp_path.iterdir()) == []
