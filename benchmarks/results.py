"""Runs the policies over measured and synthetic links, test windows only, and writes docs/results.md.

    python -m benchmarks.results [--minutes 15] [--seeds 5] [--store .twin/results] [--out docs/results.md]

Each seed runs a checkpoint of `hippo` from a training of its own: the first one is that which ships, the
others are trained first, a minute and a half each, and kept in the store for as long as the code stays.

Every policy x scenario x seed is a run of the store. What is there with the same code is used again, so that
an interrupted call, or one with more minutes or seeds, goes on where the last one stopped. Nothing new is
begun after `--minutes`; the page says how far it came. Measured links need the traces beside the repository.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from multiprocessing import get_context
from pathlib import Path

from benchmarks import results_page, results_plots, ship_hippo
from ingest import durable, resources
from ingest.ingestion import ingest
from policy import registry
from policy.hippo import checkpoint as checkpoints
from policy.hippo.config import shipped
from replay import bench_front, options
from replay.bench import assembled
from replay.bench_result import Chapter
from replay.bench_runs import Cell, Outcome, play
from replay.bench_world import World
from replay.crew import Crew, cores
from replay.header import code_version
from twin.scenario import digest as scenario_digest
from twin.settings import Noise

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT.parent / "shared" / "traces" / "wan"
MEASURED = ("cloudpilot-iperf3", "wanify-aws8", "skyplane-grids", "geant-traffic-matrices")
CORE = ("static", "single", "mpc", "hippo")
"""Policies with every seed; the others decide once or cost long, one seed tells."""
OTHERS = tuple(name for name in registry.POLICIES if name not in CORE)
LEVELS = (0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True)
class Group:
    """One scenario on one data set, its own where None. `asked` ones make the table of what was asked for;
    `costly` ones take minutes a seed."""

    scenario: str
    dataset: str | None = None
    measured: bool = True
    asked: bool = False
    costly: bool = False
    noisy: bool = False
    front: bool = False
    others: bool = True

    @property
    def title(self) -> str:
        """Heading of its section."""
        return self.scenario if self.dataset is None else f"{self.scenario} on {self.dataset}"


GROUPS = (
    Group("quad-70b", asked=True, noisy=True),
    Group("storm", asked=True),
    Group("geant-70b", asked=True),
    Group("octo-175b", asked=True, costly=True),
    Group("planet-405b", asked=True, costly=True),
    Group("tri-7b", "wanify-aws8"),
    Group("tri-7b", "synthetic-tri", measured=False, noisy=True, front=True, others=False),
    Group("quad-70b", "synthetic-quad", measured=False, others=False),
    Group("octo-175b", "synthetic-octo", measured=False, costly=True, others=False),
)


class Progress:
    """A line on stderr for every run that is finished."""

    def __init__(self) -> None:
        self._began, self._total, self._what, self._done = time.monotonic(), 0, "", 0

    def start(self, total: int | None, what: str) -> None:
        """A new count begins."""
        self._total, self._what, self._done = total or 0, what, 0

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Say how far it is."""
        self._done += steps
        seconds = time.monotonic() - self._began
        print(
            f"{seconds:6.0f} s  {self._what} {self._done}/{self._total} {note}", file=sys.stderr, flush=True
        )


Trained = Sequence[Path | None]
"""The checkpoint of each seed; None is the one that ships."""


def trained(store: Path, seeds: int, jobs: int) -> list[Path | None]:
    """The checkpoint that ships and those of other training seeds, trained unless this code already did."""
    others = [seed for seed in range(seeds) if seed != shipped("shipped").seed][: seeds - 1]
    folders = [store / "trained" / f"{code_version()['sources'][:12]}-{seed}" for seed in others]
    missing = [pair for pair in zip(folders, others, strict=True) if not [*pair[0].glob("*.pt")]]
    if missing:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            list(pool.map(ship_hippo.made, *zip(*missing, strict=True)))
    return [None, *(checkpoints.locate(folder) for folder in folders)]


def worlds(group: Group, seeds: int) -> list[World]:
    """One world a seed, without added noise."""
    scenario = options.scenario(group.scenario)
    return [World.of(scenario, group.dataset, seed=scenario.seed + k) for k in range(seeds)]


def noised(world: World, clip: float) -> World:
    """The same world with noise on its links."""
    scenario = options.noisy(world.scenario, Noise(sd=clip * options.SD_OF_CLIP, clip=clip))
    return replace(world, scenario=scenario, clip=clip)


def weights(group: Group, world: World) -> list[Cell]:
    """The grid of weights for the policies that follow them."""
    return bench_front.cells([world], CORE, None) if group.front else []


