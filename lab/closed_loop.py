"""A lab's job that a decision service follows: telemetry in by the hook, decisions out and carried out.

    python -m lab.closed_loop --store .twin/lab --steps 24        (`make lab-loop`)

The service (`twin serve`, active) is a process of its own behind HTTP. The job of the lab reports its plan,
its steps and samples of the links through `service.hook`, in units of the scenario; orders come back through
the hook and become the next plan of the workers, at a step boundary ahead. It begins with an even cut.
Printed as JSON: steps of each plan and pauses of moves, measured and predicted, and the loss beside that of
the training in one process; then the same steps under the first plan alone, unfollowed, over the same links.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from ingest.core.errors import TwinError, UsageError
from ingest.core.scratch import Scratch
from lab.comparison import named, three_plans
from lab.emulated_wan import EmulatedWan, missing
from lab.miniature import Miniature
from lab.one_process import unmoved
from lab.training_job import LabError, Move, Step, TrainingJob
from replay.store.decision_codec import plan_from_json
from service.hook import TrainingHook
from service.observation_sinks import PlanChange
from twin.core.plan import Plan, to_json
from twin.scenario import prepare as scenarios

Json = dict[str, Any]
AHEAD = 2
"""Steps between an order and the step that begins under its plan: workers read plans at every step."""
ENDING_S = 10.0


@dataclass
class FollowedJob:
    """A job of the lab, what it has reported, and what it was ordered."""

    lab: Miniature
    job: TrainingJob
    hook: TrainingHook
    plans: list[Plan]
    steps: list[Step] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    waiting: PlanChange | None = None

    def run(self, last: int) -> None:
        """Trains `last` steps; every step is reported, and an order is carried out where one waits."""
        ended = False
        for event in self.job.events():
            if isinstance(event, Move):
                self._moved(event)
                continue
            self._stepped(event)
            if not ended and event.number + AHEAD >= last:
                self.job.end(last)
                ended = True
            elif not ended and self.waiting is None:
                self._follow(event.number + AHEAD, last)

    def _stepped(self, step: Step) -> None:
        self.steps.append(step)
        self.hook.add_step(self.lab.scale.scenario_s(step.seconds))
        state, names = self.lab.state(step.ended_s), self.lab.prepared.wan.names
        for i, src in enumerate(names):
            for j, dst in enumerate(names):
                if i != j:
                    self.hook.link(src, dst, float(state.bandwidth_bps[i, j]), float(state.latency_s[i, j]))

    def _follow(self, at_step: int, last: int) -> None:
        """Takes the order that waits, unless the training ends first."""
        change = self.hook.plan_change()
        if change is None or at_step >= last:
            return
        plan = plan_from_json(change.plan)
        why = "it is no plan" if plan is None else cannot_run(plan, self.lab)
        if plan is None or why:
            self.refused.append(why)
            self.hook.refused(change, why)
            return
        self.job.change(self.lab.instruction(plan, at_step, self.plans[-1]))
        self.plans.append(plan)
        self.waiting = change

    def _moved(self, move: Move) -> None:
        self.moves.append(move)
        assert self.waiting is not None, "only orders change the plan"
        self.hook.applied(self.waiting, self.lab.scale.scenario_s(move.pause_s))
        self.waiting = None


def cannot_run(plan: Plan, lab: Miniature) -> str:
    """Returns why the workers of a lab cannot run a plan; "": they can."""
    if plan.dp != 1 or any(share.tp != 1 or share.pp != 1 for share in plan.shares):
        return "a site of the lab is one process: dp, tp and pp of a site are 1"
    if plan.schedule not in ("1f1b", "gpipe") or plan.micro_batch != lab.job.micro_batch:
        return f"the lab has no schedule {plan.schedule} or micro-batches of {plan.micro_batch}"
    if plan.micro_batches != lab.prepared.job.global_batch:
        return f"{plan.micro_batches} micro-batches; the lab's step has {lab.prepared.job.global_batch}"
    return ""


class ServiceProcess:
    """`twin serve` of a store in a process; a context manager that gives its address."""

    def __init__(self, store: Path, scenario: str, policy: str) -> None:
        twin = Path(sys.executable).with_name("twin")
        self._words = [
            str(twin), "--store", str(store), "serve", "--scenario", scenario, "--policy", policy,
            "--active", "--port", "0", "--json",
        ]  # fmt: skip

    def __enter__(self) -> str:
        self._process = subprocess.Popen(self._words, text=True, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        answer: Json = json.loads(self._process.stdout.readline() or "{}")
        if "url" not in answer:
            self._process.wait(ENDING_S)
            raise LabError("the service did not begin")
        return str(answer["url"])

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def followed(lab: Miniature, address: str, steps: int) -> FollowedJob:
    """Returns the job after it has trained `steps` steps, followed by the service at `address`."""
    first = three_plans(lab)[0]
    with Scratch() as scratch:
        if scratch.path is None:
            raise LabError("a lab needs a folder for temporary files that can be written")
        with (
            EmulatedWan(lab.job.sites, lab.links(), scratch.path, lab.prepared.seed) as wan,
            TrainingHook(address, spool=scratch.path / "spool", every_s=0.2) as hook,
        ):
            job = FollowedJob(lab, TrainingJob(wan, lab.job, lab.instruction(first)), hook, [first])
            job.job.begin()
            hook.running(to_json(first))
            job.run(steps)
    return job


def static_s(lab: Miniature, steps: int) -> float:
    """Returns the seconds of the lab in which the first plan alone trains `steps` steps."""
    with Scratch() as scratch:
        if scratch.path is None:
            raise LabError("a lab needs a folder for temporary files that can be written")
        with EmulatedWan(lab.job.sites, lab.links(), scratch.path, lab.prepared.seed) as wan:
            job = TrainingJob(wan, lab.job, lab.instruction(three_plans(lab)[0]))
            job.end(steps)
            job.begin()
            done = [event for event in job.events() if isinstance(event, Step)]
    return done[-1].ended_s - done[0].began_s


def figures(job: FollowedJob) -> Json:
    """Returns what was measured: seconds of the lab by plan, moves, and the gap of the loss in nats."""
    lab, losses = job.lab, [step.loss for step in job.steps]
    alone = _alone(lab, len(losses))
    cells = [_cell(job, n, plan) for n, plan in enumerate(job.plans)]
    return {
        "schema": "twin.lab_loop/1",
        "dataset": lab.prepared.dataset,
        "steps": len(losses),
        "followed_s": job.steps[-1].ended_s - job.steps[0].began_s,
        "plans": cells,
        "moves": [
            {"step": one.step, "pause_s": one.pause_s, "sent_bytes": one.sent_bytes,
             "predicted_s": lab.move(job.plans[one.plan - 1], job.plans[one.plan], one.began_s).pause_s}
            for one in job.moves
        ],
        "refused": job.refused,
        "loss_gap": max(abs(one - other) for one, other in zip(losses, alone, strict=True)),
        "telemetry_dropped": job.hook.dropped,
    }  # fmt: skip


def _alone(lab: Miniature, steps: int) -> tuple[float, ...]:
    """Losses of the training in one process, on one thread as the workers': threads wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return unmoved(lab.job, lab.prepared.job.global_batch, steps)
    finally:
        torch.set_num_threads(before)


