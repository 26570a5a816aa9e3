"""Sinks for the events of a run: a new log, memory, or comparison with a stored log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from ingest.core.errors import DamageError
from replay.log.events import EVENT_TYPES, Event, canonical
from replay.log.fold import Fold
from replay.log.run_log import RunWriter

Json = dict[str, Any]
Totals = tuple[str, str]
"""(digest, chain head) of a finished run."""


class Sink(Protocol):
    """Receives the events of a run in order; a `RunWriter` is one."""

    def append(
        self, sim_ns: int, kind: str, payload: Json, /, *, job: str = "", wall: Json | None = None
    ) -> int:
        """Adds an event and returns its number; `wall` holds wall-clock figures, outside the digest."""
        ...

    def finish(self, totals: Json, *, sim_ns: int | None = None, wall: Json | None = None) -> Totals:
        """Adds the last event, `run_finished`."""
        ...


class LogSink:
    """Writes a new log, made at the first decision, so that a run that cannot start leaves nothing.

    With `begins_at_flush` it is made at the first flush, too: a service acknowledges what clients send when
    it has flushed, and a run whose jobs have all ended takes observations and makes no decision.
    """

    def __init__(self, run_dir: Path, *, begins_at_flush: bool = False) -> None:
        self._run_dir, self._begins_at_flush = run_dir, begins_at_flush
        self._buffered: list[tuple[int, str, Json, str, Json | None]] = []
        self._writer: RunWriter | None = None

    def append(
        self, sim_ns: int, kind: str, payload: Json, /, *, job: str = "", wall: Json | None = None
    ) -> int:
        """Buffers events until the first decision, then writes through."""
        if self._writer is not None:
            return self._writer.append(sim_ns, kind, payload, job=job, wall=wall)
        self._buffered.append((sim_ns, kind, payload, job, wall))
        if kind == "decided":
            self._begin().flush()  # from here on the run can be resumed
        return len(self._buffered) - 1

    def quarantine(self, first: int, *, kind: str, client: str, key: str, reason: str) -> int:
        """Sets the events from `first` on aside: `RunWriter.quarantine`."""
        writer = self._begin() if self._writer is None else self._writer
        return writer.quarantine(first, kind=kind, client=client, key=key, reason=reason)

    def _begin(self) -> RunWriter:
        """Makes the log, with the events so far."""
        self._writer = writer = RunWriter.create(self._run_dir)
        for at_ns, type_, fields, whose, clock in self._buffered:
            writer.append(at_ns, type_, fields, job=whose, wall=clock)
        return writer

    def finish(self, totals: Json, *, sim_ns: int | None = None, wall: Json | None = None) -> Totals:
        """Ends the log."""
        if self._writer is None and self._begins_at_flush:
            self._begin()
        assert self._writer is not None, "a world ends only after its first decision"
        return self._writer.finish(totals, sim_ns=sim_ns, wall=wall)

    def flush(self) -> None:
        """Make the events so far durable, if the log has begun or begins here."""
        if self._writer is None and self._begins_at_flush and self._buffered:
            self._begin()
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Commits the events so far and releases the log, also after a failure."""
        if self._writer is not None:
            self._writer.close()


