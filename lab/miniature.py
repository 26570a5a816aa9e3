"""A scenario in small: the job, plans and links of a lab, and what the twin predicts for each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from lab.instructions import Instruction, Job, StageTask
from lab.link_schedule import Direction, directions
from lab.scale import Scale
from twin.core.domain import LinkState, Pair
from twin.core.plan import Plan, Schedule, Share
from twin.costs.migration import needs_restart
from twin.estimation.estimator import Estimator
from twin.pipeline.reference_simulator import simulate
from twin.scenario.prepare import PreparedScenario

HIDDEN, SEQUENCE, VOCABULARY = 128, 64, 256
"""GptSizes of the model that is trained: a micro-batch is 32 kB of activations."""
FLOAT_BYTES = 4
LEARNING_RATE = 1e-3
SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe")


@dataclass(frozen=True, slots=True)
class PredictedMove:
    """Pause of a move, seconds of the lab: copying, then the restart."""

    copy_s: float
    restart_s: float

    @property
    def pause_s(self) -> float:
        """Seconds without training."""
        return self.copy_s + self.restart_s


class Miniature:
    """`prepared` at 1 : `time` in time. Bytes are scaled so that a message is one of the small model. Links
    drop a share `loss` of their packets, of which predictions know nothing. Time 0 of the lab is `start_s` of
    the window.

    Raises:
        UsageError: the scenario has several jobs, tied embeddings, or domains with more than one GPU.
    """

    def __init__(
        self, prepared: PreparedScenario, time: float, loss: float = 0.0, start_s: float = 0.0
    ) -> None:
        self.prepared, self._loss, self.start_s = prepared, loss, start_s
        self.estimator: Estimator = prepared.estimator()
        job = prepared.job
        _check(prepared)
        message = job.message_bytes(1)
        self.scale = Scale(time, message / (SEQUENCE * HIDDEN * FLOAT_BYTES))
        self.layers = self.estimator.n_layers
        self.job = Job(
            self.layers, HIDDEN, SEQUENCE, VOCABULARY, 1, prepared.seed, len(prepared.cluster.domains),
            LEARNING_RATE,
        )  # fmt: skip

    def links(self) -> dict[Pair, Direction]:
        """Directed links, in small, as the router plays them."""
        return directions(self.prepared.wan, self.scale, self._loss, self.start_s)

    def state(self, lab_s: float) -> LinkState:
        """True links of the scenario at a time of the lab."""
        return self.prepared.wan.at(round((self.start_s + max(0.0, self.scale.scenario_s(lab_s))) * NS_PER_S))

    def plan(self, order: Sequence[int], layers: Sequence[int], schedule: Schedule = "1f1b") -> Plan:
        """Plan with one stage a site, `layers` each in the order of `order`."""
        job = self.prepared.job
        shares = tuple(Share(site, count, 1, 1, (0,)) for site, count in zip(order, layers, strict=True))
        return Plan(
            shares, 1, 1, job.global_batch, schedule=schedule, p2p="rendezvous", recompute=job.recompute,
            zero=job.zero,
        )  # fmt: skip

    def instruction(self, plan: Plan, at_step: int = 0, old: Plan | None = None) -> Instruction:
        """`plan` as workers run it from step `at_step` on, after `old`."""
        pipeline = self.estimator.pipeline(plan, _open(len(self.prepared.cluster.domains)))
        assert pipeline is not None, "open links are never dead"
        seconds = [
            (row[:, 0] / NS_PER_S / self.scale.time).tolist()
            for row in (pipeline.tf, pipeline.tb, pipeline.tail)
        ]
        stages, first = [], 0
        for share, forward_s, backward_s, tail_s in zip(plan.shares, *seconds, strict=True):
            stages.append(StageTask(share.domain, first, first + share.layers, forward_s, backward_s, tail_s))
            first += share.layers
        job = self.prepared.job
        layer_bytes = tuple(round(job.moved_bytes(layer) / self.scale.bytes) for layer in job.model.layers())
        return Instruction(
            at_step, tuple(stages), plan.schedule, plan.micro_batches, layer_bytes, self.restarts(old, plan),
            plan.extra_warmup, plan.routes,
        )  # fmt: skip

    def step_s(self, plan: Plan, links: LinkState, *, announced: bool = True) -> float:
        """Predicted seconds of the lab for a step under `links` (of the scenario).

        With `announced` the word that a receive is posted crosses the link, as with gloo; without it the
        sender knows at once, as the kernels have it.
        """
        pipeline = self.estimator.pipeline(plan, links)
        if pipeline is None:
            return float("inf")
        found = simulate(replace(pipeline, p2p="rendezvous"), announced=announced)
        return self.scale.lab_s(found.iteration_ns / NS_PER_S)

    def restarts(self, old: Plan | None, new: Plan) -> float:
        """Seconds of the lab that a restart from `old` to `new` takes, 0 where none is needed."""
        return self.scale.lab_s(self.estimator.restart_s) if old and needs_restart(old, new) else 0.0

    def move(self, old: Plan, new: Plan, began_s: float) -> PredictedMove:
        """Predicted pause of a change of plan that begins at `began_s` of the lab.

        The bytes are the twin's; every link carries its own at once, at the rates that it has meanwhile.
        """
        moved = self.estimator.move(old, new, self.state(began_s)).bytes
        played, arrivals_s = self.links(), [began_s]
        for (i, j), link in played.items():
            if moved[i, j] > 0:
                left_s = link.departure_s(began_s, 8 * float(moved[i, j]) / self.scale.bytes)
                arrivals_s.append(left_s + link.delays_s[link.index(left_s)])
        return PredictedMove(max(arrivals_s) - began_s, self.restarts(old, new))


def _open(sites: int) -> LinkState:
    """Links without limit."""
    return LinkState(np.full((sites, sites), np.inf), np.zeros((sites, sites)))


def _check(prepared: PreparedScenario) -> None:
    """Refuses scenarios that the small job cannot stand for."""
    name = prepared.scenario.name
    crowded = [domain.name for domain in prepared.cluster.domains if domain.gpus != 1]
    if prepared.scenario.several_jobs:
        raise UsageError(f"scenario {name!r} has several jobs; a lab runs one, as that of `lab` does")
    if crowded:
        raise UsageError(
            f"scenario {name!r}: domain {crowded[0]} has more than one GPU; in a lab a site is one process, "
            "so give each domain `gpus: 1`, as `lab` does"
        )
    if prepared.job.model.tied:
        raise UsageError(
            f"scenario {name!r}: {prepared.job.model.name} ties its embedding to its last layer, which the "
            "small model does not; take one that does not, as llama2-7b"
        )
