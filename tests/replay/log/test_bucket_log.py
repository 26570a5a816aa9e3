"""The promises of the log in a bucket: P1 to P10 with requests that fail, arrive late, or come twice."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import MemoryStore

from ingest.core.errors import DamageError, ExistsError, LockedError, StorageError, UsageError
from replay.log import bucket_log, chain_heads
from replay.log.bucket_log import BucketLog
from replay.log.compaction import compact, tidy
from replay.log.quarantine import quarantine
from replay.log.run_log import RunReader, RunWriter
from tests.support.buckets import InMemory
from tests.support.histories import history, totals, write

END_NS = 3600 * 10**9
FLUSH = 40
"""Events a batch: the made-up run has eight."""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    return InMemory(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Digest and chain head of the same run on a disk."""
    return write(tmp_path_factory.mktemp("disk") / "runs" / "a", flush_events=FLUSH)


def run_at(machine: Path) -> Path:
    return machine / "runs" / "a"


def play(writer: RunWriter, stop: int | None = None) -> tuple[str, str] | None:
    for number, (sim_ns, kind, payload, wall) in enumerate(history()):
        if number == stop:
            return None
        writer.append(sim_ns, kind, payload, wall=wall)
    return writer.finish(totals(), sim_ns=END_NS)


def resumed(run_dir: Path) -> tuple[str, str]:
    with RunWriter.open(run_dir, flush_events=FLUSH) as writer:
        ended = play(writer)
    assert ended is not None
    return ended


def read_elsewhere(bucket: InMemory) -> RunReader:
    """A reader on a machine that has nothing yet."""
    shutil.rmtree(bucket.folder / "other", ignore_errors=True)
    return RunReader(run_at(bucket.machine("other")))


def test_the_same_run_on_a_disk_and_in_a_bucket(bucket: InMemory, on_disk: tuple[str, str]) -> None:
    assert write(run_at(bucket.machine()), flush_events=FLUSH) == on_disk  # P7: digest and chain
    reader = read_elsewhere(bucket)  # P8: all of it is made again from the bucket
    assert (reader.digest(), reader.chain_head()) == on_disk
    assert reader.verify(on_disk[1]) == []
    events = list(reader.events())
    assert [event.seq for event in events] == list(range(len(events)))  # P3
    assert [event.payload for event in events[:-1]] == [payload for _, _, payload, _ in history()]
    batches = [name for name in bucket.names() if name.endswith(".batch")]
    assert len(batches) == len(reader.manifests()) and "runs/a/head.json" in bucket.names()


