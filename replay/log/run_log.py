"""The log of a run: a directory of segments that one process appends to and any process reads.

Events are buffered until a second has passed or the caller flushes, then appended to the active tail
(`tail.py`); 5,000 events that are not in a segment yet become one. Events up to the number that `flush`
returned survive kill -9 and a power cut. A run is resumed by re-execution: it is
computed again from its start, every event is compared with the stored one, and only events past the stored
end are written.
"""

import json
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from ingest.core.durable import DISK, Disk, Lock, drop, make_directory
from ingest.core.errors import DamageError, ExistsError, NotFoundError, StorageError
from replay.log import bucket_log, chain_heads, quarantined_messages, recovery, segment, verification
from replay.log.bucket_log import BucketLog
from replay.log.events import MAX_INTEGER, Event, EventError, canonical, check, line, payload_text, upcast
from replay.log.quarantined_messages import QUARANTINED
from replay.log.recovery import recover
from replay.log.running_digests import Row, Streams
from replay.log.segment import FileDamageError, SegmentManifest
from replay.log.segment_index import SegmentIndex
from replay.log.tail import TailWriter
from replay.log.verification import IntegrityFinding

__all__ = ["FLUSH_EVENTS", "FLUSH_S", "Event", "IntegrityFinding", "RunReader", "RunWriter", "recover"]

FLUSH_EVENTS = 5_000
FLUSH_S = 1.0
Json = dict[str, Any]


