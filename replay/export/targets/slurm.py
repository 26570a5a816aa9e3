"""Slurm: one heterogeneous job with a component for each domain, and the ranks of the plan over all of them.

A component asks for the nodes of its domain by a feature (`--constraint`) that has the domain's name; `srun`
starts one task a GPU over all components at once, in the order of the ranks. Source: Slurm, "Heterogeneous
Job Support" and sbatch(1).
"""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import ceil

from replay.export import rank_map
from replay.export.contract import Difference
from replay.export.planned_job import PlannedJob
from replay.export.rank_map import HostNode
from replay.export.targets import torchrun

SBATCH = """#!/bin/bash
{components}

# One task a GPU, in the order of the plan's ranks: component after component, node after node.
set -euo pipefail
cd "${{SLURM_SUBMIT_DIR:-.}}"
NODES="${{SLURM_JOB_NODELIST_HET_GROUP_0:-${{SLURM_JOB_NODELIST:-}}}}"
export MASTER_ADDR="${{MASTER_ADDR:-$(scontrol show hostnames "$NODES" | head -n 1)}}"
export MASTER_PORT="${{MASTER_PORT:-29500}}"
export WORLD_SIZE={world}
srun {steps}
"""
TASK = """#!/bin/bash
# One process of the job: gives it the variables that torchrun would set.  task.sh COMMAND [ARGUMENTS]
set -euo pipefail
export RANK="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID"
exec "$@"
"""
COMMAND = "./task.sh python train.py"
MARKED = re.compile("[A-Za-z0-9_.+-]+")
"""Names of models that the plug-in of `configs/operations/slurm` takes from a comment."""


class SlurmTarget:
    """A heterogeneous batch job."""

    name = "slurm"
    about = "Slurm: sbatch with one heterogeneous component a domain, srun over all of them"

    def difference(self, job: PlannedJob) -> Difference | None:
        """Returns the first part that one srun cannot start, or that its script cannot run."""
        return torchrun.TorchrunTarget().difference(job) or even_nodes(job)

    def files(self, job: PlannedJob) -> Mapping[str, str | bytes]:
        """Returns batch script, the task of a rank, and what torchrun's target writes but its launcher."""
        shared = torchrun.TorchrunTarget().files(job)
        return {
            "job.sbatch": batch_script(job), "task.sh": TASK,
            **{name: data for name, data in shared.items() if name != "launch.sh"},
        }  # fmt: skip

    def start(self, job: PlannedJob) -> str:
        """Returns how to submit, and what the cluster has to know."""
        features = ", ".join(f"`{name}`" for name in dict.fromkeys(n.domain for n in rank_map.nodes(job)))
        return (
            "On a cluster whose nodes are in several sites (or a federation that takes heterogeneous jobs), "
            f"give nodes the features {features}, or write partitions into `job.sbatch` in their place; "
            "this folder must be seen by all nodes:\n\n    chmod +x task.sh && sbatch job.sbatch\n\n"
            "`sbatch --test-only job.sbatch` asks the scheduler without submitting. The comment `twin:...` "
            "asks a running `twin serve` where the cluster has the plug-in of `configs/operations/slurm`. "
            "`train.py` trains the plan with synthetic tokens; to run another framework put its command in "
            f"the place of `{COMMAND}`, it finds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."
        )


def components(job: PlannedJob) -> list[tuple[str, list[HostNode]]]:
    """Returns the nodes of each domain, in the order of the ranks."""
    return [(site, list(group)) for site, group in groupby(rank_map.nodes(job), lambda node: node.domain)]


def even_nodes(job: PlannedJob) -> Difference | None:
    """A component has the same number of tasks on each of its nodes, but for the last one."""
    for site, nodes in components(job):
        counts = [len(node.gpus) for node in nodes]
        if len(set(counts[:-1])) > 1 or counts[-1] > counts[0]:
            return Difference(
                f"nodes of {site} with {', '.join(map(str, counts))} GPUs",
                "a component has as many tasks on each node", "plan with whole nodes", None,
            )  # fmt: skip
    return None


def batch_script(job: PlannedJob) -> str:
    """Returns the script: directives of each component, then one srun over all."""
    found = components(job)
    blocks = [_directives(job, site, nodes, first=n == 0) for n, (site, nodes) in enumerate(found)]
    steps = [
        f"{f'--het-group={n} ' if len(found) > 1 else ''}--ntasks={sum(len(node.gpus) for node in nodes)} "
        f"--kill-on-bad-exit=1 --distribution=block {COMMAND}"
        for n, (_, nodes) in enumerate(found)
    ]
    return SBATCH.format(
        components="\n#SBATCH hetjob\n".join(blocks), steps=" : \\\n     ".join(steps),
        world=len(rank_map.ranks(job)),
    )  # fmt: skip


def _directives(job: PlannedJob, site: str, nodes: Sequence[HostNode], *, first: bool) -> str:
    tasks, most = sum(len(node.gpus) for node in nodes), len(nodes[0].gpus)
    lines = [f"--job-name={rank_map.job_name(job)}", f"--time={time_limit(job)}"] if first else []
    if first and MARKED.fullmatch(job.model.name):
        lines.append(f"--comment=twin:{job.model.name},global_batch={job.job.global_batch}")
    lines += [
        f"--constraint={site}", f"--nodes={len(nodes)}", f"--ntasks={tasks}", f"--ntasks-per-node={most}",
        f"--gpus-per-node={most}", "--exclusive",
    ]  # fmt: skip
    return "\n".join(f"#SBATCH {line}" for line in lines)


def time_limit(job: PlannedJob, iterations: int = 10_000) -> str:
    """Returns a limit for so many iterations, D-HH:MM:SS; a day where their time is not known."""
    seconds = ceil((job.iteration_s or 8.64) * iterations)
    days, rest = divmod(seconds, 86_400)
    return f"{days}-{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
