"""Trains one stage of the small GPT in a site; started by torchrun, one process a site.

    torchrun ... lab/stage_worker.py FOLDER

FOLDER holds the settings and the plans (`lab.instructions`); every worker prints one JSON line a step. A plan
begins at the step that it names: layers whose site changes travel with their optimizer's state over the
links, then all sites wait as long as a restart takes. The batch and the order of all sums stay the same, so
the loss goes on as if nothing had moved.
"""

import json
import os
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from lab.deep_warmup import DeepWarmup1F1B
from lab.instructions import Instruction, Job, StageTask, read_instruction, read_job
from lab.site_process import LAB, end_with_parent
from lab.small_gpt import GptSizes, TimedStage, batch, loss, make_layer

FLOAT_BYTES = 4
SCHEDULES: dict[str, Any] = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


class MovableLayer:
    """A layer with its own AdamW, so that both can move together."""

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        self.module = module
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=learning_rate)

    def state(self) -> Tensor:
        """Weights, both moments and the count of steps as one vector."""
        parts = [torch.zeros(1)]
        for weight in self.module.parameters():
            kept = self.optimizer.state.get(weight, {})
            empty = torch.zeros_like(weight)
            moments = (kept.get("exp_avg", empty), kept.get("exp_avg_sq", empty))
            parts += [weight.detach().reshape(-1), *(moment.reshape(-1) for moment in moments)]
            parts[0] = torch.as_tensor(float(kept.get("step", 0.0))).reshape(1)
        return torch.cat(parts)

    def take(self, state: Tensor) -> None:
        """Sets all that `state` gave."""
        steps, at = state[0].clone(), 1
        for weight in self.module.parameters():
            count = weight.numel()
            values = [
                state[at + n * count : at + (n + 1) * count].reshape(weight.shape).clone() for n in range(3)
            ]
            weight.data.copy_(values[0])
            self.optimizer.state[weight] = {
                "step": steps.clone(), "exp_avg": values[1], "exp_avg_sq": values[2]
            }  # fmt: skip
            at += 3 * count