def test_a_working_copy_that_was_just_deleted_is_fetched_again(
    bucket: InMemory, on_disk: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the process holds what it has just seen for fresh."""
    monkeypatch.setattr(bucket_log, "FRESH_S", 1e9)
    run_dir = run_at(bucket.machine())
    write(run_dir, flush_events=FLUSH)
    assert RunReader(run_dir).digest() == on_disk[0]
    shutil.rmtree(run_dir)
    run_dir.mkdir()
    assert RunReader(run_dir).digest() == on_disk[0]


def test_an_acknowledged_event_is_in_the_bucket(bucket: InMemory) -> None:
    with RunWriter.create(run_at(bucket.machine())) as writer:  # P2
        for number, (sim_ns, kind, payload, _) in enumerate(history()):
            writer.append(sim_ns, kind, payload)
            if number % 50 == 7:
                through = writer.flush()
                assert [event.seq for event in read_elsewhere(bucket).events()] == list(range(through + 1))


def test_a_reader_follows_a_writer_and_neither_waits(bucket: InMemory) -> None:
    seen = []
    writer = RunWriter.create(run_at(bucket.machine()), flush_events=FLUSH)
    for sim_ns, kind, payload, _ in history():
        seq = writer.append(sim_ns, kind, payload)
        if seq % FLUSH in (0, FLUSH - 1):
            seen.append(sum(1 for _ in RunReader(run_at(bucket.machine("other"))).events()))  # P6
    writer.close()
    assert seen == sorted(seen) and len(set(seen)) >= 8


class Requests:
    """Lets a request go wrong: `lost` never arrives, `unanswered` is carried out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.real, self.count, self.at, self.carried_out = obstore.put, 0, -1, False
        self.late: list[Callable[[], Any]] = []
        monkeypatch.setattr(obstore, "put", self.put)

    def put(self, *arguments: Any, **more: Any) -> Any:
        self.count += 1
        if self.count == self.at:
            if self.carried_out:
                with suppress(AlreadyExistsError):
                    self.real(*arguments, **more)
            else:
                self.late.append(lambda: self.real(*arguments, **more))
            raise GenericError("the connection was lost")
        return self.real(*arguments, **more)


def cut_off(bucket: InMemory, monkeypatch: pytest.MonkeyPatch) -> tuple[Requests, Path]:
    """A writer whose sixth request arrives late, and its run as another machine reads it."""
    requests = Requests(monkeypatch)
    requests.at = 6
    with (
        pytest.raises(StorageError),
        RunWriter.create(run_at(bucket.machine()), flush_events=FLUSH) as writer,
    ):
        play(writer)
    other = run_at(bucket.machine("other"))
    RunReader(other)
    return requests, other


PUTS = 2 + 9 + 1
"""The condition's check, the batches, the record of the head."""


@pytest.mark.parametrize("carried_out", [False, True], ids=["lost", "unanswered"])
@pytest.mark.parametrize("at", range(1, PUTS + 1))
def test_whichever_request_fails_the_run_is_resumed_to_the_same_digest(
    bucket: InMemory, monkeypatch: pytest.MonkeyPatch, on_disk: tuple[str, str], at: int, carried_out: bool
) -> None:
    requests = Requests(monkeypatch)
    requests.at, requests.carried_out = at, carried_out
    acknowledged = -1
    with (
        pytest.raises(StorageError),
        RunWriter.create(run_at(bucket.machine()), flush_events=FLUSH) as writer,
    ):
        for sim_ns, kind, payload, wall in history():
            writer.append(sim_ns, kind, payload, wall=wall)
            acknowledged = writer.durable_through
        writer.finish(totals(), sim_ns=END_NS)
    assert requests.count >= at, "the request went wrong"
    requests.at = -1
    names = bucket.names()
    if not [name for name in names if name.endswith(".batch")]:
        assert acknowledged == -1
        return
    stored = list(
        read_elsewhere(bucket).events()
    )  # P1, P10: a beginning, whole batches, all that was acknowledged
    assert len(stored) > acknowledged
    shutil.rmtree(bucket.machine("third"), ignore_errors=True)
    third = run_at(bucket.machine("third"))
    RunReader(third)
    assert resumed(third)[0] == on_disk[0]
    assert read_elsewhere(bucket).verify() == []


def test_a_request_that_arrives_late_changes_nothing(
    bucket: InMemory, monkeypatch: pytest.MonkeyPatch, on_disk: tuple[str, str]
) -> None:
    requests, other = cut_off(bucket, monkeypatch)
    assert resumed(other)[0] == on_disk[0]
    before = {name: bucket.objects.read(name) for name in bucket.names()}
    for late in requests.late:
        with pytest.raises(AlreadyExistsError):
            late()
    assert {name: bucket.objects.read(name) for name in bucket.names()} == before


def test_a_request_that_arrives_before_the_next_writer_is_kept_or_told(
    bucket: InMemory, monkeypatch: pytest.MonkeyPatch, on_disk: tuple[str, str]
) -> None:
    requests, other = cut_off(bucket, monkeypatch)
    told = pytest.raises(LockedError, match="another process writes this run")
    with told, RunWriter.open(other, flush_events=FLUSH) as second:
        for late in requests.late:
            late()
        play(second)
    assert resumed(other)[0] == on_disk[0]


def test_of_two_writers_one_wins_at_any_point(bucket: InMemory, on_disk: tuple[str, str]) -> None:
    for stop in (60, 250):
        bucket.client = bucket.objects.client = MemoryStore()
        for name in ("here", "other"):
            shutil.rmtree(bucket.machine(name))
        first = RunWriter.create(run_at(bucket.machine()), flush_events=FLUSH)
        events = list(history())
        for sim_ns, kind, payload, wall in events[:stop]:
            first.append(sim_ns, kind, payload, wall=wall)
        first.flush()
        other = run_at(bucket.machine("other"))
        RunReader(other)
        assert resumed(other)[0] == on_disk[0]
        with pytest.raises(LockedError, match=f"its events from {stop} on"):
            for sim_ns, kind, payload, wall in events[stop:]:
                first.append(sim_ns, kind, payload, wall=wall)
            first.finish(totals(), sim_ns=END_NS)
        first.close()
        assert read_elsewhere(bucket).verify() == []


def test_two_new_runs_of_one_name(bucket: InMemory) -> None:
    first = RunWriter.create(run_at(bucket.machine()))
    second = RunWriter.create(run_at(bucket.machine("other")))
    play(first, stop=1)
    with pytest.raises(LockedError):
        play(second, stop=1)
    with pytest.raises(StorageError, match="resume the run"):
        play(second, stop=1)
    with pytest.raises(ExistsError):
        RunWriter.create(run_at(bucket.machine("third")))


@pytest.fixture
def run(bucket: InMemory) -> InMemory:
    write(run_at(bucket.machine()), flush_events=FLUSH)
    return bucket


def damages(bucket: InMemory) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every kind of damage to every batch: what is named in the message, and the doing."""
    client, batches = bucket.client, [name for name in bucket.names() if name.endswith(".batch")]
    for name, after in ((batches[0], batches[1]), (batches[4], batches[5]), (batches[-1], batches[0])):
        data = bucket.objects.read(name)
        for at in range(7, len(data), 2_503):
            flipped = data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :]
            yield name, lambda name=name, flipped=flipped: obstore.put(client, name, flipped)  # type: ignore[misc]
        yield name, lambda name=name, data=data: obstore.put(client, name, data[:-1])  # type: ignore[misc]
        other = bucket.objects.read(after)
        yield name, lambda name=name, other=other: obstore.put(client, name, other)  # type: ignore[misc]
        yield name, lambda name=name: obstore.delete(client, name)  # type: ignore[misc]


def test_any_damage_is_found_by_who_reads_first_and_by_the_audit_of_who_has_read(run: InMemory) -> None:
    whole = {name: run.objects.read(name) for name in run.names()}
    tried = 0
    for name, damage in damages(run):
        damage()  # P4
        with pytest.raises(DamageError):
            list(read_elsewhere(run).events())
        stem = Path(name).stem
        try:
            findings = [str(one) for one in RunReader(run_at(run.machine())).verify()]
        except DamageError as error:
            findings = [str(error)]
        assert any(stem in finding for finding in findings), (name, findings)
        obstore.put(run.client, name, whole[name])
        tried += 1
    assert tried >= 14
    assert RunReader(run_at(run.machine())).verify() == []


def test_a_history_that_was_written_again_is_found_by_the_head(run: InMemory, tmp_path: Path) -> None:
    head = RunReader(run_at(run.machine())).chain_head()
    for name in run.names():
        obstore.delete(run.client, name)
    write(run_at(run.machine("forger")), policy="static", flush_events=FLUSH)
    assert read_elsewhere(run).verify() == []
    assert [one.problem for one in read_elsewhere(run).verify(head)] == [  # P5
        f"the chain does not hold {head}: the end was cut or the past rewritten"
    ]
    before = RunReader(run_at(run.machine()))  # of a machine that has read the log as it was
    assert before.verify() != []
    with pytest.raises(DamageError, match=r"replaced|went away"):
        before.contents()


def test_a_lost_end_is_found_by_the_record_of_the_head(run: InMemory) -> None:
    last = [name for name in run.names() if name.endswith(".batch")][-1]
    obstore.delete(run.client, last)
    with pytest.raises(DamageError, match="missing"):
        read_elsewhere(run).contents()
    obstore.put(run.client, "runs/a/head.json", b"{}")
    with pytest.raises(DamageError, match=r"head\.json: its bytes"):
        read_elsewhere(run).contents()


def test_objects_that_do_not_belong_to_the_run_are_named(run: InMemory) -> None:
    obstore.put(run.client, "runs/a/notes.txt", b"mine")
    assert [one.file for one in read_elsewhere(run).verify()] == ["notes.txt"]


def test_a_working_copy_is_made_again_from_the_bucket(run: InMemory, on_disk: tuple[str, str]) -> None:
    run_dir = run_at(run.machine())
    for path in sorted(run_dir.iterdir())[::2]:  # as if it had been killed while it read
        path.unlink()
    assert RunReader(run_dir).digest() == on_disk[0]
    assert RunReader(run_dir).verify() == []


def test_batches_that_come_between_the_listing_and_the_record_of_the_head(
    bucket: InMemory, monkeypatch: pytest.MonkeyPatch, on_disk: tuple[str, str]
) -> None:
    with RunWriter.create(run_at(bucket.machine()), flush_events=FLUSH) as writer:
        play(writer, stop=100)
    log = BucketLog.of(run_at(bucket.machine("other")))
    assert log is not None
    old = log._listed()
    assert resumed(run_at(bucket.machine()))[0] == on_disk[0]
    log.fetch(old)
    assert RunReader(log.run_dir).finished


def test_what_a_run_costs_in_requests(bucket: InMemory) -> None:
    write(run_at(bucket.machine()), flush_events=FLUSH)
    batches = len(RunReader(run_at(bucket.machine())).manifests())
    made = bucket.objects.requests
    assert made.put == 2 + batches + 1  # the check of a new store, the batches, the head
    before = made.total
    monotone = RunReader(run_at(bucket.machine("other")))
    assert made.total - before == batches + 2 + 1  # two listings, the batches, the head
    assert monotone.finished


def test_a_store_is_opened_with_all_its_runs(
    run: InMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert bucket_log.store_at(str(tmp_path)) == tmp_path
    store = bucket_log.store_at("s3://memory/twin/")
    assert store.is_relative_to(tmp_path / "cache")
    assert [path.name for path in (store / "runs").iterdir()] == ["a"]
    assert RunReader(store / "runs" / "a").finished


def test_work_on_a_disk_only_is_refused_in_a_bucket(run: InMemory) -> None:
    run_dir = run_at(run.machine())
    for work in (compact, quarantine):
        with pytest.raises(UsageError, match="works on a store on a disk only"):
            work(run_dir)
    tidy(run_dir)
    assert len(RunReader(run_dir).contents().pieces) == len(RunReader(run_dir).manifests())


def test_heads_are_kept_where_they_say_more(run: InMemory) -> None:
    kept = chain_heads.read(run_at(run.machine()))
    assert kept is not None
    obstore.put(run.client, "runs/a/head.json", chain_heads.record("a", 1, "0" * 64))
    RunReader(run_at(run.machine()))
    assert chain_heads.read(run_at(run.machine())) == kept
