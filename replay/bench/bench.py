"""Runs policies x scenarios x seeds, paired in the same worlds, in parallel; the result is `result.Bench`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ingest.core.durable import DISK
from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from policy.bound.bound import PRICED, Bound
from policy.core import registry
from replay.bench import fronts, worker_pool
from replay.bench.cells import Cell, RunOutcome, fixed_plan_values, outcome_of_run, run_cell, world_bound
from replay.bench.comparison import Comparison
from replay.bench.fronts import Front, Grid
from replay.bench.load import next_jobs, scenario_at_load
from replay.bench.result import Bench, ScenarioResult, WorldResult
from replay.bench.worker_pool import WorkerPool
from replay.bench.world import BenchWorld
from replay.metrics.pareto import Values
from replay.run.scenario_overrides import noisy
from replay.store import run_index
from twin.scenario.prepare import Scenario
from twin.settings.disturbances import Noise


def bench(
    store: Path,
    policies: Sequence[str],
    worlds: Sequence[BenchWorld],
    *,
    seeds: int = 1,
    noises: Sequence[Noise] = (),
    loads: Sequence[float] = (),
    pareto: Grid = (),
    checkpoint: str | None = None,
    with_bound: bool = True,
    priced: int = PRICED,
    jobs: int | None = None,
    ray: int = 0,
    progress: Progress = SILENT,
) -> Bench:
    """Runs every policy in every world, one world a scenario, with its seed and the next `seeds` - 1 seeds.

    A seed changes the noise of the telemetry; it also changes the links where the scenario perturbs them,
    and the jobs where they are drawn from a trace. `noises` are levels of added noise, for scenarios that
    have none of their own; `loads` are factors on the arrival rate of jobs. Policies that follow weights also
    run with those of `pareto`, such as `fronts.grid()`. For bounds, plan spaces of up to `priced` plans are
    enumerated. A finished run of the store with the same header, and so of the same code, is not run again.
    `jobs` processes [cores] do the work, or with `ray` so many tasks of a Ray cluster at a time: the runs are
    the same.

    Raises:
        UsageError: an unknown policy, no seed, something named twice, or a load for jobs that do not arrive;
        `worker_pool.over` refuses Ray.
    """
    scenarios = [world.scenario for world in worlds]
    _check(policies, scenarios, seeds)
    variants = [one for world in worlds for one in _variants(world, seeds, noises, loads)]
    cells = [Cell(world, policy, checkpoint) for world in variants for policy in policies]
    grid = fronts.cells(variants, policies, checkpoint, pareto)
    count = len(cells) + len(grid)
    place = run_index.folder(store, "NEW").parent
    DISK.foretell((place, f"logs of {count:,} runs, unless they are there, and one with the verdicts"))
    with worker_pool.over(store, jobs, ray, progress) as pool:
        found = pool.each(run_cell, [*cells, *grid], "runs")
        width = len(policies)
        outcomes = [tuple(found[k * width : (k + 1) * width]) for k in range(len(variants))]
        results = assemble_results(pool, policies, variants, outcomes, with_bound=with_bound, priced=priced)
        if pareto:
            weighted = list(zip(grid, found[len(cells) :], strict=True))
            results = tuple(replace(one, front=_front(pool, one, weighted, pareto)) for one in results)
    return Bench(tuple(policies), seeds, str(worlds[0].window), results, _notes(scenarios, noises))


def assemble_results(
    pool: WorkerPool,
    policies: Sequence[str],
    worlds: Sequence[BenchWorld],
    outcomes: Sequence[tuple[RunOutcome, ...]],
    *,
    with_bound: bool = True,
    priced: int = PRICED,
) -> tuple[ScenarioResult, ...]:
    """Returns the result of each scenario of `worlds`, with its bounds.

    `outcomes` of a world are in the order of `policies`.
    """
    bounds = _bounds(pool, worlds, outcomes, priced) if with_bound else [None] * len(worlds)
    played = [WorldResult(*entry) for entry in zip(worlds, outcomes, bounds, strict=True)]
    scenarios = {world.scenario.name: world.scenario for world in worlds if world.plain}
    return tuple(_result(s, policies, played) for s in scenarios.values())


def of_comparison(store: Path, world: BenchWorld, compared: Comparison) -> ScenarioResult:
    """Returns the comparison in one world as the result of a scenario."""
    outcomes = tuple(
        RunOutcome(None, row.problem)
        if row.run_id is None or row.kpis is None
        else outcome_of_run(store, row.run_id, row.kpis)
        for row in compared.rows
    )
    policies = tuple(row.policy for row in compared.rows)
    return ScenarioResult(world.scenario, policies, (WorldResult(world, outcomes, compared.bound),), {}, None)


def single(store: Path, world: BenchWorld, compared: Comparison) -> Bench:
    """Returns the comparison in one world as the result of a benchmark."""
    result = of_comparison(store, world, compared)
    return Bench(result.policies, 1, str(world.window), (result,), ())


def _check(policies: Sequence[str], scenarios: Sequence[Scenario], seeds: int) -> None:
    for policy in policies:
        registry.entry(policy)
    names = [scenario.name for scenario in scenarios]
    for what, given in (("policy", list(policies)), ("scenario", names)):
        twice = [name for name in given if given.count(name) > 1]
        if twice:
            raise UsageError(f"{what} {twice[0]!r} is named twice; give each once")
    if seeds < 1:
        raise UsageError(f"--seeds {seeds}: at least one seed is needed")


def with_seeds(world: BenchWorld, seeds: int) -> list[BenchWorld]:
    """Returns the world with its seed and the next ones."""
    return [replace(world, seed=world.seed + k, scenario=next_jobs(world.scenario, k)) for k in range(seeds)]


def with_load(world: BenchWorld, load: float) -> BenchWorld:
    """Returns the world with jobs that arrive `load` times as fast."""
    return replace(world, scenario=scenario_at_load(world.scenario, load), load=load)


def _variants(
    world: BenchWorld, seeds: int, noises: Sequence[Noise], loads: Sequence[float]
) -> Iterator[BenchWorld]:
    """Yields all seeds of a world as it is, then all seeds at each load and each level of noise."""
    plain = with_seeds(world, seeds)
    yield from plain
    yield from (with_load(one, load) for load in loads if load != 1.0 for one in plain)
    for noise in noises if world.scenario.perturbation.noise is None else ():
        for one in plain:
            yield replace(one, scenario=noisy(world.scenario, noise), clip=noise.clip)


def _bounds(
    pool: WorkerPool, worlds: Sequence[BenchWorld], outcomes: Sequence[tuple[RunOutcome, ...]], priced: int
) -> list[Bound | None]:
    """Returns the bound of each world, over the plans of all worlds with the same links: those share it."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, (world, row) in enumerate(zip(worlds, outcomes, strict=True)):
        if world.scenario.several_jobs:  # a bound is for one
            continue
        links = _links_of(row)
        if links is not None:
            groups.setdefault((world.scenario.name, links), []).append(index)
    questions = [
        (
            worlds[group[0]],
            tuple(o.run_id for index in group for o in outcomes[index] if o.run_id is not None),
            priced,
        )
        for group in groups.values()
    ]
    found: list[Bound | None] = [None] * len(worlds)
    bounds = pool.each(world_bound, questions, "bounds")
    for group, bound in zip(groups.values(), bounds, strict=True):
        for index in group:
            found[index] = bound
    return found


