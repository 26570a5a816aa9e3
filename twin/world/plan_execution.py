"""Execution of plans by a job: which plan runs, when the job stands still, how it goes from plan to plan."""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy import Environment, Event

from ingest.core.units import to_ns
from twin.core.domain import Matrix, Pair
from twin.core.plan import Plan
from twin.costs.migration import move_bytes, move_s, needs_restart
from twin.engines.engine import Engine
from twin.estimation.estimator import Estimator
from twin.network.bulk_transfers import Transfers, directed, over_links
from twin.network.flows import Network
from twin.settings.scenario_file import MovingSettings
from twin.world.ledger import Ledger


class Execution:
    """Runs one plan after the other.

    A new plan takes effect at the end of the running iteration; a stalled iteration is given up. The job then
    pauses until the last layer has arrived and the restart is over. The first plan costs nothing.
    After a failure the layers start from a checkpoint, which lies in the domain that held them: those that
    change domain are moved just the same.

    With `settings.mode` pre_copy the layers are sent while training goes on and shares the links with them.
    Training changes every parameter and every optimiser state in every iteration, so that a copy becomes
    stale; but an update can be repeated on the copy from the gradients alone. Each iteration since a copy
    was taken therefore adds `settings.stale_share` of its bytes to those to be sent (2 bytes of gradient
    for 14 of state), and after 1/`stale_share` iterations a copy is useless. Rounds follow each other, each
    sending what the one before left stale (as for virtual machines: Clark, NSDI 2005), until that is one
    iteration's or does not shrink any more; then the job stops and sends the rest.

    `free_gpus` returns the GPUs per domain (K,) that the job may use. `may_wait`: the job can be without a
    plan.
    """

    def __init__(
        self,
        env: Environment,
        network: Network,
        free_gpus: Callable[[], tuple[int, ...]],
        estimator: Estimator,
        engine: Engine,
        ledger: Ledger,
        settings: MovingSettings,
        *,
        slowdown: NDArray[np.float64],
        may_wait: bool = False,
    ) -> None:
        self._env = env
        self._network = network
        self._free_gpus = free_gpus
        self._estimator = estimator
        self._engine = engine
        self._ledger = ledger
        self._settings = settings
        self._slowdown = slowdown
        self._may_wait = may_wait
        self._restart_ns = to_ns(settings.restart_s)
        self._transfers: Transfers | None = None
        self._copying: Callable[[], None] | None = None  # accounts for what a round has sent so far
        self._closed = False
        self._idle_since_ns = env.now
        self._stopped = env.event()
        self.running = self.moving = False
        self.plan: Plan | None = None
        self.applied_ns = env.now

    def requested_plan(self, decision: Plan | None) -> Plan | None:
        """The plan to go to after a decision, None where nothing changes.

        Holding (None) starts a job again that a failure has stopped, as soon as enough GPUs are alive.

        Raises:
            ValueError: the plan is not legal now, or there is none to hold.
        """
        if decision is None and self.plan is None and not self._may_wait:
            raise ValueError("the first decision must be a plan: there is none to hold")
        if decision is not None and decision != self.plan:
            problems = self._estimator.problems(decision, self._free_gpus())
            if problems:
                raise ValueError(f"{decision} cannot run now: {'; '.join(problems)}")
            return decision
        return None if self.running or not self._can_run(self.plan) else self.plan

    def switch(self, target: Plan) -> Generator[Event, Any, None]:
        """Process fragment: put `target` into effect, unless a failure meanwhile makes it impossible."""
        since = None
        if self.running and self._settings.mode == "pre_copy" and needs_restart(self.plan, target):
            since = yield from self._copy_ahead(target)
        if self.running:
            yield from self._engine.finish()
        if self._closed or not self._can_run(target):
            return
        stopped = not self.running
        stale = 1.0 if since is None or stopped else self._stale(since)
        self._halt("abandoned")
        self._ledger.lost("waiting", self._idle_since_ns, self._env.now - self._idle_since_ns, charged=False)
        old, self.plan = self.plan, target
        self._ledger.use(target, self._slowdown)
        yield from self._move(old, target, stopped, stale)
        self._idle_since_ns = self._env.now
        if stopped or old is None or needs_restart(old, target):
            self.applied_ns = self._env.now
        if self._can_run(target):
            self.running = True
            self._engine.start(target)

    def interrupt(self, reason: str) -> None:
        """Stop the running iteration at once; a move under way goes on."""
        self._halt(reason)

    def close(self) -> None:
        """Stop for good."""
        self._closed = True
        self._halt("finished")

    def slowdown_changed(self) -> None:
        """Go on at the present compute speed of the domains."""
        if self.plan is not None:
            self._engine.settle()
            self._ledger.use(self.plan, self._slowdown)
            self._engine.slowdown_changed()

    def settle(self) -> None:
        """Report every iteration that was complete by now."""
        self._engine.settle()
        self._ledger.flush()

    def checkpoint(self) -> None:
        """Make every iteration that is complete by now safe from failures."""
        self._engine.settle()
        self._ledger.checkpoint()

    def end(self) -> None:
        """Account for what is under way at the end of the run, which does not count."""
        if self.moving:
            sent = self._transfers.sent_bytes() if self._transfers else {}
            elapsed = self._env.now - self._idle_since_ns
            self._ledger.lost("moving", self._idle_since_ns, elapsed, moved=sent)
        elif self.running:
            if self._copying is not None:
                self._copying()
            self._halt("horizon")
        else:
            elapsed = self._env.now - self._idle_since_ns
            self._ledger.lost("waiting", self._idle_since_ns, elapsed, charged=False)

    def _can_run(self, plan: Plan | None) -> bool:
        """True where enough GPUs are alive for `plan`."""
        free = self._free_gpus()
        return plan is not None and all(len(share.gpus) <= free[share.domain] for share in plan.shares)

    def _halt(self, reason: str) -> None:
        """Stop the running iteration, if any; the job stands still from now on."""
        unfinished = self._engine.stop()
        if unfinished is None:
            return
        self.running = False
        self._stopped.succeed()
        self._stopped = self._env.event()
        self._idle_since_ns = self._env.now
        self._ledger.lost(
            reason,
            unfinished.start_ns,
            unfinished.elapsed_ns,
            stalled_ns=unfinished.stalled_ns,
            done=unfinished.done,
        )

    # -- moving

    def _copy_ahead(self, target: Plan) -> Generator[Event, Any, int | None]:
        """Send copies beside training, round after round.

        Returns: iterations completed when the last copy was taken; None without a useful copy.
        """
        whole = directed(move_bytes(self._estimator.job, self.plan, target, self._estimator.cluster.size))
        share, number, since = 1.0, 0, None
        while whole and self.running and self._can_run(target):
            self._engine.settle()
            taken = self._ledger.completed
            if not (yield from self._copy_round(_part(whole, share), target, number)):
                return None
            since, number = taken, number + 1
            stale = self._stale(taken)
            if stale >= share or self._ledger.completed - taken <= 1:
                break
            share = stale
        return since

    def _copy_round(self, sizes: dict[Pair, int], target: Plan, number: int) -> Generator[Event, Any, bool]:
        """Send `sizes` beside training; False when training stopped meanwhile."""
        start_ns, stopped = self._env.now, self._stopped
        transfers = Transfers(self._network, sizes, _routes(target, sizes))

        def account() -> None:
            self._engine.settle()
            self._ledger.copied(number, start_ns, self._env.now - start_ns, transfers.sent_bytes())

        self._copying = account
        yield self._env.process(transfers.run()) | stopped
        transfers.drop()
        self._copying = None
        account()
        return not stopped.triggered

    def _stale(self, taken: int) -> float:
        """Share of a copy, taken after `taken` iterations, that must be sent again now."""
        self._engine.settle()
        return min(1.0, (self._ledger.completed - taken) * self._settings.stale_share)

    def _move(self, old: Plan | None, new: Plan, stopped: bool, stale: float) -> Generator[Event, Any, None]:
        """Pause, copy, restart; nothing for a first plan and for changes that move no state."""
        start_ns, restart_ns = self._env.now, 0
        moved = move_bytes(self._estimator.job, old, new, self._estimator.cluster.size)
        sizes = _part(directed(moved), stale)
        routes = _routes(new, sizes)
        self._idle_since_ns = start_ns
        if old is not None and (stopped or needs_restart(old, new)):
            self.moving, restart_ns = True, self._restart_ns
            self._transfers = Transfers(self._network, sizes, routes)
            copies = self._env.process(self._transfers.run())
            yield copies & self._env.timeout(self._fabric_ns(moved, new))
            yield self._env.timeout(restart_ns)
            self.moving = False
        carried = over_links(sizes, routes)
        self._ledger.applied(new, start_ns, self._env.now - start_ns, restart_ns, carried)

    def _fabric_ns(self, moved: Matrix, new: Plan) -> int:
        """Nanoseconds of resharding inside domains, whose fabrics do not change."""
        inside = np.diag(np.diag(moved))
        return to_ns(move_s(self._estimator.cluster, inside, new, self._network.links.state))


def _part(sizes: dict[Pair, int], share: float) -> dict[Pair, int]:
    """`share` of each size, in whole bytes."""
    return sizes if share >= 1.0 else {pair: n for pair, n in _scaled(sizes, share).items() if n}


def _scaled(sizes: dict[Pair, int], share: float) -> dict[Pair, int]:
    return {pair: round(size * share) for pair, size in sizes.items()}


def _routes(plan: Plan, sizes: dict[Pair, int]) -> dict[Pair, tuple[Pair, ...]]:
    return {pair: plan.route(*pair) for pair in sizes}
