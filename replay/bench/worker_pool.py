"""Runs a function over items of a store, in several processes of this machine or over Ray."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import TypeVar, cast

from ingest.core.progress import SILENT, Progress

In = TypeVar("In")
Out = TypeVar("Out")


def processes(count: int) -> Executor | None:
    """Returns `count` processes of this machine; None: for one item at a time this process will do."""
    if count < 2:
        return None
    # Fresh processes: a fork would inherit the locks of thread pools that only this process runs.
    return ProcessPoolExecutor(count, get_context("spawn"), initializer=_quiet)


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """Up to `jobs` items of one store at a time, each where `start` has it done.

    `start` returns an executor for so many at a time, or None for this process: `processes`, or those of a
    Ray cluster (`over`).
    """

    store: Path
    jobs: int = 1
    progress: Progress = SILENT
    start: Callable[[int], Executor | None] = processes

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
        executor = self.start(min(self.jobs, len(items))) if items else None
        if executor is not None:
            return self._together(executor, partial(work, self.store), items, until)
        found: list[Out | None] = []
        for item in items:
            found.append(work(self.store, item) if monotonic() < until else None)
            self.progress.advance()
        return found

    def _together(
        self, executor: Executor, work: Callable[[In], Out], items: Sequence[In], until: float
    ) -> list[Out | None]:
        with executor as pool:
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


@contextmanager
def over(store: Path, jobs: int | None, ray: int, progress: Progress = SILENT) -> Iterator[WorkerPool]:
    """Yields a pool of `jobs` processes [cores], or with `ray` of so many tasks of a Ray cluster at a time.

    Raises:
        UsageError: Ray is not installed, or no cluster answers at RAY_ADDRESS.
    """
    if not ray:
        yield WorkerPool(store, cores() if jobs is None else jobs, progress)
        return
    from replay.bench import ray_tasks  # brings Ray

    with ray_tasks.joined(store, ray) as start:
        yield WorkerPool(store, ray, progress, start)


def cores() -> int:
    """Default number of processes of a benchmark."""
    return os.cpu_count() or 1


def _quiet() -> None:
    """Ctrl-C ends a worker without a traceback; its unfinished run is finished by the next benchmark."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
