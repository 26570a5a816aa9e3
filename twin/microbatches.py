"""A pipeline running: every forward, backward and message of every micro-batch is an event of the world.

The same semantics as `twin.referee` (spec 3.4). Messages of one direction arrive in the order in which they
were sent, so counters stand for inboxes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from twin.links import Pair
from twin.messages import Fabric, Wire
from twin.network import Network
from twin.referee import FORWARD, operations
from twin.timing import PlanTiming

Factors = NDArray[np.float64] | None
"""(K,) what an iteration computes slower in each domain than usual; None: as usual."""


class Stage:
    """Runs its operations in order; starts one when the stage is free and its message has arrived."""

    def __init__(self, run: "Run", index: int, down: Fabric | None, up: Fabric | None) -> None:
        pipeline = run.timing.pipeline
        self._run = run
        self._env = run.env
        self._down = down
        self._up = up
        self._blocking = pipeline.blocking
        self._every = pipeline.micro_batches
        self.operations = [
            kind == FORWARD
            for kind, _ in operations(pipeline.schedule, int(pipeline.warmup[index]), self._every)
        ]
        self._forward_ns = self._backward_ns = self._tail_ns = 0

    def _compute(self, duration_ns: int, done: Callable[[Event], None]) -> None:
        self._free = False
        self.busy_ns += duration_ns
        self._env.timeout(duration_ns).callbacks.append(done)

    def pace(self, forward_ns: int, backward_ns: int, tail_ns: int) -> None:
        """Durations of the operations that begin from now on."""
        self._forward_ns = forward_ns
        self._backward_ns = backward_ns
        self._tail_ns = tail_ns

    def begin(self, first: bool, last: bool) -> None:
        """A new iteration: nothing done, nothing arrived; the ends of the pipeline wait for nobody."""
        self.done = self._forwards = self._backwards = self.busy_ns = 0
        self._activations = self._every if first else 0
        self._gradients = self._every if last else 0
        self._free = True
        self.advance()

    def activation_arrived(self) -> None:
        """The next micro-batch has come down the pipeline."""
        self._activations += 1
        self.advance()

    def gradient_arrived(self) -> None:
        """The next micro-batch's gradient has come up the pipeline."""
        self._gradients += 1
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
        if self.operations[self.done]:
            if self._activations > self._forwards:
                self._compute(self._forward_ns, self._forward_done)
        elif self._gradients > self._backwards:
            self._compute(self._backward_ns, self._backward_done)

    def _forward_done(self, _: Event) -> None:
        self._forwards += 1
        self._pass_on(self._down)

    def _backward_done(self, _: Event) -> None:
        self._backwards += 1
        if self._backwards == self._every:
            self._env.timeout(self._tail_ns).callbacks.append(self._run.stage_done)
        self._pass_on(self._up)

    def _pass_on(self, direction: Fabric | None) -> None:
        self.done += 1
        self._free = direction is None or not self._blocking
        if direction is not None:
            direction.send()
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
        pairs = timing.boundaries
        back = [pair and (pair[1], pair[0]) for pair in pairs]
        down = [self._direction(network, pair, b, "of", "lf") for b, pair in enumerate(pairs)]
        up = [self._direction(network, pair, b, "ob", "lb") for b, pair in enumerate(back)]
        self._wires = [direction for direction in (*down, *up) if isinstance(direction, Wire)]
        self._factors: Factors = None
        ends = zip([*down, None], [None, *up], strict=True)
        self.stages = [Stage(self, i, below, above) for i, (below, above) in enumerate(ends)]
        for b, (there, returning) in enumerate(zip(down, up, strict=True)):
            sender, receiver = self.stages[b], self.stages[b + 1]
            there.arrived = self._arrival(receiver.activation_arrived, sender.released)
            returning.arrived = self._arrival(sender.gradient_arrived, receiver.released)

    def begin(self, factors: Factors = None) -> None:
        """Start an iteration now, in which domain k computes `factors[k]` times slower than usual."""
        self._factors = factors
        self.pace(self.timing)
        self._open = last = len(self.stages)
        for i, stage in enumerate(self.stages):
            stage.begin(i == 0, i == last - 1)

    def pace(self, timing: PlanTiming) -> None:
        """Other compute durations from the next operation on."""
        self.timing = timing
        tf, tb = timing.compute(self._factors)
        for i, stage in enumerate(self.stages):
            stage.pace(int(tf[i, 0]), int(tb[i, 0]), int(timing.pipeline.tail[i, 0]))

    def drop(self) -> None:
        """No iteration of this run is needed any more."""
        self.live = False
        for wire in self._wires:
            wire.drop()

    def stage_done(self, _: Event) -> None:
        """A stage has done its last backward and what follows it."""
        self._open -= 1
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

    def _direction(
        self, network: Network, pair: Pair | None, boundary: int, occupancy: str, latency: str
    ) -> Fabric:
        if pair is not None:
            return Wire(network, self.timing.routes[pair], self.timing.message_bytes)
        fixed = [int(getattr(self.timing.pipeline, name)[boundary, 0]) for name in (occupancy, latency)]
        return Fabric(self.env, *fixed)

    def _arrival(self, receive: Callable[[], None], release: Callable[[], None]) -> Callable[[], None]:
        def arrived() -> None:
            if self.live:
                receive()
                release()

        return arrived
