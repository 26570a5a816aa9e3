"""The job as the world sees it: which plan it runs, when it stands still, how it gets from plan to plan."""

from collections.abc import Generator
from typing import Any

import numpy as np
from simpy import Environment, Event

from ingest.units import to_ns
from twin.domain import Matrix
from twin.estimate import Estimator
from twin.faults import Machines
from twin.ledger import Ledger
from twin.moving import move_bytes, move_s, needs_restart
from twin.network import Network
from twin.plan import Plan
from twin.training import Training
from twin.transfers import Transfers, directed, over_links


class Execution:
    """Runs one plan after the other; stop-and-copy in between.

    A new plan takes effect at the end of the running iteration; one that stalls is given up. The job then
    pauses until the last layer has arrived and `restart_ns` is over. The first plan costs nothing.
    After a failure the layers start from a checkpoint, which lies in the domain that held them: those that
    change domain travel just the same.
    """

    def __init__(
        self,
        env: Environment,
        network: Network,
        machines: Machines,
        estimator: Estimator,
        training: Training,
        ledger: Ledger,
        restart_ns: int,
    ) -> None:
        self._env = env
        self._network = network
        self._machines = machines
        self._estimator = estimator
        self._training = training
        self._ledger = ledger
        self._restart_ns = restart_ns
        self._transfers: Transfers | None = None
        self._running = self._moving = False
        self._still_since_ns = 0
        self.plan: Plan | None = None
        self.applied_ns = 0

    def goal(self, answer: Plan | None) -> Plan | None:
        """What an answer of the controller asks for: a plan to go to, or None when nothing is to change.

        Holding a job that a failure has stopped starts it again, as soon as enough GPUs are alive.

        Raises:
            ValueError: the plan is not legal now, or there is none to hold.
        """
        if answer is None and self.plan is None:
            raise ValueError("the first decision must be a plan: there is none to hold")
        if answer is not None and answer != self.plan:
            problems = self._estimator.problems(answer, self._machines.free_gpus)
            if problems:
                raise ValueError(f"{answer} cannot run now: {'; '.join(problems)}")
            return answer
        return None if self._running or not self._can_run(self.plan) else self.plan

    def switch(self, goal: Plan) -> Generator[Event, Any, None]:
        """Process fragment: bring `goal` into effect, unless a failure meanwhile makes it impossible."""
        if self._running:
            yield from self._training.finish()
        if not self._can_run(goal):
            return
        stopped = not self._running
        self._halt("abandoned")
        self._ledger.lost(
            "waiting", self._still_since_ns, self._env.now - self._still_since_ns, charged=False
        )
        old, self.plan = self.plan, goal
        self._ledger.use(goal, self._machines.slowdown)
        yield from self._move(old, goal, stopped)
        self.applied_ns = self._still_since_ns = self._env.now
        if self._can_run(goal):
            self._running = True
            self._training.start(goal)

    def interrupt(self) -> None:
        """A failure stops the job at once."""
        self._halt("failure")

    def slowed(self) -> None:
        """The compute speed of a domain has changed."""
        if self.plan is not None:
            self._training.settle()
            self._ledger.use(self.plan, self._machines.slowdown)
            self._training.repace()

    def settle(self) -> None:
        """Report every iteration that was complete by now."""
        self._training.settle()
        self._ledger.flush()

    def checkpoint(self) -> None:
        """Every iteration that was complete by now is safe from failures."""
        self._training.settle()
        self._ledger.checkpoint()

    def end(self) -> None:
        """The run is over: what is under way now does not count."""
        if self._moving:
            sent = self._transfers.sent_bytes() if self._transfers else {}
            elapsed = self._env.now - self._still_since_ns
            self._ledger.lost("moving", self._still_since_ns, elapsed, moved=sent)
        elif self._running:
            self._halt("horizon")
        else:
            elapsed = self._env.now - self._still_since_ns
            self._ledger.lost("waiting", self._still_since_ns, elapsed, charged=False)

    def _can_run(self, plan: Plan | None) -> bool:
        """Whether enough GPUs are alive for `plan`."""
        free = self._machines.free_gpus
        return plan is not None and all(len(share.gpus) <= free[share.domain] for share in plan.shares)

    def _halt(self, reason: str) -> None:
        """Stop the running iteration, if there is one; the job stands still from now on."""
        unfinished = self._training.stop()
        if unfinished is None:
            return
        self._running = False
        self._still_since_ns = self._env.now
        self._ledger.lost(
            reason,
            unfinished.start_ns,
            unfinished.elapsed_ns,
            stalled_ns=unfinished.stalled_ns,
            done=unfinished.done,
        )

    def _move(self, old: Plan | None, new: Plan, stopped: bool) -> Generator[Event, Any, None]:
        """Pause, copy, restart; none of it for the first plan and for knobs that place nothing elsewhere."""
        start_ns, restart_ns = self._env.now, 0
        cluster = self._estimator.cluster
        moved = move_bytes(self._estimator.job, old, new, cluster.size)
        sizes = directed(moved)
        routes = {pair: new.route(*pair) for pair in sizes}
        self._still_since_ns = start_ns
        if old is not None and (stopped or needs_restart(old, new)):
            self._moving, restart_ns = True, self._restart_ns
            self._transfers = Transfers(self._network, sizes, routes)
            copies = self._env.process(self._transfers.run())
            yield copies & self._env.timeout(self._fabric_ns(moved, new))
            yield self._env.timeout(restart_ns)
            self._moving = False
        carried = over_links(sizes, routes)
        self._ledger.applied(new, start_ns, self._env.now - start_ns, restart_ns, carried)

    def _fabric_ns(self, moved: Matrix, new: Plan) -> int:
        """Resharding inside domains, over fabrics that do not change."""
        inside = np.diag(np.diag(moved))
        return to_ns(move_s(self._estimator.cluster, inside, new, self._network.links.state))
