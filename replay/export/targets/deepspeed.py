"""DeepSpeed: the JSON configuration of a plan, and the pipeline module that keeps its stages.

`PipelineModule` balances stages by itself (`partition_method`); the module written here gives it the bounds
of the plan. Ranks go by `PipeModelDataParallelTopology`: pipe, data, model. Source: DeepSpeed 0.19,
`runtime/config.py`, `runtime/pipe/module.py`, `runtime/pipe/engine.py`.
"""

import json
from collections.abc import Mapping
from typing import Any

from replay.export import differences, node_launcher, rank_map
from replay.export.contract import Difference
from replay.export.planned_job import PlannedJob
from replay.export.targets import torchrun

MODULE = '''"""The pipeline module of a plan: `PipelineModule` of DeepSpeed with the plan's own stages."""

from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

BOUNDS = {bounds}
"""First layer of every stage and the number of layers: 0 is the embedding, the last one the output head."""
TOPOLOGY = {topology}
"""Pipeline stages, tensor ranks, data ranks."""
RECOMPUTE = "{recompute}"
"""Activations that blocks compute again: full, selective (the attention core) or none."""


class PlannedPipeline(PipelineModule):
    """Layers as a list of modules or `LayerSpec`, one a layer of the plan."""

    def __init__(self, layers, **more):
        if len(layers) != BOUNDS[-1]:
            raise ValueError(f"the plan is for {{BOUNDS[-1]}} layers, these are {{len(layers)}}")
        stages, tensor, data = TOPOLOGY
        topology = PipeModelDataParallelTopology(num_pp=stages, num_mp=tensor, num_dp=data)
        super().__init__(layers=layers, topology=topology, **more)

    def _partition_layers(self, method="uniform"):
        self.parts = list(BOUNDS)
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])
'''
TRAIN = '''"""Trains with DeepSpeed in the pipeline of a plan; `launch.sh` starts it."""

import argparse
import json
from pathlib import Path

import deepspeed
import torch
from deepspeed.pipe import LayerSpec
from model import DecoderBlock, ModelShape, OutputHead, TokenEmbedding, batches, loss
from planned_pipeline import RECOMPUTE, PlannedPipeline

HERE = Path(__file__).resolve().parent


def layers(shape):
    """Returns one specification a layer of the plan; a stage makes its own alone."""
    blocks = [LayerSpec(DecoderBlock, shape, RECOMPUTE) for _ in range(shape.blocks)]
    return [LayerSpec(TokenEmbedding, shape), *blocks, LayerSpec(OutputHead, shape)]


def micro_batches(shape, config, rank, ranks):
    """Yields the micro-batches of one pipeline. SYNTHETIC tokens: put your data here."""
    size = config["train_micro_batch_size_per_gpu"]
    for tokens, following in batches(shape, config["train_batch_size"], seed=0):
        mine = slice(rank * len(tokens) // ranks, (rank + 1) * len(tokens) // ranks)
        yield from zip(tokens[mine].split(size), following[mine].split(size), strict=True)


def main():
    """Trains one batch after the other and prints the losses."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--tiny", action="store_true", help="a small model of as many layers, in fp32")
    asked = parser.parse_args()
    config = json.loads((HERE / "ds_config.json").read_text())
    shape = ModelShape(**json.loads((HERE / "model.json").read_text()))
    if asked.tiny:
        shape, config["bf16"], config["fp16"] = shape.tiny(1), {"enabled": False}, {"enabled": False}
    deepspeed.init_distributed()
    torch.manual_seed(0)
    model = PlannedPipeline(layers(shape), loss_fn=loss)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    data, ranks = engine.grid.get_data_parallel_rank(), engine.grid.get_data_parallel_world_size()
    source = micro_batches(shape, config, data, ranks)
    for step in range(asked.steps):
        found = float(engine.train_batch(data_iter=source))
        if torch.distributed.get_rank() == 0:
            print(json.dumps({"step": step, "loss": found}), flush=True)


if __name__ == "__main__":
    main()
'''


class DeepSpeedTarget:
    """Configuration and pipeline module of DeepSpeed."""

    name = "deepspeed"
    about = "DeepSpeed: ds_config.json, a pipeline module with the plan's stages, launcher"

    def difference(self, job: PlannedJob) -> Difference | None:
        """Returns the first part that DeepSpeed's pipelines cannot run."""
        stage, why = (1, "its pipelines shard optimizer states alone") if job.plan.stages > 1 else (3, "")
        return differences.first(
            job,
            (
                differences.no_replicas, differences.no_adapters, differences.dense, untied,
                differences.no_tensor_ranks,
                differences.schedule_among(("1f1b",), "its pipelines run 1F1B"), differences.usual_warmup,
                differences.zero_at_most(stage, why),
                differences.no_context_parallelism, differences.sorted_gpus,
            ),
        )  # fmt: skip

    def files(self, job: PlannedJob) -> Mapping[str, str | bytes]:
        """Returns configuration, pipeline module, a training skeleton, launcher and rank file."""
        plan = job.plan
        bounds = [0, *(part.past for part in job.parts())]
        module = MODULE.format(
            bounds=tuple(bounds), topology=(plan.stages, plan.shares[0].tp, plan.dp),
            recompute=plan.recompute,
        )  # fmt: skip
        return {
            "ds_config.json": json.dumps(configuration(job), indent=2) + "\n",
            "model.json": json.dumps(torchrun.split(job)["model"], indent=2) + "\n",
            "planned_pipeline.py": module,
            "train.py": TRAIN,
            "model.py": torchrun.SCRIPT.read_bytes(),
            "launch.sh": node_launcher.script(job, "train.py", {}),
            "ranks.csv": rank_map.table(job),
        }

    def start(self, job: PlannedJob) -> str:
        """Returns how to start, and where the model goes."""
        return (
            f"{node_launcher.usage(job, 'with PyTorch and DeepSpeed')}\n\n"
            "`micro_batches` in `train.py` makes synthetic tokens: put your data there. `PlannedPipeline` "
            "keeps the stages of the plan whatever the layers are; a trial with a small model, without GPUs: "
            f"`torchrun --standalone --nproc-per-node {len(rank_map.ranks(job))} train.py --tiny --steps 5`."
        )


def configuration(job: PlannedJob) -> dict[str, Any]:
    """Returns `ds_config.json`: batch, precision, ZeRO, pipeline."""
    plan, dtype = job.plan, job.model.dtype
    found: dict[str, Any] = {
        "train_batch_size": job.job.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.micro_batches,
        "bf16": {"enabled": dtype in ("bf16", "fp8")},
        "fp16": {"enabled": dtype == "fp16"},
        "zero_optimization": {"stage": plan.zero},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "gradient_clipping": 1.0,
    }
    if plan.stages > 1:
        found["pipeline"] = {"stages": plan.stages}
    return found


def untied(job: PlannedJob) -> Difference | None:
    """A tied matrix is a `TiedLayerSpec` in DeepSpeed, which takes a layer of its own for the final norm."""
    if not job.model.tied:
        return None
    return Difference(
        "an output matrix tied to the embedding", "its layers are those of the plan, each with its weights",
        "export it to torchrun or megatron", None,
    )  # fmt: skip
