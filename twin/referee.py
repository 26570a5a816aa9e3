"""The event form of an iteration: SimPy processes for stages and links. Slow, plain, and the measure of the
kernel.

Nothing here knows a recurrence: a stage is a process that runs its operations in order, a direction of a
link is a queue that serves one message at a time, a message is an event that triggers when it arrives.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from simpy import Environment, Event, Resource

from twin.pipeline import Pipeline

Process = Generator[Event, Any, None]
FORWARD, BACKWARD = "forward", "backward"
Heard = Callable[[str, int, int, int, int], None]
"""Is told of everything that ends: (what, where, micro-batch, start_ns, end_ns). `what` is forward, backward
(where: the stage), down or up (a message on the wire; where: the boundary)."""


def _deaf(what: str, where: int, micro_batch: int, start_ns: int, end_ns: int) -> None:
    """Nobody listens."""


def operations(schedule: str, warmup: int, micro_batches: int) -> Iterator[tuple[str, int]]:
    """Operations of one stage in order: (forward or backward, micro-batch)."""
    if schedule == "gpipe":
        warmup = micro_batches
    yield from ((FORWARD, k) for k in range(warmup))
    for k in range(micro_batches):
        if warmup + k < micro_batches:
            yield (FORWARD, warmup + k)
        yield (BACKWARD, k)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened: T, end of the last backward, and busy nanoseconds per stage (S,)."""

    iteration_ns: int
    end_ns: tuple[int, ...]
    busy_ns: tuple[int, ...]


@dataclass(slots=True)
class _Stage:
    """One stage's inboxes (a message event per micro-batch), and what it has done so far."""

    activations: list[Event]
    gradients: list[Event]
    busy_ns: int = 0
    end_ns: int = 0


@dataclass
class _Direction:
    """One direction of one link: messages queue, occupy it in turn, and arrive a latency later."""

    env: Environment
    occupancy_ns: int
    latency_ns: int
    wire: Resource = field(init=False)

    def __post_init__(self) -> None:
        self.wire = Resource(self.env, capacity=1)

    def carry(self, arrival: Event, sent: Callable[[int, int], None]) -> Process:
        """Carry one message; tells `sent` when it was on the wire, triggers `arrival` when it is there."""
        with self.wire.request() as turn:
            yield turn
            start_ns = self.env.now
            yield self.env.timeout(self.occupancy_ns)
        sent(start_ns, self.env.now)
        yield self.env.timeout(self.latency_ns)
        arrival.succeed()


class _Iteration:
    """One pipeline in one environment."""

    def __init__(self, env: Environment, pipeline: Pipeline, plan: int, heard: Heard) -> None:
        self.env = env
        self.heard = heard
        self.pipeline = pipeline.column(plan)
        one = self.pipeline
        last = one.stages - 1
        self.down = [_Direction(env, int(one.of[b, 0]), int(one.lf[b, 0])) for b in range(last)]
        self.up = [_Direction(env, int(one.ob[b, 0]), int(one.lb[b, 0])) for b in range(last)]
        self.stages = [_Stage(self._inbox(i > 0), self._inbox(i < last)) for i in range(one.stages)]

    def _inbox(self, fed: bool) -> list[Event]:
        """A message per micro-batch; the ends of the pipeline wait for nothing."""
        inbox = [self.env.event() for _ in range(self.pipeline.micro_batches)]
        for message in inbox if not fed else ():
            message.succeed()
        return inbox

    def run_stage(self, i: int) -> Process:
        """Compute in order; pass results on."""
        one, stage = self.pipeline, self.stages[i]
        for kind, k in operations(one.schedule, int(one.warmup[i]), one.micro_batches):
            forward = kind == FORWARD
            yield (stage.activations if forward else stage.gradients)[k]
            duration = int((one.tf if forward else one.tb)[i, 0])
            yield self.env.timeout(duration)
            stage.busy_ns += duration
            self.heard(kind, i, k, self.env.now - duration, self.env.now)
            if not forward:
                stage.end_ns = self.env.now
            sent = self._send(i, k, forward)
            if sent is not None and one.blocking:
                yield sent

    def _send(self, i: int, k: int, forward: bool) -> Event | None:
        """Start the message of operation k of stage i; its arrival, or None at the ends of the pipeline."""
        if forward and i < len(self.down):
            where, link, arrival = ("down", i), self.down[i], self.stages[i + 1].activations[k]
        elif not forward and i > 0:
            where, link, arrival = ("up", i - 1), self.up[i - 1], self.stages[i - 1].gradients[k]
        else:
            return None
        self.env.process(link.carry(arrival, lambda start, end: self.heard(*where, k, start, end)))
        return arrival


def simulate(pipeline: Pipeline, plan: int = 0, heard: Heard = _deaf) -> Timeline:
    """Run one iteration of plan `plan` of `pipeline` event by event; `heard` is told of every operation."""
    env = Environment(initial_time=0)
    iteration = _Iteration(env, pipeline, plan, heard)
    for i in range(pipeline.stages):
        env.process(iteration.run_stage(i))
    env.run()
    ends = tuple(stage.end_ns for stage in iteration.stages)
    tails = [int(tail) for tail in pipeline.tail[:, plan]]
    return Timeline(
        max(end + tail for end, tail in zip(ends, tails, strict=True)),
        ends,
        tuple(stage.busy_ns for stage in iteration.stages),
    )
