"""What happens between two looks at the disk: a run is compacted, a file goes, another process is faster."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.core import durable
from ingest.core.durable import Lock
from ingest.core.errors import DamageError, ExistsError, NotFoundError
from replay.log import recovery, run_log, segment, verification
from replay.log.compaction import compact
from replay.log.run_log import RunReader, RunWriter
from replay.log.running_digests import Streams
from replay.log.segment import FileDamageError, Piece
from replay.log.segment_index import SegmentIndex
from replay.sql import query, row_cache
from tests.support.histories import history, totals, write


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A finished run in many files, and a compacted copy of it beside it, to be put in its place."""
    run_dir = tmp_path / "store" / "runs" / "a"
    write(run_dir, flush_events=20)
    shutil.copytree(run_dir, tmp_path / "compacted")
    compact(tmp_path / "compacted")
    return run_dir


def compacted_now(run_dir: Path) -> None:
    """Somebody has compacted the run."""
    shutil.rmtree(run_dir)
    shutil.copytree(run_dir.parents[2] / "compacted", run_dir)


def once(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, before: Callable[[], object]) -> None:
    """Let `before` happen at the first call of a function."""
    call, waiting = getattr(where, name), [before]

    def watched(*arguments: Any, **more: Any) -> Any:
        if waiting:
            waiting.pop()()
        return call(*arguments, **more)

    monkeypatch.setattr(where, name, watched)


