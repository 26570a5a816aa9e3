"""The active tail: its bytes, what a crash leaves of it, and damage, which is never taken for a crash."""

import hashlib
import random
import zlib
from pathlib import Path

import pytest

from ingest.core.errors import DamageError, ExistsError
from replay.log import tail
from replay.log.events import line
from replay.log.run_log import RunReader, RunWriter, recover
from replay.log.segment import GENESIS
from replay.sql import query
from tests.support import crash_workload as workload

EVENTS = 12


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A run whose writer ended without closing it: the first event in a segment, eleven in four frames."""
    return killed_run(tmp_path / "store" / "runs" / "killed")


def killed_run(run_dir: Path) -> Path:
    writer = RunWriter.create(run_dir, flush_events=10**9, flush_s=10**9)
    for number in range(EVENTS):
        writer.append(*workload.event(number))
        if number % 3 == 2:
            writer.flush()
    writer._lock.release()
    return run_dir


def the_tail(run_dir: Path) -> Path:
    (path,) = run_dir.glob("*.tail")
    return path


def test_the_bytes_of_a_frame(tmp_path: Path) -> None:
    rows = [
        (4, 7, "link_failed", 1, "job", '{"dst":1,"src":0}', "{}"),
        (5, 7, "link_restored", 1, "", "{}", "[]"),
    ]
    lines, stream = b"".join(line(*row[:6]) for row in rows), hashlib.sha256(b"stream").hexdigest()
    writer = tail.TailWriter(tmp_path, 4, GENESIS)
    writer.append(4, 2, lines, b"{}\n[]\n", stream)
    writer.close()
    data = (tmp_path / f"{4:020d}.tail").read_bytes()
    head, body = data[: tail.HEAD_BYTES], data[tail.HEAD_BYTES :]
    assert body == lines + b"{}\n[]\n"
    start = f"frame {4:020d} {2:010d} {len(body):012d} {stream} ".encode()
    link = hashlib.sha256(GENESIS.encode() + start + body).hexdigest()
    assert head == start + f"{link} {zlib.crc32(start + link.encode()):08x}\n".encode()
    read = tail.read_tail(tmp_path / f"{4:020d}.tail", 4, GENESIS)
    assert list(read.rows) == rows and read.size_bytes == len(data) and read.stream == stream


def test_a_tail_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.tail").write_bytes(b"")
    with pytest.raises(ExistsError, match="never overwritten"):
        tail.TailWriter(tmp_path, 0, GENESIS)


def test_what_is_in_the_tail_is_read_audited_queried_and_resumed(killed: Path, tmp_path: Path) -> None:
    reader = RunReader(killed)
    assert [event.seq for event in reader.events()] == list(range(EVENTS))
    assert reader.verify() == [] and not reader.finished
    assert reader.contents().stream == reader.digest()
    rows = query.query(tmp_path / "store", "SELECT count(*) AS n, max(seq) AS last FROM events").to_pylist()
    assert rows == [{"n": EVENTS, "last": EVENTS - 1}]
    assert recover(killed) == () and the_tail(killed).exists()
    whole = workload.write(tmp_path / "whole", EVENTS, 5)[0]
    assert workload.write(killed, EVENTS, 10**6)[0] == whole
    assert not list(killed.glob("*.tail")) and RunReader(killed).verify() == []


def test_a_run_that_is_resumed_and_stopped_before_its_end_keeps_its_tail(killed: Path) -> None:
    before = the_tail(killed).read_bytes()
    with RunWriter.open(killed) as writer:
        for number in range(EVENTS - 2):
            writer.append(*workload.event(number))
        assert writer.replaying and writer.durable_through == EVENTS - 1
    assert the_tail(killed).read_bytes() == before
    assert len(list(RunReader(killed).events())) == EVENTS


def test_closing_leaves_segments_only(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        for number in range(EVENTS):
            writer.append(*workload.event(number))
            writer.flush()
        assert len(list((tmp_path / "run").glob("*.tail"))) == 1
    assert not list((tmp_path / "run").glob("*.tail"))
    assert [m.rows for m in RunReader(tmp_path / "run").manifests()] == [1, EVENTS - 1]


def test_cut_anywhere_whole_frames_are_kept_and_the_rest_is_no_damage(killed: Path) -> None:
    path = the_tail(killed)
    whole, ends = path.read_bytes(), []
    for length in range(0, len(whole), 1 if workload.EFFORT > 1 else 23):
        path.write_bytes(whole[:length])
        count = len(list(RunReader(killed).events()))
        if count not in ends:
            ends.append(count)
        assert RunReader(killed).verify() == []
        workload.tally("damage", 1)
    assert ends == [1, 3, 6, 9], "a frame at a time"


@pytest.mark.parametrize("size", [1, 50, 189, 190, 191, 400, 5000])
def test_zeros_and_a_part_of_a_frame_behind_the_end_are_left_by_a_crash(killed: Path, size: int) -> None:
    path = the_tail(killed)
    whole = path.read_bytes()
    for rest in (
        bytes(size),
        whole[-1500:][: min(size, 189)] if size < 190 else bytes(size),
        b"frame 0" + bytes(size),
    ):
        path.write_bytes(whole + rest)
        assert len(list(RunReader(killed).events())) == EVENTS
        assert RunReader(killed).verify() == []


def test_any_flipped_bit_is_damage_and_not_the_end(killed: Path) -> None:
    path = the_tail(killed)
    whole = path.read_bytes()
    head = range(0, 8 * tail.HEAD_BYTES, 1 if workload.EFFORT > 1 else 3)
    last = range(
        8 * (len(whole) - 300), 8 * len(whole), 1 if workload.EFFORT > 1 else 5
    )  # of the last frame, which has none behind it
    drawn = random.Random(1).sample(range(8 * len(whole)), 200 * workload.EFFORT)
    for place in {*head, *last, *drawn}:
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        assert {finding.file for finding in RunReader(killed).verify()} == {path.name}, place
        with pytest.raises(DamageError, match=path.name):
            list(RunReader(killed).events())
        workload.tally("damage", 1)


def test_garbage_behind_the_end_is_damage(killed: Path) -> None:
    path = the_tail(killed)
    path.write_bytes(path.read_bytes() + b"garbage " * 40)
    (finding,) = RunReader(killed).verify()
    assert finding.file == path.name and "not the head of a frame" in finding.problem
    with pytest.raises(DamageError, match="not the head"):
        recover(killed)


def test_a_frame_of_another_run_or_place_does_not_follow(killed: Path, tmp_path: Path) -> None:
    path = the_tail(killed)
    whole = path.read_bytes()
    second = whole.index(b"frame ", 10)
    path.write_bytes(whole[second:])
    assert "does not follow" in RunReader(killed).verify()[0].problem
    path.write_bytes(whole + whole[second:])
    assert "does not follow" in RunReader(killed).verify()[0].problem
    with RunWriter.create(tmp_path / "other") as writer:
        writer.append(1, *workload.event(0)[1:])  # the same header at another time: another chain
        writer.append(*workload.event(1))
        writer.flush()
        path.write_bytes(the_tail(tmp_path / "other").read_bytes())
    assert "does not follow" in RunReader(killed).verify()[0].problem


def test_frames_that_say_something_else_are_found_though_every_link_is_right(tmp_path: Path) -> None:
    bad = [
        b'{"job":"","payload":{},"seq":5,"sim_ns":0,"type":"link_failed","version":1}\n',
        b"{}\n",
        b"\xff\n",
    ]
    for number, lines in enumerate(bad):
        folder = tmp_path / str(number)
        folder.mkdir()
        writer = tail.TailWriter(folder, 0, GENESIS)
        writer.append(0, 1, lines, b"{}\n", "0" * 64)
        writer.close()
        with pytest.raises(DamageError, match="does not hold the events 0 to 0"):
            list(RunReader(folder).events())


def test_the_segment_before_a_tail_cannot_vanish(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    writer = RunWriter.create(run_dir, flush_events=5, flush_s=10**9)
    for number in range(8):
        writer.append(*workload.event(number))
    writer.flush()
    writer._lock.release()
    for ending in ("json", "parquet"):
        (run_dir / f"{1:020d}.{ending}").rename(tmp_path / ending)
    assert f"missing, though {6:020d}.tail is there" in str(RunReader(run_dir).verify()[0])
    with pytest.raises(DamageError, match="missing, though"):
        list(RunReader(run_dir).events())


@pytest.mark.parametrize("made", ["directory", "link"])
def test_a_directory_or_a_link_in_its_place(killed: Path, tmp_path: Path, made: str) -> None:
    path = the_tail(killed)
    path.rename(tmp_path / "elsewhere")
    path.mkdir() if made == "directory" else path.symlink_to(tmp_path / "elsewhere")
    assert [str(finding) for finding in RunReader(killed).verify()] == [f"{path.name}: not a regular file"]


def test_a_tail_whose_events_are_in_a_segment_is_swept(killed: Path, tmp_path: Path) -> None:
    old = the_tail(killed).read_bytes()
    name = the_tail(killed).name
    workload.write(killed, EVENTS, 10**6)
    (killed / name).write_bytes(old)  # the removal was lost in a power cut
    assert RunReader(killed).verify() == []
    assert recover(killed) == (name,)
