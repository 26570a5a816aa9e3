"""The contract of engines: a job iterates under a plan until it is stopped."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.network.flows import Network
from twin.scenario.step_jitter import Jitter

EngineName = Literal["kernel", "des"]
"""Key `engine` of a run."""

OnIterations = Callable[[int, int, int, int, NDArray[np.float64] | None], None]
"""Called with complete iterations: count, start_ns of the first, duration_ns of each, stalled_ns in all,
and the ns (K,) that each domain computed longer than usual in each (None: nothing)."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An iteration that was given up: its start, its time, its stalled time, and the share done (n of m)."""

    start_ns: int
    elapsed_ns: int
    stalled_ns: int
    done: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class EngineContext:
    """Surroundings of an engine: `slowdown` (K,) is updated in place by the world, `jitter` varies the
    compute time of each iteration, `on_iterations` is called with complete ones."""

    network: Network
    estimator: Estimator
    slowdown: NDArray[np.float64]
    on_iterations: OnIterations
    jitter: Jitter | None = None


class Engine(ABC):
    """A job that iterates."""

    def __init__(self, context: EngineContext) -> None:
        self._env = context.network.env
        self._network = context.network
        self._estimator = context.estimator
        self._slowdown = context.slowdown
        self._on_iterations = context.on_iterations
        self._jitter = context.jitter
        self._factors: NDArray[np.float64] | None = None  # of the running iteration, drawn from `jitter`
        self._plan: Plan | None = None
        self._began_ns = self._stalled_ns = 0
        self._rescheduled = self._env.event()

    @abstractmethod
    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""

    @abstractmethod
    def settle(self) -> None:
        """Report every iteration that was complete by now."""

    @abstractmethod
    def slowdown_changed(self) -> None:
        """Go on at the present compute speed of the domains."""

    @abstractmethod
    def finish(self) -> Generator[Event, Any, None]:
        """Process fragment: wait for the end of the running iteration, or not while it stalls."""

    @abstractmethod
    def stop(self) -> Unfinished | None:
        """Give up the running iteration; None where none runs."""

    @abstractmethod
    def eta_ns(self, count: int) -> int | None:
        """Nanoseconds until `count` more iterations are complete, as expected now; None: unknown."""

    @property
    def rescheduled(self) -> Event:
        """The next event at which the expected end of iterations changes."""
        return self._rescheduled

    def _reschedule(self) -> None:
        self._rescheduled.succeed()
        self._rescheduled = self._env.event()
