"""torchft: replicas in different domains as replica groups that meet after every H steps, DiLoCo style.

Every group runs the same pipeline, so that process n of one group has the weights of process n of the others.
Source: torchft 0.2, `manager.py`, `local_sgd.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ingest.core.errors import InfeasibleError
from replay.export import differences, node_launcher, rank_map, stage_order
from replay.export.contract import Difference
from replay.export.planned_job import PlannedJob
from replay.export.targets import torchrun
from twin.core.plan import Plan

SCRIPT = Path(__file__).with_name("replica_script.py")
IMPORT = "from replay.export.targets.pipeline_script import"
LIGHTHOUSE_PORT = 29510


class TorchftTarget:
    """Replica groups of torchft."""

    name = "torchft"
    about = "torchft: a replica group a domain, outer steps after H inner ones (DiLoCo)"

    def difference(self, job: PlannedJob) -> Difference | None:
        """Returns the first part that replica groups cannot run."""
        return _replicated(job) or differences.first(
            job,
            (
                differences.no_adapters, differences.dense, like_groups,
                differences.no_context_parallelism, differences.sorted_gpus,
            ),
        )  # fmt: skip

    def files(self, job: PlannedJob) -> Mapping[str, str | bytes]:
        """Returns the script of a group, its pipeline, a launcher a group, and what all groups share."""
        names = rank_map.sites(job)
        found: dict[str, str | bytes] = {
            "replica.py": SCRIPT.read_text().replace(IMPORT, "from train import"),
            "train.py": torchrun.SCRIPT.read_bytes(),
            "plan.json": json.dumps(settings(job), indent=1) + "\n",
            "schedule.csv": stage_order.table(job.replica(0)),
            "lighthouse.sh": LIGHTHOUSE.format(groups=job.plan.replicas, port=LIGHTHOUSE_PORT),
        }
        for number, share in enumerate(job.plan.shares):
            variables = {"REPLICA_GROUP_ID": str(number), "NUM_REPLICA_GROUPS": str(job.plan.replicas)}
            needs = 'export TORCHFT_LIGHTHOUSE="${TORCHFT_LIGHTHOUSE:?address of the lighthouse}"'
            one, site = job.replica(number), names[share.domain]
            found[f"launch-{site}.sh"] = node_launcher.script(one, "replica.py", variables, (needs,))
            found[f"ranks-{site}.csv"] = rank_map.table(one)
        return found

    def start(self, job: PlannedJob) -> str:
        """Returns how to start lighthouse and groups."""
        names = rank_map.sites(job)
        lines = "\n".join(
            f"    TORCHFT_LIGHTHOUSE=http://HOST:{LIGHTHOUSE_PORT} MASTER_ADDR={node.host} "
            f"./launch-{names[share.domain]}.sh {node.host}"
            for number, share in enumerate(job.plan.shares)
            for node in rank_map.nodes(job.replica(number))
        )  # fmt: skip
        sync = job.plan.sync
        every = 1 if sync is None else sync.inner_steps
        return (
            "Install PyTorch 2.7 and torchft on every node, start the lighthouse on a host that all domains "
            "reach, then on each node its line; MASTER_ADDR is the first node of the domain:\n\n"
            f"    bash lighthouse.sh\n{lines}\n\n"
            f"Groups meet after every {every} steps. They may start, end and return at any time: the quorum "
            "is those that are there. `batches` in `train.py` makes synthetic tokens: put your data there. "
            "torchft sends the weights' own type, or one byte a parameter where the plan has no more."
        )


LIGHTHOUSE = """#!/usr/bin/env bash
# The meeting point of the replica groups; one process, anywhere that all domains reach.
exec torchft_lighthouse --min_replicas 1 --quorum_tick_ms 100 --join_timeout_ms 60000 --bind "[::]:{port}"
# {groups} groups of the plan
"""


def settings(job: PlannedJob) -> dict[str, object]:
    """Returns the split of one group, with how groups meet. `global_batch` is that of a group."""
    one, sync = job.replica(0), job.plan.sync
    found: dict[str, object] = torchrun.split(one)
    found["global_batch"] = job.job.global_batch // job.plan.replicas
    found["groups"] = [domain.name for domain in job.used]
    found["inner_steps"] = 1 if sync is None else sync.inner_steps
    found["bytes_per_parameter"] = 4.0 if sync is None else sync.bytes_per_parameter
    return found


def _replicated(job: PlannedJob) -> Difference | None:
    """A group holds the whole model: a pipeline over domains is no plan of replicas."""
    if job.plan.sync is not None:
        return None
    return Difference(
        "a pipeline over domains", "a replica group holds the whole model",
        "a plan of replicas, by `twin replay --policy diloco` and a RUN of it", None,
    )  # fmt: skip


def like_groups(job: PlannedJob) -> Difference | None:
    """Process n of a group averages with process n of the others: all groups have one shape."""
    shapes = {(share.tp, share.pp) for share in job.plan.shares}
    if len(shapes) == 1:
        return None
    fitting = [plan for tp, pp in sorted(shapes) if (plan := _shaped(job, tp, pp)) is not None]
    nearest = min(fitting, key=lambda plan: job.following(plan).iteration_s or 0.0, default=None)
    words = ", ".join(f"{d.name} tp {s.tp} pp {s.pp}" for d, s in zip(job.used, job.plan.shares, strict=True))
    shape = nearest.shares[0] if nearest else None
    return Difference(
        f"replicas of different shapes ({words})", "process n averages with process n of the others",
        f"tp {shape.tp} pp {shape.pp} in all groups" if shape else "no shape of these fits all domains",
        nearest,
    )  # fmt: skip


def _shaped(job: PlannedJob, tp: int, pp: int) -> Plan | None:
    plan = job.plan
    try:
        shares = tuple(
            replace(share, tp=tp, pp=pp, gpus=job.estimator.place(share.domain, plan.dp, tp, pp))
            for share in plan.shares
        )
        made = replace(plan, shares=shares)
    except (InfeasibleError, ValueError):  # too few GPUs or layers
        return None
    return None if job.estimator.problems(made) else made