class RunWriter:
    """Appends the events of one run; made by `create` or `open`; as a context manager it flushes."""

    def __init__(
        self,
        run_dir: Path,
        lock: Lock,
        stored: SegmentIndex,
        disk: Disk,
        flush_events: int,
        flush_s: float,
        bucket: BucketLog | None,
    ):
        self.run_dir = run_dir
        self._bucket = bucket
        self._lock, self._disk = lock, disk
        self._flush_events, self._flush_s = flush_events, flush_s
        self._stored = _stored_rows(run_dir, stored)
        set_aside = quarantined_messages.spans_of(_stored_tables(run_dir, stored))
        self._set_aside = {span.start: span for span in set_aside}  # stored rows that nothing makes again
        self._stored_end, self._final, self._head = stored.end, stored.final, stored.head
        self._sealed = stored.sealed  # events in segments
        self._unsealed: list[Row] = []  # the rows behind them that are in the tail
        self._tail: TailWriter | None = None
        self._tail_name = stored.tail.name if stored.tail else ""
        self._digests = Streams()
        self._repeated: list[Row] = []  # stored rows that were recomputed and are not in `_digests` yet
        self._pending: list[Row] = []
        self._next = 0
        self._last_ns = 0
        self._flushed_at = time.monotonic()
        self._stopped = ""  # reason why nothing may be written any more

    @classmethod
    def create(
        cls, run_dir: Path, *, disk: Disk = DISK, flush_events: int = FLUSH_EVENTS, flush_s: float = FLUSH_S
    ) -> Self:
        """Returns a writer for a new run.

        Raises:
            ExistsError: the directory is there already; it is never written into.
        """
        if (bucket := BucketLog.of(run_dir)) is not None:
            bucket.begin(disk)
        if run_dir.exists():
            raise ExistsError(f"{run_dir}: exists already; resume it or choose another name")
        chain_heads.forget(run_dir, disk=disk)
        make_directory(run_dir, disk=disk)
        return cls(run_dir, _lock(run_dir), SegmentIndex((), ()), disk, flush_events, flush_s, bucket)

    @classmethod
    def open(
        cls, run_dir: Path, *, disk: Disk = DISK, flush_events: int = FLUSH_EVENTS, flush_s: float = FLUSH_S
    ) -> Self:
        """Returns a writer that resumes a run: the caller appends everything again from the first event.

        Left-overs of an interrupted commit are removed first. Stored events are compared, not written. A
        finished run may be opened too: then nothing is written at all.

        Raises:
            NotFoundError: there is no such run.
            LockedError: another process writes to it.
            DamageError: something in the directory is not as it was written.
        """
        if not run_dir.is_dir():
            raise NotFoundError(f"{run_dir}: no such run; `twin runs` lists those that are there")
        lock = _lock(run_dir)
        try:
            if (bucket := BucketLog.of(run_dir)) is not None:
                bucket.begin(disk)
            recovery.sweep(run_dir, disk)
            return cls(run_dir, lock, recovery.walk(run_dir), disk, flush_events, flush_s, bucket)
        except BaseException:
            lock.release()
            raise

    @property
    def replaying(self) -> bool:
        """True while the next event is stored already."""
        return self._next < self._stored_end

    @property
    def durable_through(self) -> int:
        """Last sequence number that survives a power cut; -1 before the first commit."""
        return (self._pending[0][0] if self._pending else max(self._next, self._stored_end)) - 1

    def append(
        self,
        sim_ns: int,
        type: str,  # noqa: A002 - the name of the column
        payload: Json,
        *,
        job: str = "",
        wall: Json | None = None,
    ) -> int:
        """Adds an event and returns its sequence number; the first one (`run_started`) is committed at once.

        Raises:
            EventError: the payload does not fit the type.
            DamageError: on resume, the stored event is another one; the message names its number.
            StorageError: the disk refused, now or before; the writer does not continue after that.
        """
        seq = self._add(sim_ns, type, payload, job, wall)
        late = time.monotonic() - self._flushed_at >= self._flush_s
        enough = self._next - self._sealed >= self._flush_events
        if self._pending and (seq == 0 or late or enough):
            self._commit(seal=seq == 0 or enough)
        return seq

    def quarantine(self, first: int, *, kind: str, client: str, key: str, reason: str) -> int:
        """Sets the events from `first` to the last one aside, also stored ones that were not compared yet.

        Returns the number of the event that says so.

        Raises:
            StorageError: as `append`.
        """
        while self.replaying:
            self._pass_over()
        message = {"first": first, "kind": kind, "client": client, "key": key, "reason": reason}
        return self.append(self._last_ns, QUARANTINED, message)

    def flush(self) -> int:
        """Commits the pending events and returns the last durable sequence number."""
        self._commit(seal=self._next - self._sealed >= self._flush_events)
        return self.durable_through

    def finish(self, totals: Json, *, sim_ns: int | None = None, wall: Json | None = None) -> tuple[str, str]:
        """Ends the run with `run_finished` and returns (digest, chain head), 64 hex digits each.

        `sim_ns` is the end of the simulated time; by default that of the last event.
        """
        self._add(self._last_ns if sim_ns is None else sim_ns, "run_finished", {"totals": totals}, "", wall)
        if self.replaying or (self._next == self._stored_end and not self._final):
            raise DamageError(
                f"{self.run_dir}: event {self._next - 1} ends the run, but more than that is stored"
            )
        self._commit(seal=True, final=True)
        self._final = True
        return self._digests.stream, self._head

    def close(self) -> None:
        """Commits all events as segments, unless a write failed before, and releases the run."""
        try:
            if not self._stopped:
                self._commit(seal=True)
                if self._sealed:
                    chain_heads.write(self.run_dir, self._sealed, self._head, disk=self._disk)
                    if (bucket := self._bucket) is not None:
                        record = chain_heads.record(self.run_dir.name, self._sealed, self._head)
                        self._disk.send(lambda: bucket.close(record))
        finally:
            self._stopped = self._stopped or "the writer is closed"
            if self._tail:
                self._tail.close()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, sim_ns: int, name: str, payload: Json, job: str, wall: Json | None) -> int:
        self._refuse()
        kind = check(name, payload)
        while (span := self._set_aside.get(self._next)) is not None:
            for _ in span:
                self._pass_over()
        if not self._last_ns <= sim_ns <= MAX_INTEGER:
            raise EventError(
                f"{name}: time {sim_ns} ns is before the last event's {self._last_ns} ns or too large"
            )
        seq, text = self._next, payload_text(payload)
        row = (seq, sim_ns, name, kind.version, job, text, canonical(wall) if wall else "{}")
        if self.replaying:
            self._compare(row)
        elif self._final:
            raise DamageError(
                f"{self.run_dir}: the run is finished; event {seq} ({name}) does not belong to it"
            )
        else:
            self._pending.append(row)
        self._next, self._last_ns = seq + 1, sim_ns
        return seq

    def _refuse(self) -> None:
        if self._stopped:
            raise StorageError(
                f"{self.run_dir}: {self._stopped}; resume the run to go on from what is durable"
            )

    def _pass_over(self) -> None:
        """Takes the next stored row without one to compare it with."""
        stored = next(self._stored)
        self._repeat(stored)
        self._next, self._last_ns = stored[0] + 1, stored[1]

    def _compare(self, row: Row) -> None:
        stored = next(self._stored)
        if stored[:6] != row[:6]:
            raise DamageError(
                f"{self.run_dir}: event {row[0]} is {stored[2]} at {stored[1]} ns in the log, computed again "
                f"{row[2]} at {row[1]} ns with other content: code, traces or configuration have changed"
            )
        self._repeat(stored)

    def _repeat(self, stored: Row) -> None:
        self._repeated.append(stored)  # with its own wall-clock figures, which are not recomputed
        if stored[0] >= self._sealed:
            self._unsealed.append(stored)
        if len(self._repeated) >= FLUSH_EVENTS:
            self._digest_repeated()

    def _digest_repeated(self) -> None:
        self._digests.add(self._repeated)
        self._repeated = []

    def _commit(self, *, seal: bool, final: bool = False) -> None:
        """Makes the pending events durable: in the tail, or with those of the tail as a segment (`seal`).

        The tail that an earlier process left is sealed with the first new events, never appended to.
        """
        self._refuse()
        self._digest_repeated()
        if self._pending or (seal and self._unsealed and not self.replaying):
            self._stopped = "a write failed before"  # until the commit ends: recovery removes half of one
            lines, walls = self._digests.add(self._pending)
            left = bool(self._unsealed) and self._tail is None
            self._unsealed += self._pending
            if seal or left or self._bucket:  # a bucket appends to nothing
                self._seal(final)
            else:
                self._append(self._pending[0][0], len(self._pending), lines, walls)
            self._pending = []
            self._stopped = ""  # last: an interrupt before it must not commit the same events again
        self._flushed_at = time.monotonic()

    def _seal(self, final: bool) -> None:
        rows, digests = self._unsealed, self._digests
        store = self._bucket.append if self._bucket else None
        manifest = segment.commit(
            self.run_dir, rows, self._head, digests, final=final, disk=self._disk, store=store
        )
        self._head, self._sealed, self._unsealed = manifest.hash, manifest.last_seq + 1, []
        if self._tail:
            self._tail.close()
        if self._tail_name:
            drop(self.run_dir / self._tail_name, disk=self._disk)
        self._tail, self._tail_name = None, ""

    def _append(self, first: int, count: int, lines: bytes, walls: bytes) -> None:
        if self._tail is None:
            self._tail = TailWriter(self.run_dir, first, self._head, disk=self._disk)
            self._tail_name = self._tail.name
        self._tail.append(first, count, lines, walls, self._digests.stream)


