"""Which message is worked on: what a session has to know to set one aside that breaks the run."""

import traceback
from pathlib import Path
from typing import Any, NamedTuple

from ingest.core.errors import TwinError
from ingest.core.terminal import SENTENCE, clipped
from replay.store.event_sinks import Sink, Totals
from twin.core.facts import Fact

Json = dict[str, Any]
MESSAGES = ("telemetry_received", "jobs_changed")
"""Types of the facts that bring something in."""
ASKED = ("decision_requested", "mode_changed", "rollback_requested")
"""Types of those that only ask for something: if one breaks, it is what came in before that has broken it."""


class BrokenBy(NamedTuple):
    """The message that is set aside: the number of its event, the fact, and why."""

    first: int
    fact: Fact
    reason: str


class WorkLog:
    """Passes events on to the log of a session, and remembers the fact that they follow from."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._next = 0
        self._taken: tuple[int, Fact] | None = None
        self._undecided: list[tuple[int, Fact]] = []
        """What came in since the last decision."""

    def append(
        self, sim_ns: int, kind: str, payload: Json, /, *, job: str = "", wall: Json | None = None
    ) -> int:
        """Adds an event."""
        seq = self._sink.append(sim_ns, kind, payload, job=job, wall=wall)
        self._next = seq + 1
        if kind == "decided":
            self._undecided = []
        return seq

    def finish(self, totals: Json, *, sim_ns: int | None = None, wall: Json | None = None) -> Totals:
        """Adds the last event."""
        return self._sink.finish(totals, sim_ns=sim_ns, wall=wall)

    def take(self, fact: Fact, seq: int | None = None) -> Fact:
        """Takes that `fact` is worked on from now on; `seq`: the number of its event, if it is in the log."""
        self._taken = (self._next if seq is None else seq), fact
        if fact.type in MESSAGES:
            self._undecided.append(self._taken)
        return fact

    def rest(self) -> None:
        """Takes that the work on the last fact is done."""
        self._taken = None

    def broken_by(self, error: Exception) -> BrokenBy | None:
        """Returns the message to set aside for an error in the work on a fact; None: no message is to blame.

        What a person can mend (`TwinError`: a full disk, a damaged log, a model that does not fit) and a lack
        of memory are no faults of a message. If the work on a request fails, the last message since the last
        decision is set aside; if there is none, the request.
        """
        if self._taken is None or isinstance(error, TwinError | MemoryError | OSError):
            return None
        _, fact = self._taken
        if fact.type not in (*MESSAGES, *ASKED) or fact.payload.get("by") == "start":
            return None
        first, blamed = self._taken
        if fact.type in ASKED and self._undecided:
            first, blamed = self._undecided[-1]
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return BrokenBy(first, blamed, clipped(f"{type(error).__name__}: {error} ({place})", SENTENCE))
