"""What an audit of the files says of logs that nobody damaged but that say what cannot be."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.core.errors import DamageError
from replay.log import segment
from replay.log.run_log import IntegrityFinding, RunReader
from replay.log.running_digests import Streams
from replay.log.segment import GENESIS, Piece, Row
from replay.log.tail import TailWriter
from replay.log.verification import verify


def row(number: int, sim_ns: int) -> Row:
    return number, sim_ns, "link_failed", 1, "", '{"dst":1,"src":0}', "{}"


def write(run_dir: Path, *pieces: tuple[int, ...]) -> list[str]:
    """A run whose segments hold events of these times; the names of its data files and its last manifest."""
    run_dir.mkdir()
    through, previous, number, names = Streams(), GENESIS, 0, []
    for times in pieces:
        rows = [row(number + k, sim_ns) for k, sim_ns in enumerate(times)]
        through.add(rows)
        manifest = segment.commit(run_dir, rows, previous, through, final=False)
        previous, number = manifest.hash, number + len(rows)
        names.append(manifest.data_name)
    return [*names, manifest.name]


def backward(number: int, sim_ns: int, before_ns: int) -> str:
    return f"event {number}: its time {sim_ns} ns lies before that of the event before ({before_ns} ns)"


def test_events_may_have_the_same_time(tmp_path: Path) -> None:
    write(tmp_path / "run", (0, 0, 5, 5), (5, 9))
    assert RunReader(tmp_path / "run").verify() == []


def test_time_never_goes_back_inside_a_segment_or_from_one_to_the_next(tmp_path: Path) -> None:
    first, second, _ = write(tmp_path / "run", (0, 7, 3, 9), (8, 8, 2))
    assert RunReader(tmp_path / "run").verify() == [
        IntegrityFinding(first, backward(2, 3, 7)),
        IntegrityFinding(second, backward(4, 8, 9)),
        IntegrityFinding(second, backward(6, 2, 8)),
    ]


def test_a_head_that_the_chain_does_not_hold_is_reported_at_its_end(tmp_path: Path) -> None:
    *_, last = write(tmp_path / "run", (0,), (1,), (2,))
    (finding,) = RunReader(tmp_path / "run").verify("ab" * 32)
    assert finding.file == last and f"does not hold {'ab' * 32}" in finding.problem
    (tmp_path / "empty").mkdir()
    assert {finding.file for finding in RunReader(tmp_path / "empty").verify("ab" * 32)} == {"."}


def test_text_that_is_none_is_no_event_whatever_its_digest(tmp_path: Path) -> None:
    table = pq.read_table(pa.BufferReader(segment.encode([row(0, 0)])))
    ends, broken = pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")
    text = pa.Array.from_buffers(pa.string(), 1, [None, ends, broken])
    data = segment.encode_table(table.set_column(5, segment.SCHEMA.field(5), text))
    piece = Piece("x.parquet", 0, 0, len(data), hashlib.sha256(data).hexdigest(), "x.json")
    (tmp_path / "x.parquet").write_bytes(data)
    with pytest.raises(DamageError, match="not a Parquet file of events"):
        segment.read_rows(tmp_path, piece)


def test_all_files_are_checked_where_nothing_else_is_asked_for(tmp_path: Path) -> None:
    first, *_ = write(tmp_path / "run", (5,), (9,))
    damaged = bytearray((tmp_path / "run" / first).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "run" / first).write_bytes(damaged)
    assert [finding.file for finding in verify(tmp_path / "run")] == [first]
    assert [finding.file for finding in RunReader(tmp_path / "run").verify()] == [first]
    assert verify(tmp_path / "run", since=1) == []  # a reading from the second event on leaves it out


def test_clocks_are_under_the_chain_as_the_events_are(tmp_path: Path) -> None:
    rows, others = [row(0, 0)], [(*row(0, 0)[:6], '{"latency_s":1}')]
    (tmp_path / "run").mkdir()
    through = Streams()
    through.add(others)
    segment.commit(tmp_path / "run", rows, GENESIS, through, final=False)
    (finding,) = verify(tmp_path / "run")
    assert str(finding) == f"{0:020d}.json: the events up to here are not those that it was written over"


def test_a_beginning_that_is_gone_is_missed(tmp_path: Path) -> None:
    first, second, _ = write(tmp_path / "run", (0,), (1,))
    for name in (first, first.replace("parquet", "json")):
        (tmp_path / "run" / name).unlink()
    (finding,) = verify(tmp_path / "run")
    after = second.replace("parquet", "json")
    assert str(finding) == f"{0:020d}.json: missing: {after} is the next one there after the start"


def test_beside_a_broken_chain_only_names_that_no_run_has_are_foreign(tmp_path: Path) -> None:
    _, second, _ = write(tmp_path / "run", (0,), (1,))
    broken = second.replace("parquet", "json")
    (tmp_path / "run" / broken).write_bytes(b"{")
    for name in (".lock", f".{2:020d}.json.1-0.tmp", "notes.txt"):
        (tmp_path / "run" / name).write_bytes(b"")
    assert [finding.file for finding in verify(tmp_path / "run")] == [broken, "notes.txt"]


def write_tail(run_dir: Path, times: tuple[int, ...], digests: Streams) -> str:
    """A run whose tail alone holds events of these times, under the digest that is given; the tail's name."""
    run_dir.mkdir()
    rows = [row(number, sim_ns) for number, sim_ns in enumerate(times)]
    lines, walls = Streams().add(rows)
    writer = TailWriter(run_dir, 0, GENESIS)
    writer.append(0, len(rows), lines, walls, digests.stream)
    writer.close()
    return writer.name


def test_a_tail_is_compared_with_the_digest_that_it_was_written_under(tmp_path: Path) -> None:
    written, other = Streams(), Streams()
    written.add([row(0, 3), row(1, 7)])
    other.add([row(0, 3), row(1, 8)])
    write_tail(tmp_path / "run", (3, 7), written)
    assert verify(tmp_path / "run") == []
    name = write_tail(tmp_path / "other", (3, 7), other)
    problem = "the events up to its end are not those that it was written over"
    assert verify(tmp_path / "other") == [IntegrityFinding(name, problem)]


def test_events_of_a_tail_are_left_out_where_the_reading_begins_behind_them(tmp_path: Path) -> None:
    digests = Streams()
    digests.add([row(0, 7), row(1, 3)])
    name = write_tail(tmp_path / "run", (7, 3), digests)
    assert verify(tmp_path / "run", since=1) == [IntegrityFinding(name, backward(1, 3, 7))]
    assert verify(tmp_path / "run", since=2) == []
