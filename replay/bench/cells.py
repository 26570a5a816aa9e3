"""The runs of a benchmark, each looked up in the store before it is computed, and the bounds above them."""

from dataclasses import dataclass
from pathlib import Path

from ingest.core.errors import InfeasibleError, NotFoundError
from policy.bound import fixed_plan_front as fixed_front
from policy.bound.bound import Bound
from policy.bound.time_grid import grid
from replay.bench import comparison as compare
from replay.store import run_index as runs
from replay.bench.bench_world import World
from replay.metrics.paired_comparison import Blocks, blocks_of
from replay.metrics.kpis import Kpis
from replay.log.run_log import RunReader
from replay.metrics.pareto import Values


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
    try:
        done = cell.world.run(store, cell.policy, cell.checkpoint, reuse=True)
    except (InfeasibleError, NotFoundError) as error:
        return Outcome(None, str(error))
    return logged(store, done.run_id, done.kpis)


def logged(store: Path, run_id: str, kpis: Kpis) -> Outcome:
    """The outcome that a finished run is."""
    reader = RunReader(runs.folder(store, run_id))
    header, used = reader.header(), compare.Used()
    blocks = blocks_of(used.watched(reader.events()), header["end_ns"])
    return Outcome(
        run_id, None, kpis, blocks, header["traces"]["window"], header["traces"]["source"],
        used.local_sgd, header["dataset"], header["note"],
    )  # fmt: skip


def fixed(store: Path, world: World) -> Values | None:
    """What all fixed plans reach in a world, as `bench_front.objectives`; None where they are too many."""
    setup = world.prepare(store)
    made = grid(setup.wan, [], setup.scenario.moving.restart_s)
    return fixed_front.outcomes(setup.estimator(), made)


def best(store: Path, question: tuple[World, tuple[str, ...], int]) -> Bound:
    """The bound of a world, over the plans of the runs that are named; spaces of up to so many plans are
    priced."""
    world, logged, priced = question
    return compare.best_possible(store, world.prepare(store), logged, priced)