def test_a_walk_that_meets_a_compaction_answers_from_after_it(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = RunReader(run_dir).chain_head()
    once(monkeypatch, recovery, "_follow", lambda: compacted_now(run_dir))
    found = recovery.walk(run_dir)
    assert found.compacted and found.head == head


def test_a_manifest_that_vanishes_on_the_way_is_no_damage_if_a_compaction_took_it(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(monkeypatch, recovery, "_later", lambda: compacted_now(run_dir))
    (run_dir / f"{0:020d}.json").unlink()
    assert recovery.walk(run_dir).compacted


def test_a_manifest_committed_between_two_looks_is_followed(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = RunReader(run_dir).manifests()
    late, hidden = run_dir / chain[2].name, run_dir / "hidden"
    late.rename(hidden)
    once(monkeypatch, Path, "iterdir", lambda: hidden.rename(late))
    assert RunReader(run_dir).manifests() == chain


def test_a_temporary_file_that_goes_while_it_is_looked_at_is_a_writers(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f".{0:020d}.json.1-0.tmp"
    assert recovery.unlisted(run_dir, [name], recovery.walk(run_dir)) == ((name,), ())


def test_an_audit_that_meets_a_compaction_finds_no_damage(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(monkeypatch, verification, "_chain", lambda: compacted_now(run_dir))
    assert verification.verify(run_dir) == []


def test_an_audit_of_what_cannot_be_listed_says_so(tmp_path: Path) -> None:
    (finding,) = verification.verify(tmp_path / "nothing")
    assert str(finding).startswith(".: cannot be listed")


def test_a_recovery_makes_durable_the_names_up_to_the_store_and_none_beyond(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[Path] = []
    monkeypatch.setattr(recovery, "settle", lambda folder, **_: settled.append(folder))
    recovery.recover(run_dir)
    assert settled == [run_dir, run_dir.parent, run_dir.parents[1]]


@pytest.mark.parametrize("checked", [False, True], ids=["before its files are checked", "after"])
def test_a_query_that_meets_a_compaction_is_answered(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, *, checked: bool
) -> None:
    store, text = run_dir.parents[1], "SELECT count(*) AS n, max(seq) AS last FROM events"
    expected = query.query(store, text).to_pylist()
    once(monkeypatch, query, "_execute", lambda: compacted_now(run_dir))
    if checked:
        monkeypatch.setattr(row_cache.Cache, "check", lambda *_: None)
    assert query.query(store, text).to_pylist() == expected


def test_a_query_beside_runs_that_are_compacted_one_after_the_other_is_answered(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, text = run_dir.parents[1], "SELECT count(*) AS n FROM events"
    other = run_dir.with_name("b")
    shutil.copytree(run_dir, other)
    expected = query.query(store, text).to_pylist()
    answer, waiting = query._execute, [run_dir, other]

    def meeting(*arguments: Any) -> Any:
        if waiting:
            compacted_now(waiting.pop())
        return answer(*arguments)

    monkeypatch.setattr(query, "_execute", meeting)
    assert query.query(store, text).to_pylist() == expected


def test_a_query_whose_files_are_gone_for_good_is_not_asked_for_ever(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = query._stored(run_dir.parents[1])
    monkeypatch.setattr(row_cache.Cache, "check", lambda *_: None)
    monkeypatch.setattr(query, "_stored", lambda _: stored)
    path = min(run_dir.glob("*.parquet"))
    path.unlink()
    with pytest.raises(DamageError, match=f"{path.name}: missing"):
        query.query(run_dir.parents[1], "SELECT count(payload) FROM events")


def test_rows_that_another_process_made_meanwhile_are_parsed_instead(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, text = run_dir.parents[1], "SELECT count(*) AS n FROM decisions"
    monkeypatch.setattr(row_cache, "LEAST_EVENTS", 10)

    def faster(path: Path, writer: Any, **_: Any) -> None:
        raise ExistsError(f"{path}: exists already")

    monkeypatch.setattr(durable, "put_file", faster)
    assert query.query(store, text).to_pylist() == [{"n": 12}]


def test_events_are_read_on_through_a_compaction(run_dir: Path) -> None:
    expected = [event.seq for event in RunReader(run_dir).events()]
    seen = []
    for event in RunReader(run_dir).events():
        seen.append(event.seq)
        if event.seq == 30:
            compacted_now(run_dir)
    assert seen == expected


def test_a_run_that_gains_nothing_is_not_compacted_and_a_damaged_one_refuses(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "one", flush_s=1e9) as writer:
        writer.append(0, *next(history())[1:3])
        writer.finish({})
    assert compact(tmp_path / "one", piece_events=1).files == 2
    path = max((tmp_path / "one").glob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamageError, match=f"not compacted: {path.name}"):
        compact(tmp_path / "one")


def test_a_run_that_cannot_be_opened_is_let_go(run_dir: Path) -> None:
    (run_dir / "stranger").write_text("x")
    with pytest.raises(DamageError, match="stranger"):
        RunWriter.open(run_dir)
    Lock(run_dir / recovery.LOCK).release()  # nobody holds it


def test_a_resumed_run_must_not_end_before_what_is_stored(run_dir: Path) -> None:
    with RunWriter.open(run_dir) as writer:
        for number, (sim_ns, kind, payload, _) in enumerate(history()):
            if number == 40:
                break
            writer.append(sim_ns, kind, payload)
        with pytest.raises(DamageError, match="event 40 is"):
            writer.finish(totals())


def test_a_last_event_that_is_not_the_last_stored_one_is_damage(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "a") as writer:
        writer.append(0, *next(history())[1:3])
        writer.append(0, "run_finished", {"totals": {}})
        writer.append(0, "link_failed", {"src": 0, "dst": 1})
    with RunWriter.open(tmp_path / "a") as writer:
        writer.append(0, *next(history())[1:3])
        with pytest.raises(DamageError, match="event 1 ends the run, but more than that is stored"):
            writer.finish({})


def test_stored_events_are_digested_in_parts_while_they_are_recomputed(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "FLUSH_EVENTS", 7)
    before = RunReader(run_dir).digest()
    with RunWriter.open(run_dir) as writer:
        for sim_ns, kind, payload, _ in history():
            writer.append(sim_ns, kind, payload)
        assert writer.finish(totals(), sim_ns=3600 * 10**9)[0] == before


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_a_payload_that_is_no_json_is_damage_though_its_hashes_fit(tmp_path: Path, text: str) -> None:
    rows = [(0, 0, "link_failed", 1, "", text, "{}")]
    segment.commit(tmp_path, rows, segment.GENESIS, Streams(), final=False)
    with pytest.raises(DamageError, match="event 0: the payload is not JSON"):
        list(RunReader(tmp_path).events())


def test_a_run_that_does_not_start_has_no_header(tmp_path: Path) -> None:
    rows = [(0, 0, "link_failed", 1, "", '{"dst":1,"src":0}', "{}")]
    segment.commit(tmp_path, rows, segment.GENESIS, Streams(), final=False)
    with pytest.raises(NotFoundError, match="before anything was stored"):
        RunReader(tmp_path).header()


def test_a_data_file_of_other_events_is_damage_though_its_digest_fits(tmp_path: Path) -> None:
    rows = [(5, 0, "link_failed", 1, "", '{"dst":1,"src":0}', "{}")]
    made = segment.commit(tmp_path, rows, segment.GENESIS, Streams(), final=False).piece
    lying = Piece(made.data_name, 0, 0, made.size_bytes, made.sha256, made.voucher)
    with pytest.raises(FileDamageError, match="does not hold the events 0 to 0"):
        segment.read_rows(tmp_path, lying)


def test_a_disk_that_cannot_read_a_file_is_damage_of_that_file(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(FileDamageError, match=r"cannot be read \(Input/output error\)"):
        segment.read_file(run_dir / f"{0:020d}.json")


def test_no_rows_leave_a_digest_as_it_was() -> None:
    through, before = Streams(), Streams()
    through.add_table(segment.SCHEMA.empty_table())
    assert (through.stream, through.walls) == (before.stream, before.walls)


def test_nothing_is_committed_in_an_empty_directory(tmp_path: Path) -> None:
    assert recovery.walk(tmp_path) == SegmentIndex((), ())


@pytest.mark.parametrize("place", [1, -1])
def test_a_manifest_that_goes_for_good_while_it_is_read_is_named(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    gone = run_dir / RunReader(run_dir).manifests()[place].name
    once(monkeypatch, verification, "_chain", gone.unlink)
    (finding,) = verification.verify(run_dir)
    assert str(finding) == f"{gone.name}: went away while it was read"


def test_a_record_that_goes_while_it_is_read_is_named(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compacted_now(run_dir)
    once(monkeypatch, verification, "_compacted", (run_dir / "compacted.json").unlink)
    (first, *_) = verification.verify(run_dir)
    assert str(first) == "compacted.json: went away while it was read"


def test_an_interrupt_at_the_end_of_a_commit_commits_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: segment.SegmentManifest) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(segment.SegmentManifest, "hash", property(interrupted))
        with pytest.raises(KeyboardInterrupt), RunWriter.create(tmp_path / "a") as writer:
            writer.append(0, *next(history())[1:3])
    assert RunReader(tmp_path / "a").contents().end == 1
