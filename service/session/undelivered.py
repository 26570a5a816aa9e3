"""Events of the log that a receiver has not got yet, over restarts and from run to run.

How far a receiver is, a run and the number of an event in it, is a small file of the store; the events
themselves are in the log. So nothing is lost when the service ends, however long a receiver was away.
"""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from ingest.core import durable
from ingest.core.durable import PRIVATE
from ingest.core.errors import NotFoundError
from replay.log.run_log import RunReader
from replay.store import run_index
from replay.store.run_header import Header, from_payload
from service.session.live_state import StreamEntries

Json = dict[str, Any]
Place = tuple[str, int]
"""A run, and the number of an event in it."""
NEEDED = frozenset({"run_started", "triggered"})
"""Types of events without which an entry is not complete."""
EARLY = 1_000
"""Events of a run among which the one is that names the run before."""
MOST_RUNS = 10_000


class Undelivered:
    """What a receiver has not got yet of the events of `types`.

    `receiver` names it, `header` is that of the run, so that services of several scenarios in a store do not
    meet; `current` returns the name of the run now.
    """

    def __init__(
        self, store: Path, receiver: str, header: Header, types: frozenset[str], current: Callable[[], str]
    ) -> None:
        self._store, self._types, self._current = store, types, current
        name = sha256(f"{receiver}\n{header.policy}\n{header.config_digest}".encode()).hexdigest()[:16]
        self._path = store / "service" / f"webhook-{name}.json"
        self.place = self._read() or self._begin()

    def settle(self, place: Place) -> None:
        """Notes that everything up to an event has arrived, or was refused for good.

        Raises:
            StorageError: the disk refuses; it may arrive again.
        """
        self.place = place
        body = json.dumps({"schema": "twin.webhook/1", "run": place[0], "seq": place[1]})
        durable.replace(self._path, body.encode(), disk=PRIVATE)

    def entries(self) -> Iterator[tuple[Place, Json]]:
        """Yields what has not arrived, in order, as far as it is durable now.

        Raises:
            TwinError: the log cannot be read.
        """
        run, seq = self.place
        for name in self._runs_since(run):
            yield from self._entries_of(name, seq if name == run else -1)

    def _read(self) -> Place | None:
        try:
            found = json.loads(self._path.read_bytes())
            return str(found["run"]), int(found["seq"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _begin(self) -> Place:
        """Returns the end of the log: a new receiver gets what comes from now on."""
        run = self._current()
        folder = run_index.folder(self._store, run)
        place = run, RunReader(folder).contents().end - 1 if folder.is_dir() else -1
        self.settle(place)
        return place

    def _runs_since(self, run: str) -> list[str]:
        """Returns a run and those that took its place, up to the present one."""
        chain = [self._current()]
        while chain[-1] != run and len(chain) < MOST_RUNS:
            before = self._before(chain[-1])
            if before is None or before in chain:
                return chain[:1]  # the run was removed, or is of another scenario
            chain.append(before)
        return chain[::-1]

    def _before(self, run: str) -> str | None:
        folder = run_index.folder(self._store, run)
        if not folder.is_dir():
            return None
        for event in RunReader(folder).events():
            if event.type == "run_continued":
                return str(event.payload["after"])
            if event.seq > EARLY:
                break
        return None

    def _entries_of(self, run: str, after: int) -> Iterator[tuple[Place, Json]]:
        folder = run_index.folder(self._store, run)
        if not folder.is_dir():
            return
        reader = RunReader(folder)
        try:
            live = from_payload(reader.header()).live or {}
        except NotFoundError:  # nothing is stored yet
            return
        fold = StreamEntries(int(live.get("origin_epoch_ns", 0)))
        for event in reader.events():
            if event.type in NEEDED or (event.seq > after and event.type in self._types):
                fold.add(event)
            fresh, fold.fresh = fold.fresh, []
            for entry in fresh:
                yield (run, entry["seq"]), entry
