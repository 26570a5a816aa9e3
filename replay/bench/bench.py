"""Policies x scenarios x seeds, paired in the same worlds, in parallel; see `replay.bench_result`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from policy.core import registry
from policy.bound.bound import PRICED, Bound
from replay.bench import fronts as bench_front
from replay.bench.fronts import Front, Grid
from replay.bench.load import loaded, next_jobs
from replay.bench.result import Bench, Chapter, Played
from replay.bench.cells import Cell, Outcome, best, fixed, logged, play
from replay.bench.bench_world import World
from replay.bench.comparison import Comparison
from replay.bench.worker_pool import Crew, cores
from replay.run.scenario_overrides import noisy
from replay.metrics.pareto import Values
from twin.settings.disturbances import Noise
from twin.scenario.prepare import Scenario


def bench(
    store: Path,
    policies: Sequence[str],
    worlds: Sequence[World],
    *,
    seeds: int = 1,
    noises: Sequence[Noise] = (),
    loads: Sequence[float] = (),
    pareto: Grid = (),
    checkpoint: str | None = None,
    with_bound: bool = True,
    priced: int = PRICED,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Bench:
    """Run every policy in every world, one a scenario, and again with the next `seeds` - 1 seeds.

    A seed changes the noise of the telemetry, where a scenario perturbs its links, the links, and where jobs
    arrive as in a trace, which of them. `noises` are levels of added noise, for scenarios that have none of
    their own, `loads` how many times as fast jobs come. Policies that follow weights also run with those of
    `pareto`, such as `bench_front.grid()`. For bounds spaces of up to `priced` plans are priced. A finished
    run of the store with the same header (so of the same code) is used again.

    Raises:
        UsageError: an unknown policy, no seed, something named twice, or a load without jobs that arrive.
    """
    scenarios = [world.scenario for world in worlds]
    _check(policies, scenarios, seeds)
    crew = Crew(store, cores() if jobs is None else jobs, progress)
    every = [one for world in worlds for one in _multiplied(world, seeds, noises, loads)]
    cells = [Cell(world, policy, checkpoint) for world in every for policy in policies]
    grid = bench_front.cells(every, policies, checkpoint, pareto)
    found = crew.each(play, [*cells, *grid], "runs")
    width = len(policies)
    outcomes = [tuple(found[k * width : (k + 1) * width]) for k in range(len(every))]
    chapters = assembled(crew, policies, every, outcomes, with_bound=with_bound, priced=priced)
    if pareto:
        weighted = list(zip(grid, found[len(cells) :], strict=True))
        chapters = tuple(
            replace(chapter, front=_front(crew, chapter, weighted, pareto)) for chapter in chapters
        )
    return Bench(tuple(policies), seeds, worlds[0].window, chapters, _notes(scenarios, noises))


def assembled(
    crew: Crew,
    policies: Sequence[str],
    worlds: Sequence[World],
    outcomes: Sequence[tuple[Outcome, ...]],
    *,
    with_bound: bool = True,
    priced: int = PRICED,
) -> tuple[Chapter, ...]:
    """A chapter for each scenario of `worlds`, whose outcomes are in the order of `policies`; the bounds are
    computed here."""
    bounds = _bounds(crew, worlds, outcomes, priced) if with_bound else [None] * len(worlds)
    played = [Played(*entry) for entry in zip(worlds, outcomes, bounds, strict=True)]
    scenarios = {world.scenario.name: world.scenario for world in worlds if world.plain}
    return tuple(_chapter(s, policies, played) for s in scenarios.values())


def chapter_of(store: Path, world: World, compared: Comparison) -> Chapter:
    """What was found in one world alone, as a chapter."""
    outcomes = tuple(
        Outcome(None, row.problem)
        if row.run_id is None or row.kpis is None
        else logged(store, row.run_id, row.kpis)
        for row in compared.rows
    )
    policies = tuple(row.policy for row in compared.rows)
    return Chapter(world.scenario, policies, (Played(world, outcomes, compared.bound),), {}, None)


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


def seeded(world: World, seeds: int) -> list[World]:
    """The world with this seed and the next ones."""
    return [replace(world, seed=world.seed + k, scenario=next_jobs(world.scenario, k)) for k in range(seeds)]


def at_load(world: World, load: float) -> World:
    """The same world with its jobs `load` times as fast."""
    return replace(world, scenario=loaded(world.scenario, load), load=load)


def _multiplied(world: World, seeds: int, noises: Sequence[Noise], loads: Sequence[float]) -> Iterator[World]:
    """All seeds of a world as it is, then all seeds under each level of noise and each load."""
    plain = seeded(world, seeds)
    yield from plain
    yield from (at_load(one, load) for load in loads if load != 1.0 for one in plain)
    for noise in noises if world.scenario.perturbation.noise is None else ():
        for one in plain:
            yield replace(one, scenario=noisy(world.scenario, noise), clip=noise.clip)


def _bounds(
    crew: Crew, worlds: Sequence[World], outcomes: Sequence[tuple[Outcome, ...]], priced: int
) -> list[Bound | None]:
    """The bound of each world, over the plans of all worlds that have the same truth: those share it."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, (world, row) in enumerate(zip(worlds, outcomes, strict=True)):
        if world.scenario.several_jobs:  # a bound is for one
            continue
        truth = _truth(row)
        if truth is not None:
            groups.setdefault((world.scenario.name, truth), []).append(index)
    questions = [
        (
            worlds[group[0]],
            tuple(o.run_id for index in group for o in outcomes[index] if o.run_id is not None),
            priced,
        )
        for group in groups.values()
    ]
    found: list[Bound | None] = [None] * len(worlds)
    answers = crew.each(best, questions, "bounds")
    for group, bound in zip(groups.values(), answers, strict=True):
        for index in group:
            found[index] = bound
    return found


