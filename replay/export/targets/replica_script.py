"""Trains one replica group of a plan with torchft: local steps, then an outer step with the other groups.

    REPLICA_GROUP_ID=0 TORCHFT_LIGHTHOUSE=http://HOST:29510 torchrun ... replica.py [--tiny] [--steps N]

Every group is a pipeline of its own, `train.py` beside this file. After every `inner_steps` steps the groups
average how far they have come and take an outer step with it (DiLoCo: Douillard et al. 2023,
arXiv:2311.08105; Nesterov momentum 0.9, learning rate 0.7); with 1 they average gradients in every step. A
group that dies leaves the quorum, and one that comes back takes the weights of the others. Needs PyTorch 2.7
and torchft.
"""

import argparse
import json
import os
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torchft import Manager, ProcessGroupGloo, ProcessGroupNCCL
from torchft.local_sgd import DiLoCo

from replay.export.targets.pipeline_script import HERE, ModelShape, SplitModel, batches, local

OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9


class ReplicaModel(SplitModel):
    """The stages of this process, in a group that averages with the others."""

    manager: Any
    every_step: bool

    def exchange(self) -> bool:
        """Averages gradients with the other groups, where every step is synchronous; False: one was lost, and
        the step does not count."""
        if not self.every_step:
            return True
        for layers in self.modules.values():
            for weight in layers.parameters():
                self.manager.allreduce(local(weight.grad)).wait()
        return bool(self.manager.should_commit())


def manager_of(model: ReplicaModel, plan: dict[str, Any], device: torch.device) -> Any:
    """Returns the manager of this process, which knows its group and the lighthouse."""
    parts = {str(n): layers for n, layers in model.modules.items()}

    def load(state: dict[str, Any]) -> None:
        for name, held in state["parts"].items():
            parts[name].load_state_dict(held)
        model.optimizer.load_state_dict(state["optimizer"])

    def save() -> dict[str, Any]:
        held = {name: layers.state_dict() for name, layers in parts.items()}
        return {"parts": held, "optimizer": model.optimizer.state_dict()}

    return Manager(
        pg=ProcessGroupNCCL() if device.type == "cuda" else ProcessGroupGloo(),
        min_replica_size=1, load_state_dict=load, state_dict=save, use_async_quorum=False,
        replica_id=f"group_{os.environ['REPLICA_GROUP_ID']}_", timeout=timedelta(seconds=600),
        quorum_timeout=timedelta(hours=1), init_sync=False,
    )  # fmt: skip


def outer_loop(model: ReplicaModel, plan: dict[str, Any]) -> Any:
    """Returns the context in which every inner step counts; the last of a round makes the outer step."""
    if model.every_step:
        return nullcontext()
    fragments = list(model.modules.values())
    outer = [
        torch.optim.SGD(one.parameters(), OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True)
        for one in fragments
    ]
    return DiLoCo(
        model.manager, fragments, model.optimizer, outer, sync_every=plan["inner_steps"],
        should_quantize=plan["bytes_per_parameter"] <= 1,
    )  # fmt: skip


def train(plan: dict[str, Any], shape: ModelShape, steps: int, seed: int, device: torch.device) -> None:
    """Trains this group and prints its losses; each group has sequences of its own."""
    group, rank = int(os.environ["REPLICA_GROUP_ID"]), dist.get_rank()
    model = ReplicaModel(plan, shape, device, seed)
    model.every_step = plan["inner_steps"] == 1
    model.manager = manager_of(model, plan, device)
    mine = plan["global_batch"] // plan["data_parallel"]
    source = batches(shape, plan["global_batch"], seed * 1_000 + group)
    with outer_loop(model, plan):
        for step in range(steps):
            if model.every_step:
                model.manager.start_quorum()
            part = slice(model.data * mine, (model.data + 1) * mine)
            tokens, following = (one[part].to(device) for one in next(source))
            found = model.step(tokens, following)
            if found is not None and rank % (plan["data_parallel"] * plan["tensor_parallel"]) == 0:
                said = {
                    "group": group,
                    "step": step,
                    "loss": found,
                    "groups": model.manager.num_participants(),
                }
                print(json.dumps(said), flush=True)
    weights = [local(weight).double().sum() for one in model.modules.values() for weight in one.parameters()]
    print(json.dumps({"group": group, "rank": rank, "weights": float(sum(weights))}), flush=True)
    model.manager.shutdown()


def main() -> None:
    """Reads the plan of this group beside this file and trains."""
    parser = argparse.ArgumentParser(description="Train one replica group of a plan.")
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="a small model of as many layers")
    asked = parser.parse_args()
    plan = json.loads((HERE / "plan.json").read_text())
    shape = ModelShape(**plan["model"])
    shape = shape.tiny(plan["tensor_parallel"]) if asked.tiny else shape
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        train(plan, shape, asked.steps, asked.seed, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
