"""The shell script that starts the processes of one node with torchrun, whatever they run."""

import shlex
from collections.abc import Mapping, Sequence

from replay.export.planned_job import PlannedJob
from replay.export.rank_map import nodes

SCRIPT = """#!/usr/bin/env bash
# Starts the processes of one node:  MASTER_ADDR=HOST ./launch.sh NODE [MORE ARGUMENTS]
# MASTER_ADDR: address of {first}, which every node can reach. Nodes may have different numbers of GPUs.
set -euo pipefail
cd "$(dirname "$0")"
NODE="${{1:?name a node: {hosts}}}"
shift
case "$NODE" in
{cases}
  *) echo "launch.sh: $NODE is none of: {hosts}" >&2; exit 2 ;;
esac
{prepare}export CUDA_VISIBLE_DEVICES="${{CUDA_VISIBLE_DEVICES-$GPUS}}"
exec torchrun --nnodes {count} --node-rank "$RANK_OF_NODE" --nproc-per-node "$PROCESSES" \\
  --master-addr "${{MASTER_ADDR:?address of {first}}}" --master-port "${{MASTER_PORT:-29500}}" \\
  {command} "$@"
"""


def script(job: PlannedJob, command: str, environment: Mapping[str, str], prepare: Sequence[str] = ()) -> str:
    """Returns the script for all nodes of a pipeline: `command`, in the shell's words, follows torchrun, and
    the lines `prepare` come before it."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    all_nodes = nodes(job)
    cases = [
        f"  {node.host}) RANK_OF_NODE={n} PROCESSES={len(node.gpus)} GPUS={','.join(map(str, node.gpus))} ;;"
        for n, node in enumerate(all_nodes)
    ]
    return SCRIPT.format(
        hosts=" ".join(node.host for node in all_nodes), cases="\n".join(cases), count=len(all_nodes),
        first=all_nodes[0].host,
        prepare="".join(f"{line}\n" for line in (*exports, *prepare)), command=command,
    )  # fmt: skip


def usage(job: PlannedJob, needs: str) -> str:
    """Returns how to use the script, as Markdown; `needs`: what each node must have."""
    hosts = [node.host for node in nodes(job)]
    lines = "\n".join(f"    MASTER_ADDR=ADDRESS ./launch.sh {host}" for host in hosts)
    return (
        f"Copy this folder to every node ({needs}), and run on each its line; ADDRESS is one of {hosts[0]} "
        f"that all nodes reach:\n\n{lines}\n\n"
        "`ranks.csv` says where every rank runs. `CUDA_VISIBLE_DEVICES` and `MASTER_PORT` may be set before."
    )
