"""Compaction: whatever stops it, the run is whole, its digest and head are what they were, and it goes on."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.core.durable import DISK, Disk
from ingest.core.errors import DamageError, LockedError, StorageError, TwinError, UsageError
from replay.log import recovery, segment_index
from replay.log.compaction import Compaction, compact, tidy
from replay.log.run_log import RunReader, RunWriter, recover
from replay.sql import query
from tests.support import crash_workload as workload
from tests.support.disks import FAULTS, Crash, FailingDisk, RememberingDisk, leave
from tests.support.histories import history

EVENTS, PER_FLUSH, PIECE = 48, 5, 20


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    folder = tmp_path_factory.mktemp("compaction") / "run"
    return (folder, *workload.write(folder, EVENTS, PER_FLUSH))


@pytest.fixture
def run(finished: tuple[Path, str, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished[0], tmp_path / "run"))


def assert_same(run_dir: Path, finished: tuple[Path, str, str]) -> None:
    """The run in `run_dir` says what it said before, and a head kept before proves it."""
    _, digest, head = finished
    reader, original = RunReader(run_dir), RunReader(finished[0])
    assert reader.verify(head) == []
    assert (reader.digest(), reader.chain_head(), reader.finished) == (digest, head, True)
    assert list(reader.events()) == list(original.events())
    assert reader.manifests() == original.manifests()


def test_a_compacted_run_is_the_same_run_in_fewer_files(run: Path, finished: tuple[Path, str, str]) -> None:
    done = compact(run, piece_events=PIECE)
    assert (done.files_before, done.files) == (11, 3)
    assert len(list(run.glob("*.parquet"))) == 3 and len(list(run.glob("*.json"))) == 1
    assert done.bytes < done.bytes_before
    assert_same(run, finished)
    for manifest in RunReader(finished[0]).manifests():
        assert RunReader(run).verify(manifest.hash) == [], "a head of the run in growth proves it too"
    assert compact(run).files == 3, "once is enough"
    assert workload.write(run, EVENTS, PER_FLUSH) == finished[1:], "made again, nothing is written"
    assert sorted(path.name for path in run.iterdir() if path.suffix) == sorted(
        path.name for path in run.iterdir() if path.name != recovery.LOCK
    )


def test_the_wall_clock_is_under_the_old_head_too(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", flush_events=50) as writer:
        for sim_ns, kind, payload, wall in history():
            writer.append(sim_ns, kind, payload, wall=wall)
        _, head = writer.finish({})
    walls = [event.wall for event in RunReader(tmp_path / "run").events()]
    compact(tmp_path / "run")
    assert [event.wall for event in RunReader(tmp_path / "run").events()] == walls
    found = segment_index.read_record(tmp_path / "run")
    assert found is not None
    (piece,) = found.pieces
    table = next(RunReader(tmp_path / "run").tables())
    slower = [wall.replace("0.001", "0.002") for wall in table.column("wall").to_pylist()]
    forged = table.set_column(6, table.schema.field("wall"), [slower])
    data = segment_index.segment.encode_table(forged)
    (tmp_path / "run" / piece.data_name).write_bytes(data)
    lie = segment_index.SegmentIndex(
        found.chain, (segment_index.merged(0, piece.last_seq, data),), compacted=True
    )
    (tmp_path / "run" / segment_index.RECORD).write_bytes(segment_index.record(lie))
    (finding,) = RunReader(tmp_path / "run").verify(head)
    assert "not those that it was written over" in finding.problem


STEP = {"error": 2} if workload.EFFORT == 1 else {}
"""Every how many calls one fails; without an entry, every one."""
HARMLESS = ("short write", "interrupted")


def calls_of(mode: str, run: Path, tmp_path: Path) -> Iterator[tuple[Path, FailingDisk]]:
    """One fresh copy of the run for every call that can fail; the last is not reached any more."""
    for at in count(1, STEP.get(mode, 1)):
        copy = Path(shutil.copytree(run, tmp_path / f"{mode}-{at}"))
        disk = FailingDisk(mode, at)
        yield copy, disk
        if disk.calls < at:
            return


@pytest.mark.parametrize("mode", FAULTS)
def test_stopped_at_every_call(mode: str, tmp_path: Path) -> None:
    tried = 0
    digest, head = workload.write(tmp_path / "small", 9, 3)
    small = (tmp_path / "small", digest, head)
    for copy, disk in calls_of(mode, small[0], tmp_path):
        stopped = False
        try:
            compact(copy, piece_events=6, disk=disk)
        except (Crash, StorageError):
            stopped = True
        failed = disk.calls >= disk.at
        assert stopped == (failed and mode not in HARMLESS)
        tried += failed
        assert_same(copy, small)
        assert compact(copy, piece_events=6).files == 2, (mode, disk.at)
        assert_same(copy, small)
        assert recover(copy) == ()
    workload.tally("failed calls", tried)
    assert tried >= 3, "two merged files and their record are written"


def test_no_power_cut_breaks_a_compaction(finished: tuple[Path, str, str], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(finished[0], tmp_path / "run"))
    (copy / recovery.LOCK).unlink()
    disk = RememberingDisk()
    disk.hold(copy)
    compact(copy, piece_events=40, disk=disk)
    states = {tuple(sorted(state.items())) for _, moment in disk.moments for state in moment.sampled(40)}
    for number, state in enumerate(sorted(states)[:: max(1, 150 // workload.EFFORT)]):
        left = leave(dict(state), tmp_path / str(number))
        recover(left)
        assert_same(left, finished)
    workload.tally("states", len(states))
    assert len(states) > 500


def test_what_is_refused(run: Path, tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "open") as writer:
        writer.append(*workload.event(0))
        with pytest.raises(LockedError):
            compact(tmp_path / "open")
    with pytest.raises(UsageError, match="only a finished run"):
        compact(tmp_path / "open")
    with pytest.raises(TwinError, match="no such run"):
        compact(tmp_path / "nowhere")
    path = max(run.glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamageError):
        compact(run)
    assert len(list(run.glob("*.parquet"))) == 11


def test_damage_after_compaction_is_found_and_named(run: Path) -> None:
    compact(run, piece_events=PIECE)
    for path in sorted(run.glob("*[0-9d].*")):
        whole = path.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 60)):
            damaged = bytearray(whole)
            damaged[place] ^= 4
            path.write_bytes(damaged)
            assert path.name in {finding.file for finding in RunReader(run).verify()}
            with pytest.raises(DamageError, match=path.name):
                list(RunReader(run).events())
        path.write_bytes(whole)
        path.unlink()
        assert path.name == segment_index.RECORD or path.name in {f.file for f in RunReader(run).verify()}
        path.write_bytes(whole)
    (run / "00000000000000000900-00000000000000000999.parquet").write_bytes(b"")
    (finding,) = RunReader(run).verify()
    assert "does not belong" in finding.problem


def test_originals_stay_while_what_replaces_them_is_damaged(run: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in run.glob("0*")}
    compact(run, piece_events=PIECE)
    for name, data in before.items():
        (run / name).write_bytes(data)
    assert RunReader(run).verify() == [], "left-overs of a compaction that was stopped"
    piece = max(run.glob("*-*.parquet"))
    piece.write_bytes(bytes(piece.stat().st_size))
    with pytest.raises(DamageError, match=piece.name):
        recover(run)
    assert {path.name for path in run.glob("0*")} >= set(before)


def test_a_merged_file_that_says_something_else_is_not_taken(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = pa.concat_tables

    def slip(tables: list[pa.Table]) -> pa.Table:
        whole = merge(tables)
        walls = ['{"latency_s":9}', *whole.column("wall").to_pylist()[1:]]
        return whole.set_column(6, whole.schema.field("wall"), [walls])

    monkeypatch.setattr(pa, "concat_tables", slip)
    with pytest.raises(DamageError, match=r"not compacted: .* not those that it was written over"):
        compact(run, piece_events=PIECE)
    assert not (run / segment_index.RECORD).exists() and RunReader(run).verify() == []


def test_a_merged_file_that_was_cut_is_known_by_its_length_alone(run: Path) -> None:
    compact(run, piece_events=PIECE)
    piece = max(run.glob("*-*.parquet"))
    piece.write_bytes(piece.read_bytes()[:-1])
    for look in (recover, lambda folder: RunReader(folder).contents()):
        with pytest.raises(DamageError, match=f"{piece.name}: .* bytes"):
            look(run)


class Slow(Disk):
    """Lets a reader look between any two calls."""

    def __init__(self, look: Iterator[object]) -> None:
        self.look = look

    def link(self, source: Path, target: Path) -> None:
        next(self.look, None)
        DISK.link(source, target)
        next(self.look, None)

    def unlink(self, path: Path) -> None:
        next(self.look, None)
        DISK.unlink(path)
        next(self.look, None)


def test_a_reader_is_not_disturbed(tmp_path: Path, finished: tuple[Path, str, str]) -> None:
    run = Path(shutil.copytree(finished[0], tmp_path / "runs" / "run"))
    expected = list(RunReader(run).events())
    started = iter(RunReader(run).tables())
    rows = [next(started).num_rows]
    seen = []

    def look() -> Iterator[None]:
        for number in count():
            if number % 3:  # a look takes longer than what is looked at
                yield
                continue
            assert list(RunReader(run).events()) == expected
            assert RunReader(run).verify() == []
            seen.append(query.query(tmp_path, "SELECT count(*) AS n FROM events")["n"][0].as_py())
            yield

    compact(run, piece_events=PIECE, disk=Slow(look()))
    rows += [table.num_rows for table in started]
    assert sum(rows) == EVENTS + 1, "a reader that began before goes on in the merged files"
    assert len(seen) > 10 and set(seen) == {EVENTS + 1}


def test_a_run_in_many_files_is_tidied(run: Path, finished: tuple[Path, str, str], tmp_path: Path) -> None:
    tidy(run)
    assert len(list(run.glob("*.parquet"))) == 11, "not worth it"
    digest, head = workload.write(tmp_path / "many", 40, 2)
    tidy(tmp_path / "many")
    assert_same(tmp_path / "many", (tmp_path / "many", digest, head))
    assert len(list((tmp_path / "many").glob("*.parquet"))) == 1


def test_the_report(run: Path) -> None:
    assert compact(run) == Compaction(
        11,
        1,
        *(
            sum(p.size_bytes for p in c.pieces)
            for c in (segment_index.of_chain(RunReader(run).manifests()), recovery.walk(run))
        ),
    )
