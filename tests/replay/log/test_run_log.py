"""Writing, reading and resuming a run."""

import errno
import hashlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.core.durable import Disk
from ingest.core.errors import DamageError, ExistsError, NotFoundError, StorageError
from replay.log import run_log
from replay.log.events import MAX_INTEGER, EventError
from replay.log.run_log import RunReader, RunWriter, recover
from replay.log.segment import GENESIS
from tests.support.histories import history, started, totals, write

END_NS = 3600 * 10**9


def play(writer: RunWriter, stop: int | None = None, change: int | None = None) -> tuple[str, str] | None:
    """Append the made-up run, up to event `stop`; event `change` gets another content."""
    for number, (sim_ns, kind, payload, wall) in enumerate(history()):
        if number == stop:
            return None
        fields: dict[str, Any] = payload
        if number == change:
            fields = {**payload, **({"number": 99} if "number" in payload else {"sampled_ns": 1})}
        writer.append(sim_ns, kind, fields, wall=wall)
    return writer.finish(totals(), sim_ns=END_NS)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    digest, head = write(tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    stored = list(reader.events())
    expected = [*history(), (END_NS, "run_finished", {"totals": totals()}, {})]
    assert [(e.sim_ns, e.type, e.payload, e.wall) for e in stored] == expected
    assert [e.seq for e in stored] == list(range(len(stored)))
    assert {e.version for e in stored} == {1}
    assert reader.header() == started()
    assert reader.finished
    assert reader.digest() == digest
    assert reader.chain_head() == head
    assert reader.verify(head) == []


def test_the_digest_is_over_the_canonical_lines(tmp_path: Path) -> None:
    digest, _ = write(tmp_path / "run")
    lines = b"".join(RunReader(tmp_path / "run").lines())
    assert hashlib.sha256(lines).hexdigest() == digest
    assert lines.startswith(b'{"job":"","payload":{"checkpoint":null,')


def test_the_digest_does_not_depend_on_segments_or_the_wall_clock(tmp_path: Path) -> None:
    runs = {size: write(tmp_path / str(size), flush_events=size) for size in (1, 7, 10_000)}
    assert len({digest for digest, _ in runs.values()}) == 1
    assert len({head for _, head in runs.values()}) == 3
    assert len(RunReader(tmp_path / "1").manifests()) == 284
    assert len(RunReader(tmp_path / "10000").manifests()) == 2, "the first event, then all others"
    with RunWriter.create(tmp_path / "other") as writer:
        for sim_ns, kind, payload, _ in history():
            writer.append(sim_ns, kind, payload, wall={"latency_s": 123.0})
        assert writer.finish(totals(), sim_ns=END_NS)[0] == runs[1][0]


FAILED = ("link_failed", {"src": 0, "dst": 1})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What writers take for the time, in seconds."""
    now = [0.0]
    monkeypatch.setattr(run_log, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_second_passes_and_the_events_are_durable(tmp_path: Path, clock: list[float]) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        for now_s, durable in ((0.0, 0), (0.99, 0), (1.0, 2), (1.99, 2), (2.0, 4)):
            clock[0] = now_s
            writer.append(0, *FAILED)
            assert writer.durable_through == durable
        writer.append(0, *FAILED)
        assert writer.flush() == 5 == writer.durable_through
        assert writer.flush() == 5, "nothing new"


def test_five_thousand_events_are_durable_within_the_second(tmp_path: Path, clock: list[float]) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        durable = [(writer.append(0, *FAILED), writer.durable_through)[1] for _ in range(5001)]
    assert durable == [0] * 5000 + [5000]


@pytest.mark.parametrize("stop", [1, 2, 100, 282])
def test_a_resumed_run_is_the_same_run(tmp_path: Path, stop: int) -> None:
    whole = write(tmp_path / "whole")[0]
    with RunWriter.create(tmp_path / "run", flush_events=10) as writer:
        assert play(writer, stop) is None
    assert not RunReader(tmp_path / "run").finished
    with RunWriter.open(tmp_path / "run") as writer:
        assert writer.replaying
        assert writer.durable_through == stop - 1
        result = play(writer)
        assert result is not None
        assert not writer.replaying
    assert result[0] == whole == RunReader(tmp_path / "run").digest()
    assert result[1] == RunReader(tmp_path / "run").chain_head()


def test_a_finished_run_can_be_recomputed_but_not_changed(tmp_path: Path) -> None:
    result = write(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != ".lock"}
    with RunWriter.open(tmp_path / "run") as writer:
        assert play(writer) == result
    with RunWriter.open(tmp_path / "run") as writer:
        play(writer)
        with pytest.raises(DamageError, match="the run is finished"):
            writer.append(END_NS, "link_failed", {"src": 0, "dst": 1})
    assert before == {
        path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != ".lock"
    }


@pytest.mark.parametrize("change", [2, 3, 50, 99])
def test_a_different_event_on_resume_is_named(tmp_path: Path, change: int) -> None:
    kinds = [kind for _, kind, _, _ in history()]
    times = [sim_ns for sim_ns, _, _, _ in history()]
    change = next(n for n in range(change, 284) if kinds[n] in ("triggered", "decided", "link_observed"))
    with RunWriter.create(tmp_path / "run") as writer:
        play(writer, 150)
    what = f"{kinds[change]} at {times[change]} ns"
    message = f"event {change} is {what} in the log, computed again {what} with other content"
    with RunWriter.open(tmp_path / "run") as writer, pytest.raises(DamageError, match=message):
        play(writer, change=change)
    assert RunReader(tmp_path / "run").verify() == []
    assert len(list(RunReader(tmp_path / "run").events())) == 150


def test_a_run_that_ends_earlier_on_resume_is_refused(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        play(writer, 150)
    with RunWriter.open(tmp_path / "run") as writer:
        play(writer, 20)
        with pytest.raises(DamageError, match="event 20"):
            writer.finish(totals())


def test_a_run_without_a_durable_event_starts_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with RunWriter.open(tmp_path / "run") as writer:
        assert not writer.replaying
        assert writer.durable_through == -1
        assert play(writer) is not None
    assert RunReader(tmp_path / "run").digest() == write(tmp_path / "whole")[0]


def test_an_empty_reader(tmp_path: Path) -> None:
    reader = RunReader(tmp_path)
    assert list(reader.events()) == []
    assert not reader.finished
    assert reader.chain_head() == GENESIS
    assert reader.digest() == hashlib.sha256().hexdigest()
    with pytest.raises(NotFoundError, match="start it again"):
        reader.header()


def test_a_run_is_created_once(tmp_path: Path) -> None:
    write(tmp_path / "run")
    with pytest.raises(ExistsError, match="resume it or choose another name"):
        RunWriter.create(tmp_path / "run")


class NoNames(Disk):
    """Makes directories, and cannot make their names durable."""

    def fsync_directory(self, path: Path) -> None:
        raise OSError(errno.EIO, "broken", path)


class NoDirectories(Disk):
    """Has no room for a directory."""

    def mkdir(self, path: Path) -> None:
        raise OSError(errno.ENOSPC, "full", path)


@pytest.mark.parametrize("disk", [NoDirectories(), NoNames()])
def test_a_run_begins_when_its_directory_is_durable(tmp_path: Path, disk: Disk) -> None:
    with pytest.raises(StorageError):
        RunWriter.create(tmp_path / "run", disk=disk)
    assert not list(tmp_path.glob("run/*"))  # not even a lock


def test_what_must_not_be_written_is_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.append(10, "run_started", started())
        for sim_ns, kind, payload in [
            (9, "link_failed", {"src": 0, "dst": 1}),
            (2**63, "link_failed", {"src": 0, "dst": 1}),
            (10, "link_failed", {"src": 0}),
            (10, "link_burnt", {}),
            (10, "domain_slowed", {"domain": 0, "factor": float("nan")}),
        ]:
            with pytest.raises(EventError):
                writer.append(sim_ns, kind, payload)
        assert writer.append(10, "link_failed", {"src": 0, "dst": 1}) == 1
        writer.finish({})
    assert RunReader(tmp_path / "run").verify() == []


def test_five_thousand_events_are_committed_unasked(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", flush_s=1e9) as writer:
        writer.append(0, "run_started", started())
        for number in range(5_000):
            assert writer.durable_through == 0
            writer.append(number, "link_failed", {"src": 0, "dst": 1})
        assert writer.durable_through == 5_000
    assert [manifest.rows for manifest in RunReader(tmp_path / "run").manifests()] == [1, 5_000]


def test_time_may_reach_its_largest_number(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.append(MAX_INTEGER, "run_started", started())
        writer.append(MAX_INTEGER, "link_failed", {"src": 0, "dst": 1})
    assert [event.sim_ns for event in RunReader(tmp_path / "run").events()] == [MAX_INTEGER] * 2


def test_a_finished_run_takes_no_event_more(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.append(0, "run_started", started())
        writer.finish({})
        with pytest.raises(DamageError, match=r"the run is finished; event 2 \(link_failed\)"):
            writer.append(5, "link_failed", {"src": 0, "dst": 1})


def test_another_event_on_resume_is_reported_with_both_types_and_times(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.append(0, "run_started", started())
        writer.append(30, "link_failed", {"src": 0, "dst": 1})
    with RunWriter.open(tmp_path / "run") as writer:
        writer.append(0, "run_started", started())
        message = "event 1 is link_failed at 30 ns in the log, computed again link_restored at 40 ns"
        with pytest.raises(DamageError, match=message):
            writer.append(40, "link_restored", {"src": 0, "dst": 1})


def test_a_closed_writer_writes_no_more(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", flush_s=1e9)
    writer.append(0, "run_started", started())
    writer.append(0, "link_failed", {"src": 0, "dst": 1})
    writer.close()
    writer.close()
    with pytest.raises(StorageError, match="the writer is closed"):
        writer.append(0, "link_failed", {"src": 0, "dst": 1})
    assert len(list(RunReader(tmp_path / "run").events())) == 2, "what was pending was kept"


def test_an_error_of_the_caller_keeps_what_was_appended(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), RunWriter.create(tmp_path / "run", flush_s=1e9) as writer:
        play(writer, 30)
        raise RuntimeError
    assert len(list(RunReader(tmp_path / "run").events())) == 30


def test_recovery_of_a_clean_run_removes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "run")
    assert recover(tmp_path / "run") == ()


def test_the_digest_is_the_same_in_another_process_with_another_hash_seed(
    tmp_path: Path, repository: Path
) -> None:
    program = (
        "import sys, pathlib; from tests.support import histories; "
        "print(histories.write(pathlib.Path(sys.argv[1]))[0])"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / seed)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(repository)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(digests) == 1
    assert digests.pop().strip() == write(tmp_path / "here")[0]
