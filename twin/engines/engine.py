"""What an engine is to the world: a job that iterates under a plan until it is stopped."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from twin.estimate.estimator import Estimator
from twin.scenario.step_jitter import Jitter
from twin.network.flows import Network
from twin.core.plan import Plan

Iterated = Callable[[int, int, int, int, NDArray[np.float64] | None], None]
"""Called with complete iterations: count, start_ns of the first, duration_ns of each, stalled_ns in all, and
the ns (K,) that each domain computed longer than usual in each (None: nothing)."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An iteration that was given up: when it began, how long it ran and stood still, what share was done."""

    start_ns: int
    elapsed_ns: int
    stalled_ns: int
    done: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """Where a job trains: `slowdown` (K,) is updated in place by the world, `jitter` makes every iteration
    another one, `iterated` is told of complete ones."""

    network: Network
    estimator: Estimator
    slowdown: NDArray[np.float64]
    iterated: Iterated
    jitter: Jitter | None = None


class Training(ABC):
    """The iterating job."""

    def __init__(self, site: Site) -> None:
        self._env = site.network.env
        self._network = site.network
        self._estimator = site.estimator
        self._slowdown = site.slowdown
        self._iterated = site.iterated
        self._jitter = site.jitter
        self._factors: NDArray[np.float64] | None = None  # of the running iteration, drawn from `jitter`
        self._plan: Plan | None = None
        self._began_ns = self._stalled_ns = 0
        self._disturbed = self._env.event()

    @abstractmethod
    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""

    @abstractmethod
    def settle(self) -> None:
        """Report every iteration that was complete by now."""

    @abstractmethod
    def repace(self) -> None:
        """The compute speed of a domain has changed."""

    @abstractmethod
    def finish(self) -> Generator[Event, Any, None]:
        """Process fragment: wait for the end of the running iteration, or not while it stalls."""

    @abstractmethod
    def stop(self) -> Unfinished | None:
        """Give up the running iteration; None where none runs."""

    @abstractmethod
    def eta_ns(self, count: int) -> int | None:
        """Nanoseconds until `count` more iterations are complete, as expected now; None: nobody knows."""

    @property
    def disturbed(self) -> Event:
        """Happens when iterations may end at other times than expected so far."""
        return self._disturbed

    def _disturb(self) -> None:
        self._disturbed.succeed()
        self._disturbed = self._env.event()
