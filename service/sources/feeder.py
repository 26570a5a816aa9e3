"""Brings the batches of a source to the session, in order, each until it is durable.

The key of a batch says how far the source had been read at its end. Batch and key are one record of the log,
so that a source goes on exactly behind what was taken, after a kill as well: no position is kept beside it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ingest.core.errors import InputError, TwinError
from ingest.core.terminal import SENTENCE, clipped
from service.session.inbox import OverloadedError, StoppedError
from service.session.session import Session

AGAIN_S = 1.0
"""Seconds after which a batch that could not be taken is brought again."""
END_S = 15.0
"""Longest time that the end waits for a source."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceBatch:
    """Items of a source, and the key under which they go: with it the source goes on behind them.

    `own_clock` is false where the times of the items are those at which they were read.
    """

    key: str
    items: list[Any]
    own_clock: bool = True


class TelemetrySource(Protocol):
    """Something that is read on and on."""

    name: str
    """Name of the client whose batches these are: the same after a restart."""
    every_s: float
    """Seconds between two looks where there was nothing."""
    problem: str
    """Reason for which something could not be read; empty: all is well."""

    def go_on(self, key: str | None, since_ns: int, now_ns: Callable[[], int]) -> None:
        """Takes the key of the last batch in the log (None: there is none), the run's beginning (epoch), and
        what returns the time of the run, for items that have none of their own."""

    def fetch(self) -> SourceBatch | None:
        """Returns the next batch; None: there is nothing now.

        Raises:
            InputError: the source cannot be read now.
        """

    def close(self) -> None:
        """Lets go of what is open."""


class Feeder:
    """Feeds one source to a session that has begun, until `close`; `tell` hears of every new problem."""

    def __init__(
        self, session: Session, source: TelemetrySource, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.source, self._tell, self._last_problem = source, tell, ""
        self.accepted = self.refused = self.old = 0
        """Items; `old` ones are from before the run began and are passed over."""
        self.up = False
        self._session = session
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"twin-{source.name}", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """Reason for which the source is not read at the moment, or of what was lost; empty: all is well."""
        return self.source.problem

    def close(self) -> None:
        """Ends the thread; a batch that waits is answered or will be fetched again."""
        self._stop.set()
        self._thread.join(END_S)

    def _work(self) -> None:
        key, since_ns = self._session.intake.last_key(self.source.name), self._session.state.origin_epoch_ns
        self.source.go_on(key, since_ns, self._session.now_epoch_ns)
        try:
            self._feed()
        finally:
            self.source.close()

    def _feed(self) -> None:
        while not self._stop.is_set():
            try:
                found = self.source.fetch()
                self.up = True
            except InputError as error:
                self.source.problem, self.up, found = str(error), False, None
            except Exception as error:  # noqa: BLE001 - what others write may be anything: the source goes on
                why = clipped(f"{type(error).__name__}: {error}", SENTENCE)
                self.source.problem, self.up, found = f"{self.source.name}: {why}", False, None
            self._tell_problem()
            if found is None:
                self._stop.wait(self.source.every_s)
            else:
                self._bring(found)

    def _bring(self, found: SourceBatch) -> None:
        fresh = [item for item in found.items if not self._is_old(item)]
        self.old += len(found.items) - len(fresh)
        if not fresh:
            return
        batch = self._session.reader.batch(found.key, self.source.name, fresh, own_clock=found.own_clock)
        while not self._stop.is_set():
            try:
                answer = self._session.observe(batch).result()
            except (OverloadedError, StoppedError) as error:  # a full disk: the same batch, under its key
                self.source.problem = str(error)
                self._tell_problem()
                self._stop.wait(AGAIN_S)
                continue
            except TwinError as error:  # the batch itself cannot be taken, ever
                self.source.problem = str(error)
                self._tell_problem()
                return
            self.accepted += answer["accepted"]
            self.refused += len(answer["refused"])
            return

    def _tell_problem(self) -> None:
        problem = self.source.problem
        if problem and problem != self._last_problem:
            self._tell(problem)
        self._last_problem = problem

    def _is_old(self, item: Any) -> bool:
        at = item.get("epoch_ns") if isinstance(item, dict) else None
        return isinstance(at, int) and at < self._session.state.origin_epoch_ns