class Worker:
    """The layers of this site and the pipeline that they are a stage of."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder, self.site = job, folder, dist.get_rank()
        self.sizes = GptSizes(job.layers, job.hidden, job.sequence, job.vocabulary)
        self.layers: dict[int, MovableLayer] = {}
        self.groups = {
            ranks: dist.new_group(list(ranks))
            for count in range(2, job.sites + 1)
            for ranks in combinations(range(job.sites), count)
        }
        self.plan: Instruction | None = None
        self.schedule: Any = None
        self.stage: TimedStage | None = None

    def task(self, plan: Instruction) -> tuple[int, StageTask] | None:
        """Place in the pipeline and task of this site; None: the plan leaves it out."""
        return next(((n, one) for n, one in enumerate(plan.stages) if one.site == self.site), None)

    def begin(self, plan: Instruction) -> None:
        """Makes the layers of this site for the first plan."""
        found = self.task(plan)
        if found is not None:
            for number in range(found[1].first, found[1].last):
                module = make_layer(self.sizes, number, self.job.seed)
                self.layers[number] = MovableLayer(module, self.job.learning_rate)
        self._join(plan)

    def move(self, plan: Instruction) -> int:
        """Sends and receives the layers that change their site; bytes that this site sent."""
        assert self.plan is not None
        moving = [
            (number, source, target)
            for number, (source, target) in enumerate(zip(_homes(self.plan), _homes(plan), strict=True))
            if source != target and self.site in (source, target)
        ]
        pending, arriving, leaving = [], {}, []
        # Receives first: gloo announces each to its sender over the connection that sent layers fill, and a
        # word behind them would let the other direction begin when this one has ended.
        for number, source, target in moving:
            made = make_layer(self.sizes, number, self.job.seed)
            layer = self.layers.pop(number, None) or MovableLayer(made, self.job.learning_rate)
            state = layer.state()
            parcel = torch.zeros(max(len(state), plan.layer_bytes[number] // FLOAT_BYTES))
            if self.site == target:
                arriving[number] = (layer, parcel, len(state))
                pending.append(dist.irecv(parcel, source, tag=number))
            else:
                parcel[: len(state)] = state
                leaving.append((number, target, parcel))
        pending += [dist.isend(parcel, target, tag=number) for number, target, parcel in leaving]
        sent = sum(FLOAT_BYTES * len(parcel) for *_, parcel in leaving)
        for one in pending:
            one.wait()
        for number, (layer, parcel, length) in arriving.items():
            layer.take(parcel[:length])
            self.layers[number] = layer
        dist.barrier()
        return sent

    def restart(self, plan: Instruction, restart_s: float) -> None:
        """Waits for the time of a restart, then joins the pipeline of the plan."""
        time.sleep(restart_s)
        self._join(plan)

    def _join(self, plan: Instruction) -> None:
        found, self.plan, self.schedule, self.stage = self.task(plan), plan, None, None
        if found is None:
            return
        place, task = found
        modules = [self.layers[number].module for number in range(task.first, task.last)]
        self.stage = TimedStage(modules, task.forward_s, task.backward_s)
        sites = [stage.site for stage in plan.stages]
        if len(sites) == 1:
            return
        rows = self.job.micro_batch
        tokens = torch.zeros(rows, self.job.sequence, dtype=torch.int64)
        between = torch.zeros(rows, self.job.sequence, self.job.hidden, requires_grad=True)
        logits = torch.zeros(rows, self.job.sequence, self.job.vocabulary, requires_grad=True)
        last = place == len(sites) - 1
        ordered = tuple(sorted(sites))
        stage = PipelineStage(
            self.stage, place, len(sites), torch.device("cpu"), group=self.groups[ordered],
            input_args=tokens if place == 0 else between, output_args=logits if last else between,
            input_grads=None if place == 0 else between.detach(),
            output_grads=(logits if last else between).detach(),
        )  # fmt: skip
        stage.stage_index_to_group_rank = {n: ordered.index(site) for n, site in enumerate(sites)}
        if plan.extra_warmup and plan.schedule == "1f1b":
            self.schedule = DeepWarmup1F1B(stage, plan.micro_batches, loss, plan.extra_warmup)
        else:
            self.schedule = SCHEDULES[plan.schedule](stage, plan.micro_batches, loss_fn=loss)

    def step(self, number: int) -> float | None:
        """Trains one batch; its mean loss in the last stage, None elsewhere."""
        assert self.plan is not None
        found = self.task(self.plan)
        if found is None or self.stage is None:
            return None
        place, task = found
        rows = self.plan.micro_batches * self.job.micro_batch
        tokens, following = batch(self.sizes, number, rows, self.job.seed)
        for layer in self.layers.values():
            layer.optimizer.zero_grad()
        losses: list[Tensor] = []
        if self.schedule is None:
            losses = self._alone(tokens, following)
        elif place == 0:
            self.schedule.step(tokens, return_outputs=False)
        elif place == len(self.plan.stages) - 1:
            self.schedule.step(target=following, losses=losses, return_outputs=False)
        else:
            self.schedule.step(return_outputs=False)
        due_s = time.monotonic() + task.tail_s
        for layer in self.layers.values():
            layer.optimizer.step()
        self.stage.wait_until(due_s)
        return float(torch.stack(losses).detach().mean()) if losses else None

    def _alone(self, tokens: Tensor, following: Tensor) -> list[Tensor]:
        """Losses of the micro-batches where one site holds the whole model."""
        assert self.plan is not None and self.stage is not None
        losses = []
        rows = self.job.micro_batch
        for k in range(self.plan.micro_batches):
            part = slice(k * rows, (k + 1) * rows)
            found = loss(self.stage(tokens[part]), following[part])
            (found / self.plan.micro_batches).backward()
            losses.append(found.detach())
        return losses


def _homes(plan: Instruction) -> list[int]:
    """Site of every layer."""
    return [stage.site for stage in plan.stages for _ in range(stage.first, stage.last)]


def next_plan(folder: Path, known: int, number: int, *, idle: bool) -> Instruction | None:
    """The plan that begins with step `number`, None: the present one goes on; an idle site waits for one."""
    while True:
        plan = read_instruction(folder, known)
        if plan is not None and (idle or plan.at_step <= number):
            if plan.at_step < number:
                raise RuntimeError(f"plan {known} was for step {plan.at_step}, this is {number}")
            return plan
        if not idle:
            return None
        time.sleep(0.005)


def say(**fields: Any) -> None:
    """Prints one JSON line for the supervisor."""
    print(json.dumps(fields), flush=True)


def main(folder: Path) -> None:
    """Trains until a plan without stages."""
    if LAB in os.environ:
        end_with_parent()
    torch.set_num_threads(1)
    job = read_job(folder)
    dist.init_process_group("gloo")
    worker = Worker(job, folder)
    first = read_instruction(folder, 0)
    assert first is not None, "the supervisor writes the first plan before it starts workers"
    worker.begin(first)
    dist.barrier()
    say(site=worker.site, event="ready")
    while not (folder / "go").exists():
        time.sleep(0.005)
    known, number = 1, 0
    while True:
        plan = next_plan(folder, known, number, idle=worker.stage is None)
        if plan is not None:
            number = plan.at_step
            if not plan.stages:
                break
            began_ns = time.monotonic_ns()
            sent = worker.move(plan)
            copied_ns = time.monotonic_ns()
            worker.restart(plan, plan.restart_s)
            say(
                site=worker.site, event="moved", plan=known, step=number, began_ns=began_ns,
                copied_ns=copied_ns, ended_ns=time.monotonic_ns(), sent_bytes=sent,
            )  # fmt: skip
            known += 1
            continue
        began_ns = time.monotonic_ns()
        found = worker.step(number)
        late_s = 0.0 if worker.stage is None else worker.stage.late_s
        say(
            site=worker.site, event="step", step=number, plan=known - 1, began_ns=began_ns,
            ended_ns=time.monotonic_ns(), loss=found, late_s=late_s,
        )  # fmt: skip
        number += 1
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