def _cell(job: FollowedJob, number: int, plan: Plan) -> Json:
    steps = [step for step in job.steps if step.plan == number]
    after = steps[1:] or steps
    played = replace(plan, extra_warmup=0)  # the workers' 1F1B knows none
    predicted = [job.lab.step_s(played, job.lab.state(one.began_s)) for one in after]
    return {
        "plan": named(job.lab, plan),
        "steps": len(steps),
        "measured_s": statistics.median(one.seconds for one in after) if after else None,
        "predicted_s": statistics.median(predicted) if after else None,
    }


def main(words: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Runs the loop and prints its figures."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--store", type=Path, default=Path(".twin/lab"))
    parser.add_argument("--scenario", default="lab")
    parser.add_argument("--policy", default="mpc")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--time-scale", type=float, default=4.0)
    parser.add_argument("--no-static", action="store_true", help="leave the unfollowed training out")
    given = parser.parse_args(words)
    try:
        found = _measured(given)
    except TwinError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found, indent=2), file=out)
    return 0


def _measured(given: argparse.Namespace) -> Json:
    if (lack := missing()) is not None:
        raise UsageError(f"no lab on this machine: {lack}")
    lab = Miniature(scenarios.prepare(scenarios.load(given.scenario), given.store), given.time_scale)
    with ServiceProcess(given.store, given.scenario, given.policy) as address:
        found = figures(followed(lab, address, given.steps))
    if not given.no_static:
        found["static_s"] = static_s(lab, given.steps)
    return found


if __name__ == "__main__":
    sys.exit(main())
