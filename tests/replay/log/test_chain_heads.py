"""A log that lost its end, or the record of its compaction, is named and never read as a shorter one."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.core.errors import DamageError
from replay.log import chain_heads, recovery
from replay.log.compaction import compact
from replay.log.quarantine import quarantine
from replay.log.run_log import RunReader, RunWriter
from replay.sql.query import query
from tests.support.histories import history, totals, write


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write(tmp_path / "store" / "runs" / "a", flush_events=50)
    return tmp_path / "store" / "runs" / "a"


def last_segment(run: Path) -> None:
    last = max(run.glob("*.json"))
    last.with_suffix(".parquet").unlink()
    last.unlink()


def last_manifest(run: Path) -> None:
    max(run.glob("*.json")).unlink()


def every_segment(run: Path) -> None:
    for path in run.glob("0*"):
        path.unlink()


@pytest.mark.parametrize("lose", [last_segment, last_manifest, every_segment])
def test_a_lost_end_is_named_and_nothing_is_swept(run: Path, lose: Callable[[Path], None]) -> None:
    end = RunReader(run).contents().end
    lose(run)
    left = sorted(path.name for path in run.iterdir())
    said = rf"missing: .*heads/a.json says that the run had {end} events; restore the rest, or move"
    for read in (
        lambda: RunReader(run).contents(),
        lambda: list(RunReader(run).events()),
        lambda: query(run.parents[1], "SELECT count(*) FROM events"),
        lambda: recovery.recover(run),
        lambda: RunWriter.open(run),
    ):
        with pytest.raises(DamageError, match=said):
            read()
    assert RunReader(run).verify() != []
    assert sorted(path.name for path in run.iterdir()) == left
    if lose is not every_segment:
        quarantine(run)
        assert RunReader(run).verify() == [] and 0 < RunReader(run).contents().end < end


def test_the_record_of_an_interrupted_run_holds_what_was_committed(run: Path) -> None:
    other = run.with_name("b")
    with pytest.raises(KeyboardInterrupt), RunWriter.create(other) as writer:
        for sim_ns, kind, payload, _ in list(history())[:30]:
            writer.append(sim_ns, kind, payload)
        raise KeyboardInterrupt
    head = chain_heads.read(other)
    assert head is not None and (head.events, head.head) == (30, RunReader(other).chain_head())
    with RunWriter.open(other) as writer:  # goes on: the record is of an earlier end until it is closed
        for sim_ns, kind, payload, _ in history():
            writer.append(sim_ns, kind, payload)
        writer.flush()
        assert RunReader(other).verify() == []
        writer.finish(totals())
    head = chain_heads.read(other)
    assert head is not None and head.head == RunReader(other).chain_head() and RunReader(other).verify() == []


def test_another_history_of_the_same_length_is_named(run: Path) -> None:
    other = run.parents[2] / "elsewhere" / "runs" / "a"
    write(other, flush_events=40)
    head = chain_heads.path_of(run)
    assert head is not None
    head.write_bytes((other.parents[1] / "heads" / "a.json").read_bytes())
    with pytest.raises(DamageError, match="another history"):
        RunReader(run).contents()
    assert ["another history" in finding.problem for finding in RunReader(run).verify()] == [True]


def test_the_record_may_be_deleted_and_no_bit_of_it_changed(run: Path) -> None:
    path = chain_heads.path_of(run)
    assert path is not None
    whole = path.read_bytes()
    for place in range(0, 8 * len(whole), 7):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(DamageError, match=f"{path}: its bytes"):
            RunReader(run).contents()
        assert [finding.file for finding in RunReader(run).verify()] == ["../../heads/a.json"]
    path.unlink()
    assert RunReader(run).verify() == [] and RunReader(run).finished
    with RunWriter.open(run) as writer:
        for sim_ns, kind, payload, wall in history():
            writer.append(sim_ns, kind, payload, wall=wall)
        writer.finish(totals(), sim_ns=12 * 300 * 10**9)
    assert path.read_bytes() == whole, "made again"


@pytest.mark.parametrize("known", [True, False])
def test_a_lost_record_of_a_compaction_is_named(run: Path, known: bool) -> None:
    compact(run, piece_events=120)
    (run / "compacted.json").unlink()
    if not known:  # a run of an older version
        (run.parents[1] / "heads" / "a.json").unlink()
    with pytest.raises(DamageError, match=r"compacted.json: missing, though 0+-\d+.parquet is there"):
        query(run.parents[1], "SELECT count(*) FROM events")
    assert [finding.file for finding in RunReader(run).verify()] == ["compacted.json"]
    assert sorted(run.glob("*.parquet"))


def test_a_run_that_takes_the_name_of_a_deleted_one_is_another(run: Path) -> None:
    shutil.rmtree(run)
    with RunWriter.create(run) as writer:
        writer.append(*next(history())[:3])
        assert RunReader(run).contents().end == 1
