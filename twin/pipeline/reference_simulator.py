"""Reference simulator of an iteration: SimPy processes for stages and links. Slow; tests hold the kernels
equal to it.

No recurrences: a stage is a process that runs its operations in order
(`twin.pipeline.operation_order`), a direction of a link is a queue that serves one message at a time, a
message is an event that triggers when it arrives. Under rendezvous a message queues once its sender has it
and its receiver waits for it; neither event occupies anything.

That is what `torch.distributed.pipelining` does over gloo, as we read it: sends and receives are batched
`isend` and `irecv`, one receive is posted at a time, when the operation before it is done, and gloo moves no
data before the receive is posted. The sender goes on; that it waits for an earlier send before it ends the
next batch costs nothing more where the receiver is the slower of the two.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from simpy import Environment, Event, Resource

from twin.core.clock import At
from twin.pipeline import operation_order
from twin.pipeline.operation_order import BACKWARD, FORWARD, KINDS, WEIGHT
from twin.pipeline.pipeline import Pipeline

Process = Generator[Event, Any, None]
OnEnd = Callable[[str, int, int, int, int], None]
"""Called at the end of everything: (what, where, micro-batch, start_ns, end_ns). `what` is forward, backward,
weight (where: the stage), down or up (a message on the wire; where: the boundary)."""
LAST = 3
"""SimPy's own events of an instant have lower ranks."""


def _ignore(what: str, where: int, micro_batch: int, start_ns: int, end_ns: int) -> None:
    """Default of `on_end`."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Iteration time, end of the last backward and busy nanoseconds of each stage (S,)."""

    iteration_ns: int
    end_ns: tuple[int, ...]
    busy_ns: tuple[int, ...]


@dataclass(slots=True)
class _Stage:
    """Progress of one stage."""

    busy_ns: int = 0
    end_ns: int = 0


@dataclass
class _Direction:
    """One direction of one boundary: its messages queue for the wire, occupy it in turn, and arrive a
    latency later."""

    env: Environment
    wire: Resource
    occupancy_ns: int
    latency_ns: int

    def carry(self, posted: Event | None, arrival: Event, sent: Callable[[int, int], None]) -> Process:
        """Carry one message, not before `posted`: calls `sent` when it has left the wire, triggers `arrival`
        when it arrives."""
        if posted is not None:
            yield posted
        with self.wire.request() as turn:
            yield turn
            start_ns = self.env.now
            yield self.env.timeout(self.occupancy_ns)
        sent(start_ns, self.env.now)
        yield self.env.timeout(self.latency_ns)
        arrival.succeed()

    def announce(self, posted: Event) -> Process:
        """Carry the word that a receive is posted: it waits behind messages, occupies nothing, and triggers
        `posted` when it arrives."""
        with self.wire.request() as turn:
            yield turn
        yield self.env.timeout(self.latency_ns)
        posted.succeed()


class _Iteration:
    """One pipeline in one environment."""

    def __init__(
        self, env: Environment, pipeline: Pipeline, plan: int, on_end: OnEnd, announced: bool = False
    ) -> None:
        self.env = env
        self.announced = announced
        self.on_end = on_end
        self.pipeline = one = pipeline.column(plan)
        self.stages = [_Stage() for _ in range(one.stages)]
        self.operations = operation_order.operations(one)
        self.down = self._directions("of", "lf")
        self.up = self._directions("ob", "lb")
        if one.shared >= 0:
            self.down[-1].wire, self.up[-1].wire = self.up[one.shared].wire, self.down[one.shared].wire
        parts, ends = range(len(one.way)), {FORWARD: one.way[0], BACKWARD: one.way[-1]}
        self.inboxes = {kind: [self._inbox(part != end) for part in parts] for kind, end in ends.items()}
        self.posted = {kind: [self._events() for _ in parts] for kind in ends}

    def _directions(self, occupancy: str, latency: str) -> list[_Direction]:
        rows = zip(
            *(getattr(self.pipeline, name)[:, 0].tolist() for name in (occupancy, latency)), strict=True
        )
        return [_Direction(self.env, Resource(self.env, capacity=1), *row) for row in rows]

    def _inbox(self, receives: bool) -> list[Event]:
        """One arrival event per micro-batch; at the ends of the pipeline all have happened."""
        inbox = self._events()
        for message in inbox if not receives else ():
            message.succeed()
        return inbox

    def _events(self) -> list[Event]:
        """One event per micro-batch."""
        return [self.env.event() for _ in range(self.pipeline.micro_batches)]

    def _duration_ns(self, kind: int, part: int) -> int:
        one = self.pipeline
        weight = 0 if one.tw is None else int(one.tw[part, 0])
        return {FORWARD: int(one.tf[part, 0]), BACKWARD: int(one.tb[part, 0]) - weight, WEIGHT: weight}[kind]

    def run_stage(self, i: int) -> Process:
        """Process of stage i: run its operations in order, send results on."""
        one, stage = self.pipeline, self.stages[i]
        for kind, chunk, k in self.operations[i]:
            part = chunk * one.stages + i
            if kind != WEIGHT:
                if one.p2p == "rendezvous":
                    self._post(kind, part, k)
                yield self.inboxes[kind][part][k]
            duration = self._duration_ns(kind, part)
            yield self.env.timeout(duration)
            stage.busy_ns += duration
            self.on_end(KINDS[kind], i, k, self.env.now - duration, self.env.now)
            stage.end_ns = self.env.now
            if one.shared >= 0:  # two stages may use one wire at one instant: the first in the pipeline first
                yield At(self.env, 0, LAST + i)
            sent = None if kind == WEIGHT else self._send(kind, part, k)
            if sent is not None and one.p2p == "blocking":
                yield sent

    def _post(self, kind: int, part: int, k: int) -> None:
        """Post the receive of an operation; its sender knows at once, or when the word of it arrives."""
        posted, back = self.posted[kind][part][k], self.pipeline.hop(part, forward=kind != FORWARD)
        if not self.announced or back is None or back.boundary is None:
            posted.succeed()
        else:
            links = self.down if back.downstream else self.up
            self.env.process(links[back.boundary].announce(posted))

    def _send(self, kind: int, part: int, k: int) -> Event | None:
        """Start the message of an operation; its arrival, or None at the ends of the pipeline."""
        hop = self.pipeline.hop(part, forward=kind == FORWARD)
        if hop is None:
            return None
        arrival = self.inboxes[kind][hop.target][k]
        if hop.boundary is None:
            return arrival.succeed()
        where = hop.boundary
        what, link = ("down", self.down[where]) if hop.downstream else ("up", self.up[where])
        posted = self.posted[kind][hop.target][k] if self.pipeline.p2p == "rendezvous" else None

        def sent(start_ns: int, end_ns: int) -> None:
            self.on_end(what, where, k, start_ns, end_ns)

        self.env.process(link.carry(posted, arrival, sent))
        return arrival


def simulate(
    pipeline: Pipeline, plan: int = 0, on_end: OnEnd = _ignore, *, announced: bool = False
) -> Timeline:
    """Run one iteration of plan `plan` of `pipeline` event by event; `on_end` is called for each
    operation.

    With `announced` the sender under rendezvous learns of a posted receive by a message over the other
    direction of the link, behind what that carries, as gloo does; the kernels take it as known at once.
    """
    env = Environment(initial_time=0)
    iteration = _Iteration(env, pipeline, plan, on_end, announced)
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