class Collect:
    """Keeps the events of a run in memory; writes nothing."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(
        self, sim_ns: int, kind: str, payload: Json, /, *, job: str = "", wall: Json | None = None
    ) -> int:
        """Keeps one event."""
        version = EVENT_TYPES[kind].version
        self.events.append(Event(len(self.events), sim_ns, kind, version, job, payload, wall or {}))
        return len(self.events) - 1

    def finish(self, totals: Json, *, sim_ns: int | None = None, wall: Json | None = None) -> Totals:
        """Keeps the last event."""
        assert sim_ns is not None
        self.append(sim_ns, "run_finished", {"totals": totals})
        return "", ""


class Watched:
    """Passes events on to a sink and shows each to a fold when the sink has taken it."""

    def __init__(self, sink: Sink, fold: Fold) -> None:
        self._sink, self._fold = sink, fold
        self._next = 0

    def append(
        self, sim_ns: int, kind: str, payload: Json, /, *, job: str = "", wall: Json | None = None
    ) -> int:
        """Adds one event."""
        seq = self._sink.append(sim_ns, kind, payload, job=job, wall=wall)
        self._next = seq + 1
        self._fold.add(Event(seq, sim_ns, kind, EVENT_TYPES[kind].version, job, payload, wall or {}))
        return seq

    def finish(self, totals: Json, *, sim_ns: int | None = None, wall: Json | None = None) -> Totals:
        """Adds the last event; the fold sees it first, since nothing can be added behind it."""
        assert sim_ns is not None
        version = EVENT_TYPES["run_finished"].version
        self._fold.add(Event(self._next, sim_ns, "run_finished", version, "", {"totals": totals}, wall or {}))
        return self._sink.finish(totals, sim_ns=sim_ns, wall=wall)


class DivergenceError(DamageError):
    """A re-execution does not reproduce the log; `seq` is the first event that differs."""

    def __init__(self, run: str, seq: int, what: str) -> None:
        super().__init__(f"{run}: event {seq} differs from its re-execution: {what}")
        self.seq = seq
        self.what = what


class Compare:
    """Compares a re-execution with the stored events of a run, one by one; writes nothing."""

    def __init__(
        self, run: str, stored: Iterator[Event], *, until: int | None = None, partial: bool = False
    ) -> None:
        self.run = run
        self._stored = stored
        self._until = until
        self._partial = partial  # the log may end before the run does
        self.compared = 0

    def append(
        self, sim_ns: int, kind: str, payload: Json, /, *, job: str = "", wall: Json | None = None
    ) -> int:
        """Compares one event.

        Raises:
            DivergenceError: it is not the stored one.
            Reached: it was the last one of interest, or nothing more is stored of a run that has not ended.
        """
        event = next(self._stored, None)
        if event is None and self._partial:
            raise Reached
        if event is None:
            raise DivergenceError(
                self.run, self.compared, f"the log ends here, the re-execution goes on with {kind}"
            )
        what = difference(event, sim_ns, kind, payload, job)
        if what is not None:
            raise DivergenceError(self.run, event.seq, what)
        self.compared += 1
        if event.seq == self._until:
            raise Reached
        return event.seq

    def finish(self, totals: Json, *, sim_ns: int | None = None, wall: Json | None = None) -> Totals:
        """Compares the last event; the log must end with it."""
        assert sim_ns is not None
        self.append(sim_ns, "run_finished", {"totals": totals})
        event = next(self._stored, None)
        if event is not None:
            raise DivergenceError(
                self.run, event.seq, f"the log goes on with {event.type}, the re-execution has ended"
            )
        return "", ""


class Reached(Exception):  # noqa: N818 - a signal, not an error
    """The event up to which a comparison was asked for has been compared."""


def difference(event: Event, sim_ns: int, kind: str, payload: Json, job: str = "") -> str | None:
    """Returns how a new event differs from the stored one; None if it does not."""
    if event.type != kind:
        return f"type is {event.type}, was made again as {kind}"
    if event.sim_ns != sim_ns:
        return f"{kind} at {event.sim_ns} ns, was made again at {sim_ns} ns"
    if event.job != job:
        return f"{kind} of job {event.job!r}, was made again for {job!r}"
    if canonical(event.payload) == canonical(payload):
        return None
    return f"{kind}: {_first_difference(event.payload, payload, 'payload')}"


def _first_difference(old: Any, new: Any, where: str) -> str:
    """Returns where two different values differ first."""
    if isinstance(old, dict) and isinstance(new, dict):
        alone = min(old.keys() ^ new.keys(), default=None)
        if alone is not None:
            return f"{where}.{alone} is only in the {'log' if alone in old else 're-execution'}"
        key = next(key for key in sorted(old) if canonical(old[key]) != canonical(new[key]))
        return _first_difference(old[key], new[key], f"{where}.{key}")
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        if len(old) != len(new):
            return f"{where} has {len(old)} entries, made again {len(new)}"
        pairs = enumerate(zip(old, new, strict=True))
        index = next(index for index, (a, b) in pairs if canonical(a) != canonical(b))
        return _first_difference(old[index], new[index], f"{where}[{index}]")
    return f"{where} is {canonical(old)[:80]}, made again {canonical(new)[:80]}"
