"""Runs a function over items of a store, in several processes."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import TypeVar, cast

from ingest.core.progress import SILENT, Progress

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """Up to `jobs` processes on one store; with one, this process does the work."""

    store: Path
    jobs: int = 1
    progress: Progress = SILENT

    def each(self, work: Callable[[Path, In], Out], items: Sequence[In], what: str) -> list[Out]:
        """Returns `work(store, item)` for every item, in order.

        The first exception stops it: items not begun are dropped, finished ones stay in the store.
        """
        return cast(list[Out], self.within(float("inf"), work, items, what))

    def within(
        self, seconds: float, work: Callable[[Path, In], Out], items: Sequence[In], what: str
    ) -> list[Out | None]:
        """Like `each`, but begins no item after so many seconds; its result is None."""
        self.progress.start(len(items), what, "tasks")
        until = monotonic() + seconds
        if self.jobs > 1 and len(items) > 1:
            return self._together(partial(work, self.store), items, until)
        found: list[Out | None] = []
        for item in items:
            found.append(work(self.store, item) if monotonic() < until else None)
            self.progress.advance()
        return found

    def _together(self, work: Callable[[In], Out], items: Sequence[In], until: float) -> list[Out | None]:
        # Fresh processes: a fork would inherit the locks of thread pools that only this process runs.
        fresh = get_context("spawn")
        with ProcessPoolExecutor(min(self.jobs, len(items)), fresh, initializer=_quiet) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                open_ = set(futures)
                while open_:
                    left = until - monotonic()
                    if left <= 0:
                        open_ -= {future for future in open_ if future.cancel()}
                    done, open_ = wait(open_, left if 0 < left < float("inf") else None, FIRST_COMPLETED)
                    for future in done:
                        future.result()
                        self.progress.advance()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [None if future.cancelled() else future.result() for future in futures]


def cores() -> int:
    """Default number of processes of a benchmark."""
    return os.cpu_count() or 1


def _quiet() -> None:
    """Ctrl-C ends a worker without a traceback; its unfinished run is finished by the next benchmark."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
