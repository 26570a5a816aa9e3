"""A pipeline running: every forward, backward and message of every micro-batch is an event of the world.

The same semantics as `twin.referee` (spec 3.4), with the operations of `twin.orders`. Messages of one
direction arrive in the order in which they were sent, so counters stand for inboxes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from twin.network.link_state import Pair
from twin.network.message_channels import Fabric, Wire
from twin.network.flows import Network
from twin.pipeline.operation_order import BACKWARD, FORWARD, WEIGHT, Operation, operations
from twin.costs.tied_embeddings import STEPS
from twin.engines.plan_timing import PlanTiming

Factors = NDArray[np.float64] | None
"""(K,) what an iteration computes slower in each domain than usual; None: as usual."""
Send = tuple[Fabric, Callable[[], None]]
"""A direction of a boundary, and what to call when a message has arrived there."""


class Stage:
    """Runs its operations in order; starts one when the stage is free and its message has arrived.

    A slot is a kind of operation on a chunk: kind * v + chunk.
    """

    def __init__(self, run: "Run", todo: list[Operation]) -> None:
        pipeline = run.timing.pipeline
        self._run = run
        self._env = run.env
        self._blocking = pipeline.blocking
        self.through: Callable[[Event], None] = run.stage_done
        self._every = pipeline.micro_batches
        self._chunks = pipeline.chunks
        self.operations = [kind * self._chunks + chunk for kind, chunk, _ in todo]
        self.sends: list[Send | None] = []
        self._lasts_ns: list[int] = []
        self._tail_ns = 0

    def pace(self, lasts_ns: list[int], tail_ns: int) -> None:
        """Durations by slot of the operations that begin from now on."""
        self._lasts_ns = lasts_ns
        self._tail_ns = tail_ns

    def begin(self, first: bool, last: bool) -> None:
        """A new iteration: nothing done, nothing arrived; the ends of the pipeline wait for nobody, nor do
        weight gradients for messages."""
        self.done = self.busy_ns = 0
        self._waiting = [
            self._every if slot >= WEIGHT * self._chunks else 0 for slot in range(3 * self._chunks)
        ]
        if first:
            self._waiting[FORWARD] = self._every
        if last:
            self._waiting[(BACKWARD + 1) * self._chunks - 1] = self._every
        self._free = True
        self.advance()

    def take(self, slot: int) -> None:
        """The next micro-batch, or its gradient, has come to one of the chunks."""
        self._waiting[slot] += 1
        self.advance()

    def released(self) -> None:
        """What this stage sent has arrived: in blocking mode it may compute again."""
        if self._blocking:
            self._free = True
            self.advance()

    def advance(self) -> None:
        """Start the next operation if it can start."""
        if not self._free or self.done == len(self.operations):
            return
        slot = self.operations[self.done]
        if self._waiting[slot]:
            self._waiting[slot] -= 1
            duration = self._lasts_ns[slot]
            self._free = False
            self.busy_ns += duration
            self._env.timeout(duration).callbacks.append(self._ended)

    def _ended(self, _: Event) -> None:
        send = self.sends[self.operations[self.done]]
        self.done += 1
        if self.done == len(self.operations):
            self._env.timeout(self._tail_ns).callbacks.append(self.through)
        self._free = send is None or not self._blocking
        if send is not None:
            send[0].send(send[1])
        self.advance()


class Run:
    """One plan's pipeline, iterating until it is dropped; `ended` is called at the end of every iteration.

    What is under way when `live` becomes False runs out within the iteration; nothing arrives any more.
    """

    def __init__(self, network: Network, timing: PlanTiming, ended: Callable[[], None]) -> None:
        self.env = network.env
        self.timing = timing
        self.live = True
        self._ended = ended
        pipeline = timing.pipeline
        pairs = timing.boundaries
        back = [pair and (pair[1], pair[0]) for pair in pairs]
        wires: dict[Pair, Wire] = {}
        self._down = [self._direction(network, wires, pair, b, "of", "lf") for b, pair in enumerate(pairs)]
        self._up = [self._direction(network, wires, pair, b, "ob", "lb") for b, pair in enumerate(back)]
        tied = () if timing.tied is None else (timing.tied, timing.tied[::-1])
        self._tied = [Wire(network, timing.routes[pair], timing.tied_bytes) for pair in tied]
        self._wires = [*wires.values(), *self._tied]
        self._factors: Factors = None
        self.stages = [Stage(self, todo) for todo in operations(pipeline)]
        for i, stage in enumerate(self.stages):
            slots = [(kind, chunk) for kind in (FORWARD, BACKWARD) for chunk in range(pipeline.chunks)]
            stage.sends = [self._sending(i, *slot) for slot in slots] + [None] * pipeline.chunks
            if self._tied and i in (0, len(self.stages) - 1):
                stage.through = self._end_done

    def begin(self, factors: Factors = None) -> None:
        """Start an iteration now, in which domain k computes `factors[k]` times slower than usual."""
        self._factors = factors
        self.pace(self.timing)
        self._open = last = len(self.stages)
        self._exchanges = 0  # ends of the pipeline that are through, then messages between them
        for i, stage in enumerate(self.stages):
            stage.begin(i == 0, i == last - 1)

    def pace(self, timing: PlanTiming) -> None:
        """Other compute durations from the next operation on."""
        self.timing = timing
        paced = timing.paced(self._factors)
        weight = 0 * paced.tf if paced.tw is None else paced.tw
        every, tails = len(self.stages), timing.own_tail[:, 0].tolist()
        rows = [row[:, 0].tolist() for row in (paced.tf, paced.tb - weight, weight)]
        for i, stage in enumerate(self.stages):
            stage.pace([duration for row in rows for duration in row[i::every]], tails[i])

    def drop(self) -> None:
        """No iteration of this run is needed any more."""
        self.live = False
        for wire in self._wires:
            wire.drop()

    def stage_done(self, _: Event) -> None:
        """A stage has done its last backward and what follows it."""
        self._open -= 1
        self._end_if_done()

    def _end_done(self, event: Event) -> None:
        """The first or the last stage waits for the other one, then they exchange gradients step by step."""
        self._step()

    def _step(self) -> None:
        """Both ends are through, or both messages of a step have arrived, every second time."""
        self._exchanges += 1
        if self._exchanges % 2 or not self.live:
            return
        if self._exchanges // 2 <= STEPS:
            for wire in self._tied:
                wire.send(self._step)
        else:
            self._open -= 2
            self._end_if_done()

    def _end_if_done(self) -> None:
        if self._open == 0 and self.live:
            self._ended()

    def extra_ns(self) -> NDArray[np.float64]:
        """What each domain (K,) has computed longer in this iteration than it usually would in one."""
        spent = self.timing.mean(np.array([stage.busy_ns for stage in self.stages], np.float64))
        extra: NDArray[np.float64] = spent - self.timing.busy_ns()
        return extra

    @property
    def done(self) -> tuple[int, int]:
        """Operations done in the running iteration, and operations of a whole one."""
        return sum(stage.done for stage in self.stages), sum(len(stage.operations) for stage in self.stages)

    def _sending(self, i: int, kind: int, chunk: int) -> Send | None:
        """Where stage i sends what it has made of a chunk, and what happens when it is there; None at the
        ends of the pipeline."""
        count, chunks = len(self.stages), self.timing.pipeline.chunks
        part = chunk * count + i
        target = part + 1 if kind == FORWARD else part - 1
        if not 0 <= target < count * chunks:
            return None
        sender, receiver, slot = self.stages[i], self.stages[target % count], kind * chunks + target // count

        def arrived() -> None:
            if self.live:
                receiver.take(slot)
                sender.released()

        return (self._down if kind == FORWARD else self._up)[min(part, target) % count], arrived

    def _direction(
        self, network: Network, wires: dict[Pair, Wire], pair: Pair | None, boundary: int, occupancy: str,
        latency: str,
    ) -> Fabric:  # fmt: skip
        """One direction of a boundary; boundaries over the same domains in the same direction share one."""
        if pair is None:
            fixed = [int(getattr(self.timing.pipeline, name)[boundary, 0]) for name in (occupancy, latency)]
            return Fabric(self.env, *fixed)
        if pair not in wires:
            wires[pair] = Wire(network, self.timing.routes[pair], self.timing.message_bytes)
        return wires[pair]
