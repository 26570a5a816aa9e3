"""torchrun with torch.distributed.pipelining: a script that trains in the pipeline of the plan.

The order of its operations is the plan's own: uneven stages, deeper warm-ups and zero-bubble schedules run as
they are.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replay.export import differences, node_launcher, rank_map, stage_order
from replay.export.contract import Difference
from replay.export.planned_job import PlannedJob

SCRIPT = Path(__file__).with_name("pipeline_script.py")
"""Copied as it is; it is not imported here, since it needs PyTorch."""


class TorchrunTarget:
    """A script for torchrun with its split and its schedule."""

    name = "torchrun"
    about = "torchrun and torch.distributed.pipelining: a script, the split of its model, its schedule"

    def difference(self, job: PlannedJob) -> Difference | None:
        """Returns the first part that the script cannot run."""
        return differences.first(
            job,
            (
                differences.no_replicas, differences.no_adapters, differences.dense,
                differences.one_tensor_width, differences.no_context_parallelism, differences.sorted_gpus,
            ),
        )  # fmt: skip

    def files(self, job: PlannedJob) -> Mapping[str, str | bytes]:
        """Returns script, split, schedule, the launcher of a node and the rank file."""
        return {
            "train.py": SCRIPT.read_bytes(),
            "plan.json": json.dumps(split(job), indent=1) + "\n",
            "schedule.csv": stage_order.table(job),
            "launch.sh": node_launcher.script(job, "train.py", {}),
            "ranks.csv": rank_map.table(job),
        }

    def start(self, job: PlannedJob) -> str:
        """Returns how to start the script, on GPUs and for a trial."""
        processes = len(rank_map.ranks(job))
        return (
            f"{node_launcher.usage(job, 'with PyTorch 2.6 or later')}\n\n"
            "A trial on one machine without GPUs, with a small model of the same layers, and the same model "
            "unsplit; both print the same losses:\n\n"
            f"    torchrun --standalone --nproc-per-node {processes} train.py --tiny --steps 5\n"
            "    python train.py --whole --tiny --steps 5\n\n"
            "`batches` in `train.py` makes synthetic tokens: put your data there. ZeRO 1 and 2 both run as "
            "FSDP2 that keeps the weights after the forward."
        )


def split(job: PlannedJob) -> dict[str, Any]:
    """Returns the shape of the model and its parts, in the order in which a micro-batch passes them."""
    plan, model = job.plan, job.model
    return {
        "model": {
            "blocks": model.blocks, "hidden": model.hidden, "heads": model.heads,
            "kv_heads": model.kv_heads, "head_width": model.head_width, "ffn": model.ffn,
            "gated": model.gated, "bias": model.bias, "learned_positions": model.learned_positions,
            "layer_norm": model.layer_norm, "tied": model.tied, "sequence": model.seq,
            "vocabulary": model.vocab,
        },
        "dtype": model.dtype,
        "global_batch": job.job.global_batch,
        "micro_batch": plan.micro_batch,
        "micro_batches": plan.micro_batches,
        "data_parallel": plan.dp,
        "tensor_parallel": plan.shares[0].tp,
        "recompute": plan.recompute,
        "zero": plan.zero,
        "stages": plan.stages,
        "schedule": "schedule.csv",
        "parts": [
            {"stage": one.stage, "domain": job.domains[one.domain].name, "first": one.first, "past": one.past}
            for one in stage_order.along(job)
        ],
    }  # fmt: skip
