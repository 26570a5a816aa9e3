"""Compiled kernels: where numba keeps them, which are there, and those of a first decision and queue made.

A kernel is compiled for its types when it is first called, which takes seconds, and kept on the disk; a
later process loads it. What is kept counts only for the same source, numba and processor.
"""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core import resources, text_files
from ingest.core.compiled import kept, njit
from ingest.core.durable import DISK
from ingest.core.errors import StorageError
from ingest.core.progress import SILENT, Progress
from ingest.core.scratch import Scratch
from ingest.pipeline.ingest import ingest
from policy.placement.registry import placement
from policy.placement.sites import site_choice
from policy.queue.registry import recipe as queue_recipe
from replay.bench.worker_pool import WorkerPool, cores
from replay.health.check import Check
from replay.run import runner
from twin.nodes.on_nodes import simulate_on_nodes
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.queue.jobs import QueueJobs
from twin.queue.simulation import simulate
from twin.scenario.prepare import load
from twin.sites.inputs import NOWHERE, SiteJobs, SiteLinks, single_sites
from twin.sites.simulation import SiteWorld, simulate_on_sites
from twin.traces.time_range import TimeRange

PACKAGES = ("twin", "policy")
"""Which have compiled functions."""
POLICIES = ("mpc", "hippo")
"""Whose first decisions call the kernels of all that a replay does."""
FIRST = (
    "twin.filters.kalman_steps.forecast_models",
    "twin.pipeline.kernel._standard",
    "twin.estimation.mixed_shapes_kernel._run",
    "policy.search.batch_scoring._fill",
    "policy.search.bottleneck_split._fill_splits",
    "policy.control.relay_links.choose_relays",
    "policy.hippo.tables.masks.legal",
    "policy.hippo.decoding.autoregressive.sample_rows",
    "policy.hippo.agent.local_search._neighbours",
)
"""Kernels that a first decision calls; with each of them those that it calls are compiled."""
SCENARIO, DATASET, SECONDS = "tri-7b", "synthetic-tri", 240.0


def all_kernels() -> dict[str, Any]:
    """Returns every compiled function that is kept on the disk, by module and name."""
    kind: type[Any] = type(njit(_nothing))
    return {
        f"{module}.{name}": value
        for module in _modules()
        for name, value in vars(import_module(module)).items()
        if isinstance(value, kind) and value.stats.cache_path is not None and value.__module__ == module
    }


def _modules() -> Iterator[str]:
    """Every module whose source compiles functions to keep."""
    root = Path(__file__).resolve().parents[2]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if "cache=True" in text_files.read(path):
                yield ".".join(path.relative_to(root).with_suffix("").parts)


def used() -> list[str]:
    """Returns the functions that this process has compiled or loaded."""
    return [name for name, kernel in all_kernels().items() if kernel.signatures]


def check() -> Check:
    """Returns the check of the compiled kernels of a first decision."""
    kernels = all_kernels()
    there = [name for name, kernel in kernels.items() if kept(kernel)]
    place = os.environ["NUMBA_CACHE_DIR"]
    found = f"{len(there)} of {len(kernels)} compiled, kept in {place}"
    first = [name for name in FIRST if name not in there]
    if first:
        more = f"; {len(first)} of the {len(FIRST)} of a first decision are not, which takes it seconds"
        return Check("kernels", "note", found + more, "twin doctor --compile")
    return Check("kernels", "ok", f"{found}, among them all {len(FIRST)} of a first decision")


def compile_first(progress: Progress = SILENT, processes: int | None = None) -> int:
    """Plays the begin of a shipped scenario in a temporary store and a small queue, so that what they call is
    compiled and kept, in two processes at once [cores]; returns the number of kernels that they called.

    Raises:
        StorageError: there is no room for temporary files.
    """
    DISK.foretell((Path(os.environ["NUMBA_CACHE_DIR"]), "compiled kernels of a first decision and queue"))
    with Scratch() as scratch:
        if scratch.path is None:
            raise StorageError("no folder for temporary files can be written; set TMPDIR to one of your own")
        pool = WorkerPool(scratch.path / "store", cores() if processes is None else processes, progress)
        return len(set().union(*pool.each(_compiled_by, list(PARTS), "compiling")))


def _compiled_by(store: Path, part: str) -> list[str]:
    """Plays a part of `PARTS` in a process; returns the kernels that the process has called so far."""
    PARTS[part](store)
    return used()


def play_decisions(store: Path) -> None:
    """Takes in the shipped trace and has every policy of `POLICIES` decide on it."""
    ingest([resources.traces() / DATASET], store)
    for policy in POLICIES:
        play(store, policy)


def play(store: Path, policy: str) -> None:
    """Runs the last `SECONDS` of the shipped trace under a policy."""
    span = TimeRange.parse("13000", str(13000 + SECONDS))
    assert span is not None
    runner.run(store, policy=policy, scenario=load(SCENARIO), window=span)


def play_queue(store: Path) -> None:
    """Runs three jobs through a pool of processors, nodes and two sites; nothing of the store is needed."""
    jobs, easy = QueueJobs.of_seconds([0, 0, 1], [9, 9, 2], [1, 2, 1]), queue_recipe("easy")
    simulate(jobs, 2, easy)
    nodes = NodeCluster.parse("1 x 2 A100-80")
    demands = Demands.of_jobs(nodes, jobs.processors)
    simulate_on_nodes(jobs, demands, nodes, easy, placement("best-fit"))
    zeros, gpus, one = np.zeros((2, 2), np.int64), np.array([2, 2]), np.zeros(1, np.int64)
    asked = SiteJobs(jobs.processors - 1, np.zeros(3, np.int64), np.full(3, NOWHERE))
    world = SiteWorld(
        ("a", "b"), gpus, SiteLinks(one, zeros[None], zeros), single_sites(np.array([1, 2]), gpus, 1)
    )
    simulate_on_sites(jobs, asked, world, easy, site_choice("least-loaded"))


PARTS: dict[str, Callable[[Path], None]] = {"decisions": play_decisions, "queue": play_queue}
"""They share hardly a kernel: two processes compile them in the time of the longer."""


def _nothing() -> None:
    """For its type: a compiled function."""
