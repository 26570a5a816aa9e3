"""Re-execution of a logged run: equal in every byte, or the first event that differs."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core.progress import SILENT, Progress
from ingest.core.units import to_ns
from replay.log.events import Event
from replay.log.fold import Fold
from replay.log.run_log import RunReader
from replay.run import runner
from replay.store import run_index
from replay.store.event_sinks import Compare, DivergenceError
from replay.store.run_header import QUEUE, from_payload
from replay.store.run_kind import require_plans

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rerun:
    """Result of a re-execution, compared event by event."""

    run_id: str
    compared: int  # events that agree
    seq: int | None  # the first one that does not
    difference: str | None
    notes: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """True if every event agrees in every byte under the digest."""
        return self.seq is None

    def to_json(self) -> Json:
        """The object of `twin replay --run RUN --json`."""
        return {
            "schema": "twin.rerun/1",
            "run": self.run_id,
            "equal": self.equal,
            "events": self.compared,
            "first_difference": None if self.equal else {"seq": self.seq, "what": self.difference},
            "notes": list(self.notes),
        }


def recompute(
    store: Path,
    run_id: str,
    *,
    until_s: float | None = None,
    progress: Progress = SILENT,
    watch: Fold | None = None,
) -> Rerun:
    """Recomputes a logged run and compares every event with the log, up to `until_s` of simulated time.

    `watch` is shown every event that agrees.

    Raises:
        NotFoundError: no such run, or its data set or checkpoint has left the store.
        DamageError: the log itself is damaged.
    """
    reader = RunReader(run_index.folder(store, run_id))
    if reader.header()["policy"] == QUEUE:
        return _of_queue(store, run_id, until_s)
    header = from_payload(reader.header())
    require_plans(run_id, header, "computing a run again")
    prepared, differences = runner.prepare_rerun(store, header, reader.events())
    last = None if until_s is None else last_event(reader.events(), to_ns(until_s))
    compare = Compare(run_id, reader.events(), until=last, partial=not reader.finished)
    notes = [f"computed again although {difference}" for difference in differences]
    if not reader.finished:
        notes.append("the run is not finished; what is stored was compared")
    try:
        runner.execute_again(prepared, reader.events(), compare, progress, watch)
    except DivergenceError as error:
        return Rerun(run_id, compare.compared, error.seq, error.what, tuple(notes))
    return Rerun(run_id, compare.compared, None, None, tuple(notes))


def _of_queue(store: Path, run_id: str, until_s: float | None) -> Rerun:
    """Returns the re-execution of a queue run."""
    from replay.audit import queue_run  # brings the compiled kernel, needed here only
    from replay.logqueue import logged_run

    reader = RunReader(run_index.folder(store, run_id))
    last = None if until_s is None else last_event(reader.events(), to_ns(until_s))
    compare, error = queue_run.repeated(store, logged_run.load(store, run_id), last)
    seq, what = (None, None) if error is None else (error.seq, error.what)
    return Rerun(run_id, compare.compared, seq, what, ())


def last_event(events: Iterable[Event], until_ns: int) -> int:
    """Returns the number of the last event up to `until_ns`."""
    last = 0
    for event in events:
        if event.sim_ns > until_ns:
            break
        last = event.seq
    return last