def _chapter(scenario: Scenario, policies: Sequence[str], played: Sequence[Played]) -> Chapter:
    """What belongs to one scenario, out of everything."""
    own = [entry for entry in played if entry.world.scenario.name == scenario.name]
    plain = tuple(entry for entry in own if entry.world.plain)
    noisy = _by_level((entry.world.clip, entry) for entry in own)
    loads = _by_level((entry.world.load, entry) for entry in own)
    return Chapter(scenario, tuple(policies), plain, noisy, None, loads)


def _front(crew: Crew, chapter: Chapter, weighted: Sequence[tuple[Cell, Outcome]], asked: Grid) -> Front:
    """The front of a chapter with the runs of the weights `asked`."""
    own = [
        (policy, entry.world.seed, outcome)
        for entry in chapter.worlds
        for policy, outcome in zip(chapter.policies, entry.outcomes, strict=True)
    ]
    name = chapter.scenario.name
    grid = [(c.policy, c.world.seed, o) for c, o in weighted if c.world.scenario.name == name]
    return bench_front.front_of([*own, *grid], asked, fixed_plans(crew, chapter.worlds))


def fixed_plans(crew: Crew, played: Sequence[Played]) -> dict[int, Values | None]:
    """What fixed plans reach in the world of each seed; worlds with the same truth share it."""
    truths = {entry.world.seed: _truth(entry.outcomes) for entry in played}
    first = {_truth(entry.outcomes): entry.world for entry in played if not entry.world.scenario.several_jobs}
    found = dict(zip(first, crew.each(fixed, list(first.values()), "fixed plans"), strict=True))
    return {seed: found.get(truth) for seed, truth in truths.items()}


def _truth(outcomes: Sequence[Outcome]) -> str | None:
    """Digest of the links of the world in which these ran; None where nobody could."""
    return next((outcome.truth for outcome in outcomes if outcome.run_id), None)


def _by_level(entries: Iterable[tuple[float | None, Played]]) -> dict[float, tuple[Played, ...]]:
    """What has a level, by it."""
    levels: dict[float, tuple[Played, ...]] = {}
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