class RunReader:
    """Reads the committed segments of a run; never blocks a writer and is never blocked.

    Damage is raised where the log is read, not here: a store lists a damaged run as it does the others.

    Raises:
        NotFoundError: there is no such run. UsageError, StorageError: its bucket cannot be read.
    """

    def __init__(self, run_dir: Path):
        self.unfetched: DamageError | None = None
        """Why what the run has in its bucket could not be brought here."""
        try:
            bucket_log.bring_up_to_date(run_dir)
        except DamageError as error:
            self.unfetched = error
        if not run_dir.is_dir():
            raise NotFoundError(f"{run_dir}: no such run; `twin runs` lists those that are there")
        self.run_dir = run_dir

    def contents(self) -> SegmentIndex:
        """Returns the chain of committed segments and the files that hold their events.

        Raises:
            DamageError: a manifest is missing, changed or does not follow from the one before.
        """
        if self.unfetched is not None:
            raise self.unfetched
        return recovery.walk(self.run_dir)

    def manifests(self) -> tuple[SegmentManifest, ...]:
        """Returns the manifests of all committed segments, chained from the first one."""
        return self.contents().chain

    def tables(self) -> Iterator[pa.Table]:
        """Yields the events as stored, in Arrow tables (columns of `segment.SCHEMA`), digests checked."""
        found = self.contents()
        done = 0  # events given out
        while done < found.end:
            if found.tail and done >= found.sealed:
                yield found.tail.table.slice(done - found.sealed)
                return
            piece = next(piece for piece in found.pieces if piece.last_seq >= done)
            try:
                table = segment.read_rows(self.run_dir, piece)
            except FileDamageError:
                now = self.contents()
                if now == found:
                    raise
                found = now  # compacted meanwhile: the rest is in other files
                continue
            yield table.slice(done - piece.first_seq)
            done = piece.last_seq + 1

    def events(self) -> Iterator[Event]:
        """Yields the events of the run in order, payloads in their current version; not those that were set
        aside with the message that they followed from (`replay.log.quarantined_messages`)."""
        spans = quarantined_messages.spans_of(self.tables())
        for table in quarantined_messages.without(self.tables(), spans):
            for row in segment.rows_of(table):
                yield _event(row, self.run_dir)

    def lines(self) -> Iterator[bytes]:
        """Yields the canonical line of every event, over which the digest is taken."""
        for table in self.tables():
            for row in segment.rows_of(table):
                yield line(*row[:6])

    def header(self) -> Json:
        """Returns the payload of `run_started`.

        Raises:
            NotFoundError: the run was killed before its first event was durable.
        """
        rows = (row for table in self.tables() for row in segment.rows_of(table))
        first = next((_event(row, self.run_dir) for row in rows), None)
        if first is None or first.type != "run_started":
            raise NotFoundError(
                f"{self.run_dir}: the run was stopped before anything was stored; start it again"
            )
        return first.payload

    @property
    def finished(self) -> bool:
        """True if the run ended."""
        return self.contents().final

    def digest(self) -> str:
        """Returns the SHA-256 over the canonical lines: the identity of the run, whatever its segments."""
        through = Streams()
        for table in self.tables():
            through.add_table(table)
        return through.stream

    def chain_head(self) -> str:
        """Returns the SHA-256 of the last manifest; kept elsewhere, it proves any later rewrite.

        Compaction does not change it.
        """
        return self.contents().head

    def verify(self, chain_head: str | None = None, *, since: int = 0) -> list[IntegrityFinding]:
        """Lists everything in the directory that is not as it was written; empty: intact.

        With `chain_head` (kept elsewhere) a cut tail and a rewritten history are detected too. The whole
        chain is checked, and the events from `since` on.
        """
        findings = verification.verify(self.run_dir, chain_head, since=since)
        bucket = BucketLog.of(self.run_dir)
        findings += [IntegrityFinding(*fault) for fault in (bucket.faults() if bucket else ())]
        if self.unfetched is not None and not findings:
            findings.append(IntegrityFinding(".", str(self.unfetched)))
        return findings


def _lock(run_dir: Path) -> Lock:
    return Lock(run_dir / recovery.LOCK)


def _stored_tables(run_dir: Path, stored: SegmentIndex) -> Iterator[pa.Table]:
    yield from (segment.read_rows(run_dir, piece) for piece in stored.pieces)
    if stored.tail:
        yield stored.tail.table


def _stored_rows(run_dir: Path, stored: SegmentIndex) -> Iterator[Row]:
    tables = (segment.read_rows(run_dir, piece) for piece in stored.pieces)
    return chain(chain.from_iterable(map(segment.rows_of, tables)), stored.tail.rows if stored.tail else ())


def _event(row: Row, run_dir: Path) -> Event:
    seq, sim_ns, name, version, job, payload, wall = row
    where = f"{run_dir} event {seq}"
    try:
        fields, clock = json.loads(payload), json.loads(wall)
    except (ValueError, RecursionError) as error:
        raise DamageError(f"{where}: the payload is not JSON ({error})") from error
    version, fields = upcast(name, version, fields, where)
    return Event(seq, sim_ns, name, version, job, fields, clock)
