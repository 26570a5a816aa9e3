"""Goodput of many jobs on many placements at once: what a scheduler such as Pollux or Sia chooses by.

A job is an application and the noise of its gradients now; a placement is a GPU, nodes and replicas. Of each
pair the batch with the most goodput is found among `CANDIDATES` sizes in even ratios, as the authors' code
does, from the initial batch to the largest; where a GPU cannot take its share at once it accumulates passes.
Source: Qiao et al., Pollux, OSDI 2021, equations 5 to 12; Jayaram Subramanya et al., Sia, SOSP 2023, 3.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ingest.core.config import suggestion
from ingest.core.errors import NotFoundError, UsageError
from twin.goodput import throughput_model
from twin.goodput.profiled_steps import all_steps, gpus_of, noise_scales
from twin.goodput.throughput_model import StepTimes, ThroughputModel, Values, Whole

CANDIDATES = 128


@dataclass(frozen=True, slots=True)
class GpuThroughput:
    """Model of an application on a GPU, with the least and the most samples a GPU that were measured, and the
    largest placement."""

    model: ThroughputModel
    least_local: int
    most_local: int
    most_nodes: int
    most_replicas: int

    @classmethod
    def of_steps(cls, steps: StepTimes) -> "GpuThroughput":
        """Returns the fit to measured steps."""
        low, high = int(np.ceil(steps.local.min())), int(steps.local.max())
        fitted = throughput_model.fit(steps)
        return cls(fitted, low, high, int(steps.nodes.max()), int(steps.replicas.max()))


@dataclass(frozen=True, eq=False)
class ApplicationThroughput:
    """An application: its models by GPU, and the global batches between which it trains."""

    name: str
    by_gpu: Mapping[str, GpuThroughput]
    initial: int
    largest: int


@dataclass(frozen=True, eq=False)
class Placements:
    """Placements to choose from, one element (c,) each: GPU by name, nodes, replicas."""

    gpu: tuple[str, ...]
    nodes: Whole
    replicas: Whole

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[str, int, int]]) -> "Placements":
        """Returns the placements of rows (GPU, nodes, replicas).

        Raises:
            UsageError: more nodes than replicas, or none of either.
        """
        for gpu, nodes, replicas in rows:
            if not 1 <= nodes <= replicas:
                raise UsageError(
                    f"{replicas} replicas on {nodes} nodes of {gpu}: a node has one or more of them"
                )
        columns = [np.array([row[at] for row in rows], np.int64) for at in (1, 2)]
        return cls(tuple(row[0] for row in rows), columns[0], columns[1])

    def __len__(self) -> int:
        return len(self.gpu)


@dataclass(frozen=True, eq=False)
class GoodputTable:
    """The best of every job on every placement, (n, c) each: goodput, samples a second at the efficiency of
    the initial batch, and the samples a GPU and passes that reach it; all 0 where a job cannot run."""

    goodput: Values
    local: Whole
    passes: Whole


def table(
    applications: Sequence[ApplicationThroughput], noise: Values, placements: Placements
) -> GoodputTable:
    """Returns the goodput of jobs (n,), an application and a noise scale in samples each, on placements (c,).

    A job runs where its application was profiled on the GPU, on no larger a placement than was measured, and
    with at least the least measured samples a GPU; elsewhere its goodput is 0.

    Raises:
        UsageError: a noise scale is negative or no number.
    """
    if len(applications) != len(noise) or not (np.isfinite(noise) & (noise >= 0)).all():
        raise UsageError("each job needs a noise scale of 0 samples or more")
    shape = len(applications), len(placements)
    found = GoodputTable(np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    jobs_of: dict[int, list[int]] = {}
    for job, one in enumerate(applications):
        jobs_of.setdefault(id(one), []).append(job)
    for jobs in jobs_of.values():
        _fill(found, applications[jobs[0]], np.array(jobs), noise, placements)
    return found


def _fill(
    found: GoodputTable, one: ApplicationThroughput, jobs: Whole, noise: Values, placements: Placements
) -> None:
    """Fills the rows of jobs of one application; times do not depend on the job and are computed once."""
    named = np.array(placements.gpu)
    for gpu, known in one.by_gpu.items():
        fits = (placements.nodes <= known.most_nodes) & (placements.replicas <= known.most_replicas)
        columns = np.flatnonzero((named == gpu) & fits)
        local, passes = shares(one, known, placements.replicas[columns])
        rate, batch = _rates(known, placements, columns, local, passes)
        for job in jobs:
            efficiency = (noise[job] + one.initial) / (noise[job] + batch)
            goodput = rate * efficiency
            best = goodput.argmax(axis=1)
            at = np.arange(len(columns)), best
            runs = goodput[at] > 0
            found.goodput[job, columns] = np.where(runs, goodput[at], 0)
            found.local[job, columns] = np.where(runs, local[at], 0)
            found.passes[job, columns] = np.where(runs, passes[at], 0)


def shares(one: ApplicationThroughput, known: GpuThroughput, replicas: Whole) -> tuple[Whole, Whole]:
    """Returns samples a GPU and passes of every candidate on each number of replicas, (c, `CANDIDATES`)."""
    least = np.maximum(one.initial, known.least_local * replicas)
    ratio = np.maximum(one.largest / least, 1.0)[:, None]
    batch = least[:, None] * ratio ** np.linspace(0, 1, CANDIDATES)
    each = np.maximum(np.floor(batch / replicas[:, None]), np.ceil(least / replicas)[:, None])
    passes = np.ceil(each / known.most_local).astype(np.int64)
    return np.ceil(each / passes).astype(np.int64), passes


def _rates(
    known: GpuThroughput, placements: Placements, columns: Whole, local: Whole, passes: Whole
) -> tuple[Values, Values]:
    """Returns samples a second and global batch of every candidate, (c, `CANDIDATES`); no rate where the
    placement or the samples a GPU cannot be predicted."""
    nodes, replicas = placements.nodes[columns, None], placements.replicas[columns, None]
    batch = (local * passes * replicas).astype(np.float64)
    rate = batch / known.model.step_s(nodes, replicas, local, passes)
    inside = (local >= known.least_local) & (local <= known.most_local)
    return np.where(inside, rate, 0.0), batch


def application(folder: Path, name: str, gpus: Sequence[str] = ()) -> ApplicationThroughput:
    """Returns a profiled application with its models on GPUs, all by default that its folder names.

    Raises:
        NotFoundError: no such application or GPU. InputError: a cell is no number.
    """
    known = gpus_of(folder, name)
    for gpu in gpus:
        if gpu not in known:
            raise NotFoundError(f"{folder / name} has no profile on {gpu}{suggestion(gpu, known)}")
    if not known:
        held = sorted(one.name for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []
        raise NotFoundError(f"{folder} has no application {name}; it has {', '.join(held) or 'none'}")
    by_gpu = {gpu: GpuThroughput.of_steps(all_steps(folder, name, gpu)) for gpu in gpus or known}
    batches = noise_scales(folder, name)
    return ApplicationThroughput(name, by_gpu, min(batches), max(batches))