def planned(chosen: Sequence[Group], of_seed: Trained) -> Iterator[Cell]:
    """Every run, the most telling first: a seed for all, everybody, noise and fronts, the other seeds of what
    is cheap, the other seeds of what is costly."""
    seeds = len(of_seed)
    own = {group: worlds(group, seeds) for group in chosen}

    def cell(world: World, policy: str, k: int) -> Cell:
        path = of_seed[k]
        return Cell(world, policy, None if path is None else str(path))

    def core(groups: Iterable[Group], numbers: Iterable[int]) -> Iterator[Cell]:
        yield from (cell(own[g][k], policy, k) for k in numbers for g in groups for policy in CORE)

    def noise(numbers: Iterable[int]) -> Iterator[Cell]:
        levels = [(group, clip) for group in chosen if group.noisy for clip in LEVELS]
        for k in numbers:
            yield from (cell(noised(own[g][k], clip), policy, k) for g, clip in levels for policy in CORE)

    yield from core(chosen, [0])
    yield from (Cell(own[g][0], policy) for g in chosen if g.others for policy in OTHERS)
    yield from noise([0])
    yield from (one for g in chosen for one in weights(g, own[g][0]))
    yield from core([g for g in chosen if not g.costly], range(1, seeds))
    yield from noise(range(1, seeds))
    yield from core([g for g in chosen if g.costly], range(1, seeds))


Key = tuple[str, str | None, int, str]
Found = dict[Key, Outcome]


def key(cell: Cell) -> Key:
    """What tells runs apart."""
    return scenario_digest(cell.world.scenario), cell.world.dataset, cell.world.seed, cell.policy


def chapter(group: Group, found: Found, seeds: int, crew: Crew) -> tuple[Chapter, int] | None:
    """A group out of the runs that there are, with the number of its seeds; None without one whole seed."""
    policies = (*CORE, *OTHERS) if group.others else CORE

    def complete(world: World) -> bool:
        return all(key(Cell(world, policy)) in found for policy in CORE)

    plain = list(takewhile(complete, worlds(group, seeds)))
    if not plain:
        return None
    levels = [[noised(world, clip) for world in plain] for clip in (LEVELS if group.noisy else ())]
    perturbed = min((sum(1 for _ in takewhile(complete, level)) for level in levels), default=0)
    kept = plain + [world for level in levels for world in level[:perturbed]]
    missing = Outcome(None, None)
    rows = [tuple(found.get(key(Cell(world, policy)), missing) for policy in policies) for world in kept]
    (made,) = assembled(crew, policies, kept, rows, None)
    return replace(made, front=front(group, plain[0], found)), len(plain)


def front(group: Group, world: World, found: Found) -> bench_front.Front | None:
    """The front of the first seed, the only one that the grid of weights was run for; None if not wholly."""
    grid = weights(group, world)
    if not grid or not all(key(cell) in found for cell in grid):
        return None
    cells = [*(Cell(world, policy) for policy in CORE), *grid]
    return bench_front.front_of([(cell.policy, world.seed, found[key(cell)]) for cell in cells])


def main() -> None:
    """Run what is missing as long as there is time, and write the page and its plots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=15.0, help="no run is begun after them")
    parser.add_argument("--only", default="", help="groups with one of these, A,B, in their titles")
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--store", type=Path, default=ROOT / ".twin" / "results")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results.md")
    given = parser.parse_args()
    at_hand = all((TRACES / name).is_dir() for name in MEASURED)
    ingest([resources.traces(), *(TRACES / name for name in MEASURED if at_hand)], given.store)
    chosen = [
        group
        for group in GROUPS
        if (at_hand or not group.measured) and any(part in group.title for part in given.only.split(","))
    ]
    crew = Crew(given.store, given.jobs, Progress())
    cells = list(planned(chosen, trained(given.store, given.seeds, given.jobs)))
    outcomes = crew.within(60 * given.minutes, play, cells, "runs")
    found = {key(cell): out for cell, out in zip(cells, outcomes, strict=True) if out is not None}
    results = []
    for group in chosen:
        made = chapter(group, found, given.seeds, crew)
        if made is not None:
            results.append(results_page.Result(group.title, group.asked, group.measured, *made))
    missing = [group.title for group in chosen if group.title not in {result.title for result in results}]
    done = f"{len(found)} of {len(cells)} runs planned"
    done += f" (no time was left for {', '.join(missing)})" if missing else ""
    done += "" if at_hand else " (measured links were not at hand: synthetic ones only)"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    plots = results_plots.draw(given.store, results, given.out.parent)
    about = results_page.About(given.minutes, given.jobs, machine, code_version()["sources"][:12], done)
    durable.replace(given.out, results_page.page(results, about, plots).encode())


if __name__ == "__main__":
    main()
