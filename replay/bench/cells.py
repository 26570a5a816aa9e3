"""The runs of a benchmark, each looked up in the store before it is computed, and the bounds above them."""

from dataclasses import dataclass
from pathlib import Path

from ingest.core.errors import InfeasibleError, NotFoundError
from policy.bound import fixed_plan_front
from policy.bound.bound import Bound
from policy.bound.time_grid import grid
from replay.bench import comparison
from replay.bench.world import BenchWorld
from replay.log.run_log import RunReader
from replay.metrics.kpis import Kpis
from replay.metrics.paired_comparison import TimeBlocks, blocks_of
from replay.metrics.pareto import Values
from replay.store import run_index


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy in one world."""

    world: BenchWorld
    policy: str
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Result of a cell: the run and its figures, or the problem."""

    run_id: str | None
    problem: str | None
    kpis: Kpis | None = None
    blocks: TimeBlocks | None = None  # the same run in blocks of time
    truth: str = ""  # digest of the links of its window: worlds with the same links share their bound
    source: str = ""  # digest of the whole trace
    local_sgd: bool = False
    dataset: str = ""
    note: str = ""


def run_cell(store: Path, cell: Cell) -> RunOutcome:
    """Runs one cell, or finds its run in the store; for a policy that cannot run returns the problem."""
    try:
        done = cell.world.run(store, cell.policy, cell.checkpoint, reuse=True)
    except (InfeasibleError, NotFoundError) as error:
        return RunOutcome(None, str(error))
    return outcome_of_run(store, done.run_id, done.kpis)


def outcome_of_run(store: Path, run_id: str, kpis: Kpis) -> RunOutcome:
    """Returns the outcome of a finished run, from its log."""
    reader = RunReader(run_index.folder(store, run_id))
    header, used = reader.header(), comparison.UsedPlans()
    blocks = blocks_of(used.watched(reader.events()), header["end_ns"])
    return RunOutcome(
        run_id, None, kpis, blocks, header["traces"]["window"], header["traces"]["source"],
        used.local_sgd, header["dataset"], header["note"],
    )  # fmt: skip


def fixed_plan_values(store: Path, world: BenchWorld) -> Values | None:
    """Returns `fronts.objectives` of all fixed plans in a world; None where they are too many."""
    setup = world.prepare(store)
    times = grid(setup.wan, [], setup.scenario.moving.restart_s)
    return fixed_plan_front.outcomes(setup.estimator(), times)


def world_bound(store: Path, question: tuple[BenchWorld, tuple[str, ...], int]) -> Bound:
    """Returns the bound of a world over the plans of some runs, from (world, run ids, priced).

    Plan spaces of up to `priced` plans are enumerated.
    """
    world, run_ids, priced = question
    return comparison.bound_of_runs(store, world.prepare(store), run_ids, priced)
