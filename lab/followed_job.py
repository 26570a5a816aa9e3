"""A job of the lab that follows a service: it reports, and carries out orders at a step boundary."""

from dataclasses import dataclass, field

from lab.miniature import Miniature
from lab.training_job import Move, Step, TrainingJob
from replay.store.decision_codec import plan_from_json
from service.hook import TrainingHook
from service.observation_sinks import PlanChange
from twin.core.plan import Plan

AHEAD = 2
"""Steps between an order and the step that begins under its plan: workers read plans at every step."""


@dataclass
class FollowedJob:
    """A job of the lab, what it has reported, and what it was ordered.

    Steps are reported in seconds of the scenario, pauses in those of the lab, which the service's clock has.
    """

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
        self.hook.applied(self.waiting, move.pause_s)
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
