"""The runs of a benchmark: many, in several processes, each looked up in the store before it is computed."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import TypeVar

from ingest.errors import InfeasibleError, NotFoundError
from ingest.progress import Progress
from policy.bound import Bound
from replay import compare, runner, runs
from replay.header import Engine
from replay.judge import Blocks, blocks_of
from replay.kpis import Kpis
from replay.log import RunReader
from twin import scenario as scenarios
from twin.scenario import Scenario, Window

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class World:
    """What a run needs to be told besides the policy. `clip` is the level of added noise, None without."""

    scenario: Scenario
    dataset: str | None
    window: Window
    engine: Engine
    seed: int
    clip: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy in one world."""

    world: World
    policy: str
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cell: the run and its figures, or why there is none."""

    run_id: str | None
    problem: str | None
    kpis: Kpis | None = None
    blocks: Blocks | None = None  # the same run, cut into blocks of time
    truth: str = ""  # digest of the links of its window: worlds with the same truth share their bound
    source: str = ""  # digest of the whole trace
    local_sgd: bool = False
    dataset: str = ""
    note: str = ""


def play(store: Path, cell: Cell) -> Outcome:
    """Run one cell, or find its run in the store; a policy that cannot run here is an outcome too."""
    world = cell.world
    try:
        done = runner.run(
            store, policy=cell.policy, scenario=world.scenario, dataset=world.dataset, window=world.window,
            engine=world.engine, seed=world.seed, checkpoint=cell.checkpoint, reuse=True,
        )  # fmt: skip
    except (InfeasibleError, NotFoundError) as error:
        return Outcome(None, str(error))
    reader = RunReader(runs.folder(store, done.run_id))
    header, used = reader.header(), compare.Used()
    blocks = blocks_of(used.watched(reader.events()), header["end_ns"])
    return Outcome(
        done.run_id, None, done.kpis, blocks, header["traces"]["window"], header["traces"]["source"],
        used.local_sgd, header["dataset"], header["note"],
    )  # fmt: skip


def best(store: Path, question: tuple[World, tuple[str, ...]]) -> Bound:
    """The bound of a world, over the plans of the runs that are named."""
    world, logged = question
    setup = scenarios.prepare(
        world.scenario, store, window=world.window, dataset=world.dataset, seed=world.seed
    )
    return compare.best_possible(store, setup, logged)


def each(
    store: Path,
    work: Callable[[Path, In], Out],
    items: Sequence[In],
    jobs: int,
    progress: Progress,
    what: str,
) -> list[Out]:
    """`work(store, item)` for every item, in its order, on up to `jobs` processes; one works in this process.

    The first exception ends it: what has not begun is dropped, what is finished stays in the store.
    """
    return [one for one in within(store, work, items, jobs, progress, what) if one is not None]


def within(
    store: Path,
    work: Callable[[Path, In], Out],
    items: Sequence[In],
    jobs: int,
    progress: Progress,
    what: str,
    seconds: float = float("inf"),
) -> list[Out | None]:
    """As `each`, but nothing is begun after so many seconds: None for what was not."""
    progress.start(len(items), what)
    until = monotonic() + seconds
    if jobs <= 1 or len(items) <= 1:
        found: list[Out | None] = []
        for item in items:
            found.append(work(store, item) if monotonic() < until else None)
            progress.advance()
        return found
    # Fresh processes: a fork would inherit the locks of thread pools that only this process runs.
    with ProcessPoolExecutor(min(jobs, len(items)), get_context("spawn"), initializer=_quiet) as pool:
        futures = [pool.submit(partial(work, store), item) for item in items]
        try:
            open_ = set(futures)
            while open_:
                left = until - monotonic()
                if left <= 0:
                    open_ -= {future for future in open_ if future.cancel()}
                done, open_ = wait(open_, left if 0 < left < seconds else None, FIRST_COMPLETED)
                for future in done:
                    future.result()
                    progress.advance()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [None if future.cancelled() else future.result() for future in futures]


def cores() -> int:
    """How many processes a benchmark uses unless told otherwise."""
    return os.cpu_count() or 1


def _quiet() -> None:
    """Ctrl-C ends a worker without a traceback; its unfinished run is finished by the next benchmark."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
