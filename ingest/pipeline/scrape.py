"""`twin ingest --scrape`: pages of metrics of exporters, read again and again into the lake.

A round asks all targets at once, each within the bounds of `ingest.parsing.http_page`; a target that does not
answer is counted, said once for each reason, and asked again in the next round. Rows are committed every
`COMMIT_S` and in the end, Ctrl-C as well; small commits become larger ones meanwhile (`ingest.lake.merging`),
since a lake of many is slow to read. A kill loses what came since the last commit.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.core.errors import InputError, LockedError
from ingest.lake import merging
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import Source
from ingest.pipeline.ingest import ingest_sources
from ingest.pipeline.metrics_page import ScrapedTarget

EVERY_S = 15.0
DATASET = "scraped"
COMMIT_S = 60.0
"""Seconds between two commits to the lake."""
MOST_BYTES = 64 << 20
"""Pages that wait for a commit are committed earlier from this size on."""
MOST_TARGETS = 256
_AT_ONCE = 16


@dataclass(slots=True)
class TargetCount:
    """The outcome of one target: pages that came, reads that failed, and the reason of the last failure."""

    pages: int = 0
    failed: int = 0
    problem: str = ""
    """Why the last read failed; empty: it did not."""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"pages": self.pages, "failed": self.failed, "problem": self.problem}


@dataclass(slots=True)
class ScrapeTotals:
    """Totals of `twin ingest --scrape` so far."""

    dataset: str = DATASET
    rounds: int = 0
    commits: int = 0
    merged: int = 0
    """Commits that became part of larger ones."""
    rejected: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    targets: dict[str, TargetCount] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    """Pages that came and that no reader took, with the reason."""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        targets = {name: one.to_json() for name, one in self.targets.items()}
        return {
            "schema": "twin.scrape/1", "dataset": self.dataset, "rounds": self.rounds,
            "commits": self.commits, "merged": self.merged, "rows": dict(sorted(self.rows.items())),
            "rejected": self.rejected, "targets": targets, "unread": self.unread,
        }  # fmt: skip


def scrape(
    targets: Sequence[ScrapedTarget],
    store: Path,
    *,
    every_s: float = EVERY_S,
    for_s: float | None = None,
    rounds: int | None = None,
    notify: Callable[[str], None] = lambda line: None,
    into: ScrapeTotals | None = None,
    wall: Callable[[], int] = time.time_ns,
) -> ScrapeTotals:
    """Reads all targets every `every_s` into the lake: for `for_s`, or `rounds`, or until KeyboardInterrupt.

    for_s: 0 is one round. It ends by itself once every target has given all that it has (`query_range`).
    into: holds what was taken when KeyboardInterrupt ends it; what came is in the lake by then.

    Raises:
        LockedError: another process ingests into this store.
    """
    done = ScrapeTotals() if into is None else into
    waiting = _Waiting(store, done)
    begin_s = time.monotonic()
    with ThreadPoolExecutor(min(_AT_ONCE, len(targets))) as workers:
        try:
            while True:
                left = [one for one in targets if not one.once]
                read = workers.map(lambda one: _read(one, wall()), left)
                for one, found in zip(left, read, strict=True):
                    waiting.take(one, found, notify)
                done.rounds += 1
                waiting.commit_when_due(notify)
                next_s = begin_s + every_s * ((time.monotonic() - begin_s) // every_s + 1)
                ends = for_s is not None and next_s > begin_s + for_s
                if ends or done.rounds == rounds or all(one.once for one in left):
                    return done
                time.sleep(max(0.0, next_s - time.monotonic()))
        finally:
            waiting.commit()


def _read(target: ScrapedTarget, now_ns: int) -> Source | InputError | None:
    try:
        return target.source(now_ns)
    except InputError as error:
        return error


class _Waiting:
    """Pages that have come and are not in the lake yet."""

    def __init__(self, store: Path, done: ScrapeTotals) -> None:
        self._store, self._done = store, done
        self._options = DatasetOptions(name=done.dataset, title="scraped from exporters of metrics")
        self._sources: list[Source] = []
        self._due_s = time.monotonic()  # the first round at once: the user sees that it works

    def take(
        self, target: ScrapedTarget, found: Source | InputError | None, notify: Callable[[str], None]
    ) -> None:
        """Counts what a target gave; a new problem is told, and its end."""
        count = self._done.targets.setdefault(target.address.shown, TargetCount())
        problem = str(found) if isinstance(found, InputError) else ""
        if problem and problem != count.problem:
            notify(f"{problem}; asked again")
        elif count.problem and not problem:
            notify(f"{target.address.shown}: answers again")
        count.problem = problem
        if isinstance(found, InputError):
            count.failed += 1
            return
        count.pages += 1
        if found is not None:
            self._sources.append(found)

    def commit_when_due(self, notify: Callable[[str], None]) -> None:
        """Commits the pages if the last commit is long ago, or they are large. Another writer is waited for,
        once a first commit has shown that the lake can be written."""
        size = sum(source.size_bytes for source in self._sources)
        if time.monotonic() >= self._due_s or size >= MOST_BYTES:
            try:
                self.commit()
            except LockedError as error:
                if not self._done.commits or size >= 2 * MOST_BYTES:
                    raise
                notify(f"{error}; what came is kept for the next commit")
            self._due_s = time.monotonic() + COMMIT_S

    def commit(self) -> None:
        """Makes the pages part of the lake."""
        if not self._sources:
            return
        results = ingest_sources(self._options, self._sources, self._store)
        self._sources = []
        self._done.commits += 1
        for result in results:
            self._done.rejected += result.rejected
            if result.skipped_reason:
                self._done.unread[result.path] = result.skipped_reason
            for table, rows in result.stored.items():
                self._done.rows[table] = self._done.rows.get(table, 0) + rows
        self._done.merged += merging.merge_small(self._store, self._options.name)
