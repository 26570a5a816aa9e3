"""Runs go from store to store, on disks and in buckets, whole or not at all."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import NotFoundError, StorageError, UsageError
from replay.inventory import synchronization
from replay.inventory.synchronization import synchronize
from replay.log import bucket_log, chain_heads
from replay.log.bucket_log import BucketLog
from replay.log.compaction import compact
from replay.log.run_log import RunReader, RunWriter
from tests.support.buckets import InMemory
from tests.support.histories import history, killed, write

FLUSH = 40


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    return InMemory(tmp_path / "machines", monkeypatch)


@pytest.fixture(params=["disk", "bucket"])
def target(request: pytest.FixtureRequest, tmp_path: Path, bucket: InMemory) -> Path:
    return tmp_path / "target" if request.param == "disk" else bucket.machine("target")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A store with two runs."""
    store = tmp_path / "source"
    write(store / "runs" / "a", flush_events=FLUSH)
    write(store / "runs" / "b", policy="static", flush_events=FLUSH)
    return store


def test_runs_go_over_with_their_chains(source: Path, target: Path) -> None:
    done = synchronize(source, target)
    assert [(run.run_id, run.there, run.copied, run.problem) for run in done] == [
        ("a", 0, 9, ""),
        ("b", 0, 9, ""),
    ]
    for run in ("a", "b"):
        ours, theirs = RunReader(source / "runs" / run), RunReader(target / "runs" / run)
        assert (theirs.digest(), theirs.chain_head()) == (ours.digest(), ours.chain_head())
        assert theirs.verify(ours.chain_head()) == []
        assert chain_heads.read(target / "runs" / run) is not None
    again = synchronize(source, target)
    assert [(run.there, run.copied, run.copied_bytes) for run in again] == [(9, 0, 0)] * 2


def test_from_disk_to_bucket_to_disk_is_the_same_store(
    source: Path, bucket: InMemory, tmp_path: Path
) -> None:
    synchronize(source, bucket.machine("one"))
    back = tmp_path / "back"
    for run in ("a", "b"):
        RunReader(bucket.machine("two") / "runs" / run)
    assert [run.copied for run in synchronize(bucket.machine("two"), back)] == [9, 9]
    for path in sorted((source / "runs").rglob("*.*")):
        if path.name != ".lock":
            assert (back / path.relative_to(source)).read_bytes() == path.read_bytes()


