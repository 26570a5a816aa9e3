"""A followed job without a network: what is reported, when an order becomes a plan, what is refused."""

from dataclasses import replace
from typing import Any, cast

import pytest

from lab.comparison import three_plans
from lab.followed_job import AHEAD, FollowedJob, cannot_run
from lab.miniature import Miniature
from lab.training_job import Move, Step, TrainingJob
from service.hook import TrainingHook
from service.observation_sinks import PlanChange
from tests.support.worlds import toy_scenario, toy_setup
from twin.core.plan import to_json


@pytest.fixture(scope="module")
def lab() -> Miniature:
    """Three sites of one GPU, Llama-2 7B, at 1 : 4 in time."""
    cluster = toy_scenario().cluster.model_dump()
    cluster["hardware"]["gpus_per_node"] = 1
    cluster["domains"] = [{"name": f"d{k}", "gpus": 1} for k in range(3)]
    job = {"global_batch": 4, "micro_batches": [1], "zero": 0, "p2p": "rendezvous"}
    return Miniature(toy_setup(3, cluster=cluster, job=job), 4.0)


class Hook:
    """Keeps what is reported; gives one order at once."""

    def __init__(self, plan: Any) -> None:
        self.said: list[Any] = []
        self.change: PlanChange | None = PlanChange(0, plan, "a trial")

    def add_step(self, seconds: float) -> None:
        self.said.append(("step", seconds))

    def link(self, src: str, dst: str, bandwidth_bps: float, latency_s: float) -> None:
        self.said.append(("link", src, dst))

    def plan_change(self) -> PlanChange | None:
        return self.change

    def applied(self, change: PlanChange, pause_s: float) -> None:
        self.said.append(("applied", change.number, pause_s))
        self.change = None

    def refused(self, change: PlanChange, reason: str) -> None:
        self.said.append(("refused", change.number))
        self.change = None


class Job:
    """Steps of one second; the plan that is given begins at its step."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self.ends = 0

    def change(self, instruction: Any) -> None:
        self.given.append(instruction)

    def end(self, at_step: int) -> None:
        self.ends = at_step

    def events(self) -> Any:
        number, plan = 0, 0
        while not self.ends or number < self.ends:
            if plan < len(self.given) and self.given[plan].at_step == number:
                plan += 1
                yield Move(plan, number, number, number + 0.25, number + 0.5, 8)
            yield Step(number, plan, number, number + 1.0, 1.0, 0.0)
            number += 1


def followed(lab: Miniature, plan: Any) -> tuple[FollowedJob, Hook, Job]:
    hook, job = Hook(plan), Job()
    one = FollowedJob(lab, cast(TrainingJob, job), cast(TrainingHook, hook), [three_plans(lab)[0]])
    one.run(6)
    return one, hook, job


def test_an_order_becomes_a_plan_ahead_and_its_pause_is_reported(lab: Miniature) -> None:
    plan = three_plans(lab)[1]
    one, hook, job = followed(lab, to_json(plan))
    assert [given.at_step for given in job.given] == [AHEAD] and one.plans[1] == plan
    assert ("applied", 0, pytest.approx(0.5)) in hook.said
    assert hook.said.count(("step", pytest.approx(lab.scale.time))) == len(one.steps) == 6
    assert sum(said[0] == "link" for said in hook.said) == 6 * lab.job.sites * (lab.job.sites - 1)
    assert [step.plan for step in one.steps] == [0, 0, 1, 1, 1, 1]


def test_a_plan_that_the_workers_cannot_run_is_refused(lab: Miniature) -> None:
    plan = three_plans(lab)[1]
    assert cannot_run(plan, lab) == ""
    for other, why in (
        (replace(plan, schedule="zb-h1"), "no schedule"),
        (replace(plan, micro_batches=1), "1 micro-batches"),
    ):  # fmt: skip
        assert why in cannot_run(other, lab)
    one, hook, job = followed(lab, to_json(replace(plan, micro_batches=1)))
    assert not job.given and len(one.refused) == 1 and ("refused", 0) in hook.said
