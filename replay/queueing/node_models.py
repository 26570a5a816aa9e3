"""Nodes of several GPU models for schedulers of changing jobs: speeds by Gavel's measured throughputs."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ingest.core.errors import UsageError
from ingest.readers.clusters.gavel_speeds import gavel_speeds, is_gavel, job_types
from ingest.readers.clusters.profiled_runs import GAVEL_GPU, RunProfiles
from ingest.readers.job_logs import LakeJobs
from replay.logqueue.on_nodes import cluster_named
from twin.queue.jobs import Float, Int
from twin.sharing.changes import PPM
from twin.sharing.engine import SharingWorld
from twin.sharing.kinds import NodeKinds
from twin.sharing.uplinks import Uplinks, patterns_of
from twin.workload.selection import LogJobs


@dataclass(frozen=True, slots=True)
class NodesAsked:
    """Nodes as `--nodes` says: GPU model and GPUs of each (nodes,), GPUs of the largest (None: one pool,
    whose size the log says), what is to be known of them, and the rack of each (nodes,)."""

    models: tuple[str, ...] = ("",)
    each: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    rack: tuple[int, ...] = (0,)

    @classmethod
    def parse(cls, nodes: str | None) -> "NodesAsked":
        """Returns the nodes that words or a file describe.

        Raises:
            InputError: the file cannot be read. UsageError: they describe none.
        """
        if nodes is None:
            return cls()
        cluster, notes = cluster_named(nodes)
        models = tuple(cluster.models[one] for one in cluster.model.tolist())
        return cls(models, tuple(cluster.gpus.tolist()), notes, tuple(cluster.rack.tolist()))

    @property
    def size(self) -> int | None:
        """GPUs of the largest node, None for a pool."""
        return max(self.each, default=None)

    @property
    def sizes(self) -> Int | None:
        """GPUs of each node (nodes,), None where all have the same."""
        return np.array(self.each, np.int64) if len(set(self.each)) > 1 else None

    def uplinks(self, world: SharingWorld, times: float) -> tuple[Uplinks, str]:
        """Returns the uplinks of the racks, which carry the network of their nodes over `times`, and what is
        to be known of them.

        Raises:
            UsageError: there are no two racks, or no job says how long it is on the network.
        """
        if max(self.rack) < 1:
            raise UsageError(
                "--oversubscription: jobs share uplinks of racks; say RACKS x NODES x GPUS MODEL in --nodes"
            )
        patterns = patterns_of(world.speeds.iteration, world.speeds.stages)
        known = sum(one is not None for one in patterns)
        if not known:
            raise UsageError(
                "--oversubscription: no job of the log says how long it is on the network; take a list of "
                "Muri, which has times of stages"
            )
        made = Uplinks.oversubscribed(np.array(self.rack, np.int64), times, patterns)
        return made, (
            f"uplinks of {max(self.rack) + 1} racks, oversubscribed {times:g} times, shared by jobs that lie "
            f"in several; {known:,} of {len(patterns):,} jobs say how long they are on the network"
        )

    def __len__(self) -> int:
        return len(self.models)

    def kinds(
        self, log: LogJobs, source: Path | LakeJobs, profiles: RunProfiles | None
    ) -> tuple[LogJobs, NodeKinds | None]:
        """Returns the jobs that were measured on every model, and their speeds on each; all jobs, and None,
        where all nodes are alike.

        Raises:
            UsageError: speeds on several models are not known, or of no job.
        """
        names = tuple(dict.fromkeys(self.models))
        if len(names) == 1:
            return log, None
        said = f"nodes of {', '.join(names)}"
        if profiles is None or not is_gavel(profiles.folder) or not isinstance(source, Path):
            raise UsageError(
                f"{said}: with --changes all nodes are alike, or --profiles names the folder of Gavel's "
                "throughputs, which say how fast each job runs on each GPU"
            )
        speeds = self._speeds(log, source, profiles, names)
        known = (speeds > 0).all(axis=1)
        if not known.any():
            raise UsageError(f"{said}: no job of {log.name} was measured on each of them; take other nodes")
        if not known.all():
            first = log.ids.get(int(log.jobs.number[~known][0]), "")
            note = f"jobs left out: {(~known).sum():,}, {first} the first, not measured on each model"
            log = replace(log, jobs=log.jobs.select(known), notes=(*log.notes, note))
        of_node = np.array([names.index(one) for one in self.models], np.int64)
        return log, NodeKinds(names, of_node, np.maximum(1, np.rint(PPM * speeds[known]).astype(np.int64)))

    def _speeds(self, log: LogJobs, source: Path, profiles: RunProfiles, names: tuple[str, ...]) -> Float:
        """Returns the speed of each job on each model over that of its run time (n, models), 0 if unknown."""
        types, speeds = job_types(source), gavel_speeds(profiles.folder)
        columns = [speeds.model(name) for name in names]
        base = speeds.model(profiles.gpu or GAVEL_GPU)
        found = np.zeros((len(log.jobs), len(names)))
        for at, (number, gpus) in enumerate(zip(log.jobs.number, log.jobs.processors.tolist(), strict=True)):
            kind = types.get(log.ids.get(int(number), ""), "")
            if own := speeds.steps_per_s(kind, gpus, base, gpus):
                each = [
                    speeds.steps_per_s(kind, gpus, one, self._node_gpus(name) or gpus)
                    for one, name in zip(columns, names, strict=True)
                ]
                found[at] = np.array(each) / own
        return found

    def _node_gpus(self, model: str) -> int:
        """Returns the GPUs of the largest node of a model."""
        return max(
            (size for one, size in zip(self.models, self.each, strict=True) if one == model), default=0
        )