def test_one_that_was_cut_short_goes_on(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = [0], synchronization.put

    def fails(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == 8:
            raise StorageError("the disk is full")
        return real(*arguments, **more)

    monkeypatch.setattr(synchronization, "put", fails)
    monkeypatch.setattr(bucket_log, "put", fails)
    with pytest.raises(StorageError):
        synchronize(source, target, ["a"])
    assert RunReader(target / "runs" / "a").verify() == []
    assert 0 < len(RunReader(target / "runs" / "a").manifests()) < 9
    synchronize(source, target, ["a"])
    assert RunReader(target / "runs" / "a").digest() == RunReader(source / "runs" / "a").digest()


def test_a_compacted_run_goes_over(source: Path, target: Path) -> None:
    compact(source / "runs" / "a", piece_events=120)
    assert [run.copied for run in synchronize(source, target, ["a"])] == [9]
    reader = RunReader(target / "runs" / "a")
    assert reader.contents().compacted and reader.verify() == []
    assert reader.chain_head() == RunReader(source / "runs" / "a").chain_head()
    assert [run.copied for run in synchronize(source, target, ["a"])] == [0]


def test_a_run_that_was_compacted_between_two_copies(source: Path, target: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    shutil.copytree(source, begun)
    for path in sorted((begun / "runs" / "a").glob("0*"))[6:]:
        path.unlink()
    (begun / "heads" / "a.json").unlink(missing_ok=True)
    synchronize(begun, target, ["a"])
    compact(source / "runs" / "a")
    synchronize(source, target, ["a"])
    reader = RunReader(target / "runs" / "a")
    assert reader.finished and reader.verify() == []


def test_another_history_is_never_overwritten(source: Path, target: Path) -> None:
    write(target / "runs" / "a", policy="static", flush_events=FLUSH)
    before = RunReader(target / "runs" / "a").chain_head()
    done = synchronize(source, target)
    assert "has another history" in done[0].problem and done[1].copied == 9
    assert RunReader(target / "runs" / "a").chain_head() == before


def test_another_history_that_comes_meanwhile_is_never_overwritten(
    bucket: InMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "source" / "runs" / "a", flush_events=FLUSH)
    real = BucketLog.copy

    def late(self: BucketLog, *arguments: Any) -> None:
        monkeypatch.setattr(BucketLog, "copy", real)
        write(bucket.machine("other") / "runs" / "a", policy="static", flush_events=FLUSH)
        self.copy(*arguments)

    monkeypatch.setattr(BucketLog, "copy", late)
    done = synchronize(tmp_path / "source", bucket.machine("target"))
    assert "holds other events; nothing was overwritten" in done[0].problem
    assert RunReader(bucket.machine("third") / "runs" / "a").header()["policy"] == "static"


def test_two_copies_at_once_are_one(
    bucket: InMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "source" / "runs" / "a", flush_events=FLUSH)
    real = BucketLog.copy

    def late(self: BucketLog, *arguments: Any) -> None:
        monkeypatch.setattr(BucketLog, "copy", real)
        synchronize(tmp_path / "source", bucket.machine("other"))
        self.copy(*arguments)

    monkeypatch.setattr(BucketLog, "copy", late)
    assert [run.problem for run in synchronize(tmp_path / "source", bucket.machine("target"))] == [""]
    assert RunReader(bucket.machine("third") / "runs" / "a").verify() == []


def test_events_in_the_tail_stay_behind_and_a_target_with_a_tail_is_left(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(source / "runs" / "a", flush_events=FLUSH)
    synchronize(source, target)
    killed(source / "runs" / "a")
    fresh = synchronize(source, tmp_path / "fresh")
    assert fresh[0].waiting > 0 and fresh[0].copied == 8
    assert "resume the run there" in synchronize(target, source)[0].problem


def test_a_damaged_source_is_named_and_the_others_go_over(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for run in ("a", "b"):
        write(source / "runs" / run, flush_events=FLUSH)
    path = sorted((source / "runs" / "a").glob("*.parquet"))[3]
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    done = synchronize(source, tmp_path / "target")
    assert path.name in done[0].problem and done[1].copied == 9


def test_stores_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: InMemory) -> None:
    with pytest.raises(UsageError, match="no such store"):
        synchronize(tmp_path / "nothing", tmp_path / "target")
    with pytest.raises(UsageError, match="the same store"):
        synchronize(tmp_path, tmp_path)
    with pytest.raises(NotFoundError):
        synchronize(tmp_path, tmp_path / "target", ["a"])


def test_an_unfinished_run_is_gone_on_with_in_the_target(tmp_path: Path, bucket: InMemory) -> None:
    with RunWriter.create(tmp_path / "source" / "runs" / "a", flush_events=FLUSH) as writer:
        for sim_ns, kind, payload, wall in list(history())[:100]:
            writer.append(sim_ns, kind, payload, wall=wall)
    target = bucket.machine("target")
    assert synchronize(tmp_path / "source", target)[0].waiting == 0
    with RunWriter.open(target / "runs" / "a", flush_events=FLUSH) as writer:
        for sim_ns, kind, payload, wall in history():
            writer.append(sim_ns, kind, payload, wall=wall)
    bucket_log.bring_up_to_date(target / "runs" / "a")
    assert RunReader(target / "runs" / "a").verify() == []
    back = synchronize(target, tmp_path / "source")
    assert back[0].there == 4 and back[0].copied > 0
