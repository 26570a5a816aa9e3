"""Job lists of Sia and Pollux with their profiles: speeds by goodput on every GPU model of the nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from ingest.core.errors import UsageError
from ingest.core.names import unknown
from ingest.core.units import NS_PER_S
from ingest.readers import job_logs
from ingest.readers.clusters.profiled_runs import NODE_GPUS, RunProfiles, is_sia, listed_batches
from ingest.readers.job_logs import LakeJobs
from replay.queueing.node_models import NodesAsked
from twin.goodput.profiled_steps import gpus_of
from twin.queue.jobs import Int
from twin.queue.rules import PREDICTSIM
from twin.sharing.changes import PPM, UNKNOWN_PAUSE_S
from twin.sharing.job_goodput import JobGoodput, TrainedApplication, trained
from twin.sharing.kinds import NodeKinds
from twin.workload.selection import LogJobs, select

RESTARTS_S = {"bert": 120, "cifar10": 50, "imagenet": 250}
"""Restart of an application as measured by the authors of Sia (Jayaram Subramanya et al., SOSP 2023)."""


@dataclass(frozen=True, eq=False)
class GoodputJobs:
    """The jobs of a list, their speeds, their mean speed on each GPU model (None where there is one), and
    their restarts (n,)."""

    log: LogJobs
    goodput: JobGoodput
    kinds: NodeKinds | None
    pause_ns: Int


def fits(source: Path | LakeJobs, profiles: RunProfiles | None, asked: NodesAsked) -> bool:
    """Returns True for a list of Sia or Pollux with profiles, on nodes whose models have one.

    Raises:
        UsageError: nodes have models of which only some are profiled.
    """
    if profiles is None or not isinstance(source, Path) or not is_sia(profiles.folder):
        return False
    if asked.size is None or not listed_batches(source):
        return False
    other = [one for one in asked.models if one not in NODE_GPUS]
    if other and len(set(other)) < len(set(asked.models)):
        raise UsageError(f"--nodes: {unknown('GPU', other[0], tuple(NODE_GPUS))}, as the profiles name them")
    return not other


def read(source: Path, profiles: RunProfiles, asked: NodesAsked) -> GoodputJobs:
    """Returns the jobs of a list whose applications were profiled on each GPU model of the nodes.

    The run time of a job is that of its training on the GPUs that it asks for, with the batch of the list, on
    the GPU `profiles.gpu`, or the model of the first node.

    Raises:
        InputError: the list cannot be read, or no job is left. NotFoundError: a profile is missing.
        UsageError: the GPU of the run times is none of the nodes'.
    """
    models = tuple(dict.fromkeys(asked.models))
    first = profiles.gpu or models[0]
    if first not in models:
        raise UsageError(f"--profile-gpu {first}: run times are those on one of {', '.join(models)} here")
    batches = listed_batches(source)
    applications = {
        one.name: trained(profiles.folder, one.name, models)
        for one in sorted(profiles.folder.iterdir())
        if one.is_dir() and set(models) <= set(gpus_of(profiles.folder, one.name))
    }
    if not applications:
        raise UsageError(f"{profiles.folder}: no application was profiled on each of {', '.join(models)}")
    sizes = dict(zip(asked.models, asked.each, strict=True))

    @cache
    def alone_s(name: str, model: str, gpus: int, batch: int) -> float:
        """Seconds of a training; 0 where it was not profiled."""
        if name not in applications or batch < 1:
            return 0.0
        return applications[name].alone_s(model, -(-gpus // sizes[model]), gpus, batch)

    def fill(rows: pa.Table) -> pa.Table:
        columns = (rows.column(name).to_pylist() for name in ("job_id", "model", "gpus"))
        lasted = [
            alone_s(str(name), first, gpus, _whole(batches.get(job))) if gpus else 0.0
            for job, name, gpus in zip(*columns, strict=True)
        ]
        names.update(zip(rows.column("job_id").to_pylist(), rows.column("model").to_pylist(), strict=True))
        at = rows.schema.get_field_index("duration_s")
        return rows.set_column(
            at, rows.schema.field(at), pa.array([one or None for one in lasted], pa.float64())
        )

    names = dict[str, str]()
    log = select(job_logs.read(source, fill=fill), PREDICTSIM, sum(asked.each))
    of_job = [names[log.ids[int(number)]] for number in log.jobs.number]
    batch = np.array([_whole(batches[log.ids[int(number)]]) for number in log.jobs.number], np.int64)
    order = tuple(applications)
    of_node = np.array([models.index(one) for one in asked.models], np.int64)
    goodput = JobGoodput(
        tuple(applications.values()), np.array([order.index(one) for one in of_job], np.int64), batch,
        log.jobs.run_ns, models, of_node,
    )  # fmt: skip
    own = [
        [alone_s(name, model, gpus, size) for model in models]
        for name, gpus, size in zip(of_job, log.jobs.processors.tolist(), batch.tolist(), strict=True)
    ]
    kinds = NodeKinds(models, of_node, _speeds(np.array(own), models.index(first))) if models[1:] else None
    pause = np.array([RESTARTS_S.get(name, UNKNOWN_PAUSE_S) for name in of_job], np.int64) * NS_PER_S
    note = _note(profiles, applications, first, models)
    return GoodputJobs(replace(log, notes=(*log.notes, *note)), goodput, kinds, pause)


def _whole(written: str | None) -> int:
    return int(written) if written and written.isdigit() else 0


def _speeds(own_s: np.ndarray, first: int) -> Int:
    """Returns the mean speed on each model over that of the run time, millionths, 1 where it is not known."""
    known = own_s > 0
    ratio = own_s[:, [first]] / np.where(known, own_s, 1.0)
    return np.where(known, np.maximum(1, np.rint(PPM * ratio)), 1).astype(np.int64)


def _note(
    profiles: RunProfiles, applications: Mapping[str, TrainedApplication], first: str, models: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns what is to be known of these speeds."""
    return (
        f"speeds are goodput by the profiles in {profiles.folder.name} ({', '.join(applications)}), run "
        f"times those of {first}; jobs of applications without profiles on {', '.join(models)} are left out",
        "pollux and sia choose the batch of each job, other schedulers keep that of the list",
    )
