"""A running pipeline: every forward, backward and message of every micro-batch is an event of the world.

Semantics of `twin.pipeline.reference_simulator`, operations of `twin.pipeline.operation_order`. Messages of
one direction arrive in the order in which they were sent, so that counters replace inboxes.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from twin.core.domain import Pair
from twin.costs.tied_embeddings import STEPS
from twin.engines.plan_timing import PlanTiming
from twin.network.flows import Network
from twin.network.message_channels import SiteChannel, WanChannel
from twin.pipeline.operation_order import BACKWARD, FORWARD, WEIGHT, Operation, operations

Factors = NDArray[np.float64] | None
"""(K,) compute time of an iteration over the usual, by domain; None: as usual."""
Send = Callable[[], None]
"""Puts a message on its way; under rendezvous only its receiver does."""


class StageProcess:
    """Runs the operations of a stage in order, each when the stage is free and its message has arrived.

    A slot is a kind of operation on a chunk: kind * v + chunk.
    """

    def __init__(self, run: "PipelineRun", of_stage: list[Operation]) -> None:
        pipeline = run.timing.pipeline
        self._run = run
        self._env = run.env
        self._blocking, self._meets = pipeline.p2p == "blocking", pipeline.p2p == "rendezvous"
        self.on_tail_done: Callable[[Event], None] = run.stage_done
        self._micro_batches = pipeline.micro_batches
        self._chunks = pipeline.chunks
        self.operations = [kind * self._chunks + chunk for kind, chunk, _ in of_stage]
        self.sends: list[Send | None] = []
        self.receives: dict[int, Send] = {}  # under rendezvous: what each slot waits for
        self._durations_ns: list[int] = []
        self._tail_ns = 0

    def set_durations(self, durations_ns: list[int], tail_ns: int) -> None:
        """Set the durations by slot of the operations that begin from now on."""
        self._durations_ns = durations_ns
        self._tail_ns = tail_ns

    def begin(self, first: bool, last: bool) -> None:
        """Start an iteration: forwards of the first part, backwards of the last and weight gradients wait
        for no message."""
        self.done = self.busy_ns = 0
        self._waiting = [
            self._micro_batches if slot >= WEIGHT * self._chunks else 0 for slot in range(3 * self._chunks)
        ]
        if first:
            self._waiting[FORWARD] = self._micro_batches
        if last:
            self._waiting[(BACKWARD + 1) * self._chunks - 1] = self._micro_batches
        self._offered = [0] * len(self._waiting)
        self._receiving = False
        self._free = True
        self.advance()

    def offer(self, slot: int) -> None:
        """Under rendezvous: a message for a slot is ready at its sender."""
        self._offered[slot] += 1
        self.advance()

    def receive(self, slot: int) -> None:
        """Take in the next micro-batch, or its gradient, of a chunk."""
        self._waiting[slot] += 1
        self._receiving = False
        self.advance()

    def delivered(self) -> None:
        """Compute again in blocking mode: the message that this stage sent has arrived."""
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
            duration = self._durations_ns[slot]
            self._free = False
            self.busy_ns += duration
            self._env.timeout(duration).callbacks.append(self._ended)
        elif self._offered[slot] and not self._receiving:
            self._offered[slot] -= 1
            self._receiving = True
            self.receives[slot]()

    def _ended(self, _: Event) -> None:
        send = self.sends[self.operations[self.done]]
        self.done += 1
        if self.done == len(self.operations):
            self._env.timeout(self._tail_ns).callbacks.append(self.on_tail_done)
        self._free = send is None or not self._blocking
        if send is not None:
            send()
        self.advance()


class PipelineRun:
    """The pipeline of a plan, iterating until it is dropped; `ended` is called at the end of every iteration.

    Operations under way when `live` becomes False end without effect; no message arrives any more.
    """

    def __init__(self, network: Network, timing: PlanTiming, ended: Callable[[], None]) -> None:
        self.env = network.env
        self.timing = timing
        self.live = True
        self._ended = ended
        pipeline = timing.pipeline
        pairs = timing.boundaries
        back = [pair and (pair[1], pair[0]) for pair in pairs]
        wires: dict[Pair, WanChannel] = {}
        self._down = [self._direction(network, wires, pair, b, "of", "lf") for b, pair in enumerate(pairs)]
        self._up = [self._direction(network, wires, pair, b, "ob", "lb") for b, pair in enumerate(back)]
        tied = () if timing.tied is None else (timing.tied, timing.tied[::-1])
        self._tied = [WanChannel(network, timing.routes[pair], timing.tied_bytes) for pair in tied]
        self._wires = [*wires.values(), *self._tied]
        self._factors: Factors = None
        self.stages = [StageProcess(self, of_stage) for of_stage in operations(pipeline)]
        for i, stage in enumerate(self.stages):
            slots = [(kind, chunk) for kind in (FORWARD, BACKWARD) for chunk in range(pipeline.chunks)]
            stage.sends = [self._sending(i, *slot) for slot in slots] + [None] * pipeline.chunks
            if self._tied and i in (0, len(self.stages) - 1):
                stage.on_tail_done = self._tied_stage_done

    def begin(self, factors: Factors = None) -> None:
        """Start an iteration, in which domain k computes `factors[k]` times slower than usual."""
        self._factors = factors
        self.set_durations(self.timing)
        self._open = len(self.stages)
        last = self.timing.pipeline.way[-1] % len(self.stages)
        self._exchanges = 0  # end stages that are done, then messages between them
        for i, stage in enumerate(self.stages):
            stage.begin(i == 0, i == last)

    def set_durations(self, timing: PlanTiming) -> None:
        """Use the compute durations of `timing` from the next operation on."""
        self.timing = timing
        scaled = timing.scaled(self._factors)
        weight = 0 * scaled.tf if scaled.tw is None else scaled.tw
        every, tails = len(self.stages), timing.own_tail[:, 0].tolist()
        rows = [row[:, 0].tolist() for row in (scaled.tf, scaled.tb - weight, weight)]
        for i, stage in enumerate(self.stages):
            stage.set_durations([duration for row in rows for duration in row[i::every]], tails[i])

    def drop(self) -> None:
        """Stop for good."""
        self.live = False
        for wire in self._wires:
            wire.drop()

    def stage_done(self, _: Event) -> None:
        """Count a stage that has done its last backward and what follows it."""
        self._open -= 1
        self._end_if_done()

    def _tied_stage_done(self, event: Event) -> None:
        """Count an end stage that is done; when both are, they exchange the gradients of a tied embedding."""
        self._step()

    def _step(self) -> None:
        """Start the next step of the exchange at every second call: both stages, or both messages, are
        there."""
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
        """Computing time (K,) of this iteration beyond the usual."""
        spent = self.timing.mean(np.array([stage.busy_ns for stage in self.stages], np.float64))
        extra: NDArray[np.float64] = spent - self.timing.busy_ns()
        return extra

    @property
    def done(self) -> tuple[int, int]:
        """Operations done in the running iteration, and operations of a whole one."""
        return sum(stage.done for stage in self.stages), sum(len(stage.operations) for stage in self.stages)

    def _sending(self, i: int, kind: int, chunk: int) -> Send | None:
        """What stage i does with the result of an operation; None at the ends of the pipeline."""
        count, pipeline = len(self.stages), self.timing.pipeline
        hop = pipeline.hop(chunk * count + i, forward=kind == FORWARD)
        if hop is None:
            return None
        sender, receiver = self.stages[i], self.stages[hop.target % count]
        slot = kind * pipeline.chunks + hop.target // count

        def arrived() -> None:
            if self.live:
                receiver.receive(slot)
                sender.delivered()

        if hop.boundary is None:
            return arrived
        channel = (self._down if hop.downstream else self._up)[hop.boundary]
        if pipeline.p2p != "rendezvous":
            return partial(channel.send, arrived)
        receiver.receives[slot] = partial(channel.send, arrived)
        return partial(receiver.offer, slot)

    def _direction(
        self, network: Network, wires: dict[Pair, WanChannel], pair: Pair | None, boundary: int,
        occupancy: str, latency: str,
    ) -> SiteChannel:  # fmt: skip
        """Channel of one direction of a boundary; boundaries over the same domains and direction share
        one."""
        if pair is None:
            fixed = [int(getattr(self.timing.pipeline, name)[boundary, 0]) for name in (occupancy, latency)]
            return SiteChannel(self.env, *fixed)
        if pair not in wires:
            wires[pair] = WanChannel(network, self.timing.routes[pair], self.timing.message_bytes)
        return wires[pair]
