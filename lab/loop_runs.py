"""One training of the lab that a service follows, and the same training under its first plan alone.

The service decides by the lab's clock: its scenario (`on_lab_clock`) has the times of decisions, telemetry,
trace and moves of the lab's. Both trainings run the same steps over the same links from the same moment.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ingest.core import durable
from ingest.core.errors import UsageError
from ingest.core.scratch import Scratch
from lab.comparison import named, three_plans
from lab.emulated_wan import EmulatedWan
from lab.followed_job import FollowedJob
from lab.instructions import Job
from lab.miniature import Miniature
from lab.one_process import unmoved
from lab.training_job import LabError, Step, TrainingJob
from service.hook import TrainingHook
from twin.core.plan import Plan, to_json
from twin.settings.disturbances import LinkChange
from twin.settings.scenario_file import Scenario

Json = dict[str, Any]
ENDING_S = 10.0
PREDICTED = 5
"""Most steps of a plan whose time is predicted: the reference simulator takes a third of a second each."""


@dataclass(frozen=True, slots=True)
class Degradation:
    """The link between two sites, both ways, at `factor` of its bandwidth from `at_s` of the training on.

    `between`: indices in the scenario's list. Seconds of the scenario. No policy is told.
    """

    between: tuple[int, int]
    factor: float
    at_s: float

    def on(self, scenario: Scenario, start_s: float) -> Scenario:
        """Returns the scenario with it; the training begins at `start_s` of the window.

        Raises:
            UsageError: the scenario has no such sites.
        """
        if max(self.between) >= len(scenario.domains):
            raise UsageError(f"site {max(self.between) + 1}: {scenario.name} has {len(scenario.domains)}")
        src, dst = (scenario.domains[site] for site in self.between)
        change = LinkChange(
            src=src, dst=dst, both_ways=True, bandwidth_factor=self.factor, at_s=start_s + self.at_s
        )
        return scenario.model_copy(update={"link_changes": (*scenario.link_changes, change)})


def on_lab_clock(scenario: Scenario, time: float, about: str = "") -> Scenario:
    """Returns `scenario` for a service that decides by the clock of a lab at 1 : `time`.

    Periods, horizons, delays, pauses of moves and the trace of the past are 1 / `time` as long. Steps keep
    the scenario's seconds: a policy compares them with each other alone. What is to come unexpectedly is left
    out.
    """
    control, telemetry, moving = scenario.control, scenario.telemetry, scenario.moving
    return scenario.model_copy(
        update={
            "about": about,
            "wan": scenario.wan.model_copy(update={"stretch": scenario.wan.stretch / time}),
            "control": control.model_copy(
                update={
                    "period_s": control.period_s / time,
                    "horizons_s": tuple(one / time for one in control.horizons_s),
                }
            ),
            "telemetry": telemetry.model_copy(
                update={"period_s": telemetry.period_s / time, "delay_s": telemetry.delay_s / time}
            ),
            "moving": moving.model_copy(
                update={
                    "restart_s": moving.restart_s / time,
                    "bytes_per_parameter": moving.bytes_per_parameter / time,
                }
            ),
            "outages": (),
            "link_changes": tuple(one for one in scenario.link_changes if one.at_s is None),
        }
    )


class ServiceProcess:
    """`twin serve` of a store in a process; a context manager that gives its address, with its
    token."""

    def __init__(self, store: Path, scenario: Path, policy: str) -> None:
        twin = Path(sys.executable).with_name("twin")
        self._words = [
            str(twin), "--store", str(store), "serve", "--scenario", str(scenario), "--policy", policy,
            "--active", "--port", "0", "--json",
        ]  # fmt: skip

    def __enter__(self) -> str:
        self._process = subprocess.Popen(self._words, text=True, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        answer: Json = json.loads(self._process.stdout.readline() or "{}")
        if "url" not in answer:
            self._process.wait(ENDING_S)
            raise LabError("the service did not begin")
        return str(answer["console"])  # with the token, which the hook takes over

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def _folder() -> Iterator[Path]:
    with Scratch() as scratch:
        if scratch.path is None:
            raise LabError("a lab needs a folder for temporary files that can be written")
        yield scratch.path


def followed(lab: Miniature, store: Path, policy: str, steps: int, about: str = "") -> FollowedJob:
    """Returns the job after it has trained `steps` steps, followed by a service of its own.

    The service makes a new run for every `about`, and goes on with that of the same one.
    """
    first = three_plans(lab)[0]
    with _folder() as folder:
        path = folder / "scenario.yaml"
        clocked = on_lab_clock(lab.prepared.scenario, lab.scale.time, about)
        durable.replace(path, clocked.model_dump_json().encode())
        with (
            ServiceProcess(store, path, policy) as address,
            EmulatedWan(lab.job.sites, lab.links(), folder, lab.prepared.seed) as wan,
            TrainingHook(address, spool=folder / "spool", every_s=0.2) as hook,
        ):
            job = FollowedJob(lab, TrainingJob(wan, lab.job, lab.instruction(first)), hook, [first])
            job.job.begin()
            hook.running(to_json(first))
            job.run(steps)
    return job


def static_steps(lab: Miniature, steps: int) -> list[Step]:
    """Returns the steps of a training under the first plan alone."""
    with _folder() as folder, EmulatedWan(lab.job.sites, lab.links(), folder, lab.prepared.seed) as wan:
        job = TrainingJob(wan, lab.job, lab.instruction(three_plans(lab)[0]))
        job.end(steps)
        job.begin()
        return [event for event in job.events() if isinstance(event, Step)]


def lasted_s(steps: list[Step]) -> float:
    """Returns the seconds of the lab from the begin of the first step to the end of the last one."""
    return steps[-1].ended_s - steps[0].began_s


def static_figures(lab: Miniature, steps: int) -> Json:
    """Returns what was measured of a training under the first plan alone."""
    done = static_steps(lab, steps)
    return {"seconds": lasted_s(done), "late_s": done[-1].late_s}


def followed_figures(job: FollowedJob) -> Json:
    """Returns what was measured of a followed training: seconds of the lab by plan, moves, and the gap of the
    loss from that in one process, nats."""
    lab, losses = job.lab, [step.loss for step in job.steps]
    alone = _alone(lab.job, lab.prepared.job.global_batch, len(losses))
    return {
        "seconds": lasted_s(job.steps),
        "plans": [_cell(job, n, plan) for n, plan in enumerate(job.plans)],
        "moves": [
            {"step": one.step, "pause_s": one.pause_s, "sent_bytes": one.sent_bytes,
             "predicted_s": lab.move(job.plans[one.plan - 1], job.plans[one.plan], one.began_s).pause_s}
            for one in job.moves
        ],
        "refused": job.refused,
        "loss_gap": max(abs(one - other) for one, other in zip(losses, alone, strict=True)),
        "telemetry_dropped": job.hook.dropped,
        "late_s": job.steps[-1].late_s,
    }  # fmt: skip


@lru_cache(maxsize=4)
def _alone(job: Job, micro_batches: int, steps: int) -> tuple[float, ...]:
    """Losses of the training in one process, on one thread as the workers': threads wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return unmoved(job, micro_batches, steps)
    finally:
        torch.set_num_threads(before)


def _cell(job: FollowedJob, number: int, plan: Plan) -> Json:
    steps = [step for step in job.steps if step.plan == number]
    after = steps[1:] or steps
    some = after[:: -(-len(after) // PREDICTED)] if after else []
    predicted = [job.lab.step_s(plan, job.lab.state(one.began_s)) for one in some]
    return {
        "plan": named(job.lab, plan),
        "schedule": plan.schedule,
        "extra_warmup": plan.extra_warmup,
        "relays": [list(route) for route in plan.routes],
        "steps": len(steps),
        "measured_s": statistics.median(one.seconds for one in after) if after else None,
        "predicted_s": statistics.median(predicted) if after else None,
    }