def _result(scenario: Scenario, policies: Sequence[str], played: Sequence[WorldResult]) -> ScenarioResult:
    """Collects the worlds of one scenario."""
    own = [entry for entry in played if entry.world.scenario.name == scenario.name]
    plain = tuple(entry for entry in own if entry.world.plain)
    noisy = _by_level((entry.world.clip, entry) for entry in own)
    loads = _by_level((entry.world.load, entry) for entry in own)
    return ScenarioResult(scenario, tuple(policies), plain, noisy, None, loads)


def _front(
    pool: WorkerPool, result: ScenarioResult, weighted: Sequence[tuple[Cell, RunOutcome]], asked: Grid
) -> Front:
    """Returns the front of a scenario, with the runs of the weights `asked`."""
    own = [
        (policy, entry.world.seed, outcome)
        for entry in result.worlds
        for policy, outcome in zip(result.policies, entry.outcomes, strict=True)
    ]
    name = result.scenario.name
    grid = [(c.policy, c.world.seed, o) for c, o in weighted if c.world.scenario.name == name]
    return fronts.front_of([*own, *grid], asked, fixed_plans(pool, result.worlds))


def fixed_plans(pool: WorkerPool, played: Sequence[WorldResult]) -> dict[int, Values | None]:
    """Returns the objectives of all fixed plans in the world of each seed; worlds with the same links share
    them."""
    links = {entry.world.seed: _links_of(entry.outcomes) for entry in played}
    first = {
        _links_of(entry.outcomes): entry.world for entry in played if not entry.world.scenario.several_jobs
    }
    found = dict(zip(first, pool.each(fixed_plan_values, list(first.values()), "fixed plans"), strict=True))
    return {seed: found.get(digest) for seed, digest in links.items()}


def _links_of(outcomes: Sequence[RunOutcome]) -> str | None:
    """Returns the digest of the links of the world in which these ran; None where no policy could."""
    return next((outcome.truth for outcome in outcomes if outcome.run_id), None)


def _by_level(entries: Iterable[tuple[float | None, WorldResult]]) -> dict[float, tuple[WorldResult, ...]]:
    """Groups worlds by their level; those without one are left out."""
    levels: dict[float, tuple[WorldResult, ...]] = {}
    for level, entry in entries:
        if level is not None:
            levels[level] = (*levels.get(level, ()), entry)
    return levels


def _notes(scenarios: Sequence[Scenario], noises: Sequence[Noise]) -> tuple[str, ...]:
    own = [scenario.name for scenario in scenarios if scenario.perturbation.noise is not None]
    several = [scenario.name for scenario in scenarios if scenario.several_jobs]
    notes = [f"{', '.join(own)}: has noise of its own, so none was added"] if noises and own else []
    notes += [f"{name}: several jobs, for which no bound is known" for name in several]
    return (*notes, *(f"{scenario.name}: {note}" for scenario in scenarios for note in scenario.weights.note))
