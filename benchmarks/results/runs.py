"""The runs behind docs/measured/results.md, their order, and their results by group."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from policy.core import registry
from replay.bench import fronts
from replay.bench.bench import assemble_results, fixed_plans, with_load, with_seeds
from replay.bench.cells import Cell, RunOutcome
from replay.bench.result import ScenarioResult
from replay.bench.worker_pool import WorkerPool
from replay.bench.world import BenchWorld
from replay.run import scenario_overrides
from twin.scenario.prepare import digest as scenario_digest
from twin.settings.disturbances import Noise

CORE = ("static", "single", "mpc", "hippo")
OTHERS = tuple(name for name in registry.POLICIES if name not in CORE)
QUEUED = ("static", "mpc", "hippo")
"""Policies of groups with several jobs: fixed plans, and the two that are judged."""
LEVELS = (0.1, 0.2, 0.3, 0.5)
FINE, COARSE = 8, 4
"""Into so many parts a front divides the weights. By quarters, ten weights, nobody asks for what lies between
speed alone and three parts of it; eighths, 36 weights, take hours where a run takes a minute."""
LOADS = (0.8, 1.2)
"""Beside 1, the scenario's own."""


@dataclass(frozen=True)
class Group:
    """One scenario on one data set, its own where None. `asked` ones make the tables of what was asked for;
    `costly` ones take minutes a seed. `front` is into how many parts it divides the weights, 0 for none,
    `others` how many seeds the policies outside of `CORE` have."""

    scenario: str
    dataset: str | None = None
    measured: bool = True
    asked: bool = False
    costly: bool = False
    noisy: bool = False
    front: int = 0
    loads: bool = False
    others: int = 5

    @property
    def title(self) -> str:
        """Heading of the section."""
        return self.scenario if self.dataset is None else f"{self.scenario} on {self.dataset}"

    @property
    def policies(self) -> tuple[str, ...]:
        """Policies that run with every seed."""
        return QUEUED if self.loads else CORE


GROUPS = (
    Group("quad-70b", asked=True, noisy=True, front=FINE),
    Group("storm", asked=True, front=FINE),
    Group("geant-70b", asked=True, front=COARSE),
    Group("octo-175b", asked=True, costly=True, front=COARSE),
    Group("planet-405b", asked=True, costly=True, front=COARSE, others=3),
    Group("queue", loads=True, costly=True, others=0),
    Group("tri-7b", "wanify-aws8", front=FINE),
    Group("tri-7b", "synthetic-tri", measured=False, front=FINE, others=0),
    Group("quad-70b", "synthetic-quad", measured=False, others=0),
    Group("octo-175b", "synthetic-octo", measured=False, costly=True, others=0),
)

Trained = Sequence[Path | None]
"""The checkpoint of each seed; None is the one that ships."""
Key = tuple[str, str | None, int, str]
Found = dict[Key, RunOutcome]


def worlds(group: Group, seeds: int) -> list[BenchWorld]:
    """Returns one world a seed, without added noise or load."""
    return with_seeds(BenchWorld.of(scenario_overrides.scenario(group.scenario), group.dataset), seeds)


def noised(world: BenchWorld, clip: float) -> BenchWorld:
    """Returns the world with noise on its links."""
    scenario = scenario_overrides.noisy(
        world.scenario, Noise(sd=clip * scenario_overrides.SD_OF_CLIP, clip=clip)
    )
    return replace(world, scenario=scenario, clip=clip)


def varied(group: Group, world: BenchWorld) -> list[BenchWorld]:
    """Returns the world at every level of noise and every load of its group."""
    noise = [noised(world, clip) for clip in (LEVELS if group.noisy else ())]
    return noise + [with_load(world, load) for load in (LOADS if group.loads else ())]


def weights(group: Group, world: BenchWorld) -> list[Cell]:
    """Returns a cell for each weights of the grid and each policy that follows weights."""
    return fronts.cells([world], CORE, None, fronts.grid(group.front))


def planned(chosen: Sequence[Group], of_seed: Trained) -> Iterator[Cell]:
    """Every run, the most telling first: a seed for all, everybody, the other seeds of what is cheap, noise
    and load, the other seeds of what is costly, fronts, the other seeds of everybody."""
    seeds = len(of_seed)
    own = {group: worlds(group, seeds) for group in chosen}

    def cell(world: BenchWorld, policy: str, k: int) -> Cell:
        path = of_seed[k]
        return Cell(world, policy, None if path is None else str(path))

    def core(groups: Iterable[Group], numbers: Iterable[int]) -> Iterator[Cell]:
        yield from (cell(own[g][k], policy, k) for k in numbers for g in groups for policy in g.policies)

    def more(numbers: Iterable[int]) -> Iterator[Cell]:
        for k in numbers:
            for group in chosen:
                yield from (cell(w, p, k) for w in varied(group, own[group][k]) for p in group.policies)

    def everybody(numbers: Iterable[int]) -> Iterator[Cell]:
        yield from (Cell(own[g][k], p) for k in numbers for g in chosen if k < g.others for p in OTHERS)

    cheap, costly = [g for g in chosen if not g.costly], [g for g in chosen if g.costly]
    yield from core(chosen, [0])
    yield from everybody([0])
    yield from core(cheap, range(1, seeds))
    yield from more([0])
    yield from core(costly, range(1, seeds))
    yield from (one for g in (*cheap, *costly) for one in weights(g, own[g][0]))
    yield from more(range(1, seeds))
    yield from everybody(range(1, seeds))


def key(cell: Cell) -> Key:
    """Returns the identity of a cell's run."""
    return scenario_digest(cell.world.scenario), cell.world.dataset, cell.world.seed, cell.policy


def bench(group: Group, found: Found, seeds: int, pool: WorkerPool) -> tuple[ScenarioResult, int] | None:
    """Returns the result of a group's finished runs, and its complete seeds; None without one."""
    policies = (*group.policies, *OTHERS) if group.others else group.policies

    def complete(world: BenchWorld) -> bool:
        return all(key(Cell(world, policy)) in found for policy in group.policies)

    plain = list(takewhile(complete, worlds(group, seeds)))
    if not plain:
        return None
    levels = [*zip(*(varied(group, world) for world in plain), strict=True)]
    perturbed = min((sum(1 for _ in takewhile(complete, level)) for level in levels), default=0)
    kept = plain + [world for level in levels for world in level[:perturbed]]
    missing = RunOutcome(None, None)
    rows = [tuple(found.get(key(Cell(world, policy)), missing) for policy in policies) for world in kept]
    (made,) = assemble_results(pool, policies, kept, rows)
    return replace(made, front=front(group, made, found, pool)), len(plain)


def front(group: Group, made: ScenarioResult, found: Found, pool: WorkerPool) -> fronts.Front | None:
    """Returns the front of the first seed, the only one with the grid of weights; None if incomplete.

    The reference are the points that no synchronous run dominates, nor fixed plans where all of them can be
    enumerated; local SGD trains another objective.
    """
    first = made.worlds[0]
    grid = weights(group, first.world)
    if not grid or not all(key(cell) in found for cell in grid):
        return None
    seed, own = first.world.seed, zip(made.policies, first.outcomes, strict=True)
    outcomes = [(policy, seed, outcome) for policy, outcome in own if not outcome.local_sgd]
    outcomes += [(cell.policy, seed, found[key(cell)]) for cell in grid]
    return fronts.front_of(outcomes, fronts.grid(group.front), fixed_plans(pool, [first]))
