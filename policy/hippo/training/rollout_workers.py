"""Who collects rollouts: this process, or several. Equal seeds give equal rollouts, whoever collects them.

The upper agent stays as it is during a rollout. The lower agents learn at every step of it; each task begins
with the same ones, and afterwards their mean is taken, so that the order of tasks does not matter.
"""

import pickle
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Protocol

import torch

from policy.hippo.networks import checkpoint as checkpoints
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.env.training_task import Course
from policy.hippo.training.learner import Practice, Rollout, Weights
from policy.hippo.training.rollout import Enough, Task, collect
from twin.core.seeds import generator

Done = tuple[Rollout, Weights]


def go_on(steps: int) -> bool:
    """Never enough."""
    return False


class Crew(Protocol):
    """Collects the rollouts of one iteration."""

    def collect(self, practice: Practice, tasks: Sequence[Task], enough: Enough = go_on) -> list[Rollout]:
        """The rollouts in the order of the tasks; `practice` has the mean of the lower agents afterwards."""
        ...

    def close(self) -> None:
        """Send everybody home."""
        ...


class Here:
    """This process, one task after the other."""

    def __init__(self, config: HiPpoConfig, courses: Sequence[Course]):
        self.courses = courses

    def collect(self, practice: Practice, tasks: Sequence[Task], enough: Enough = go_on) -> list[Rollout]:
        """As `Crew.collect`."""
        begin = practice.lower_weights()
        done = [carried_out(practice, self.courses, begin, task, enough) for task in tasks]
        return merged(practice, done)

    def close(self) -> None:
        """Nobody to send home."""


def carried_out(
    practice: Practice, courses: Sequence[Course], lower: Weights, task: Task, enough: Enough = go_on
) -> Done:
    """A task done with the given lower agents, and what they have become."""
    practice.take_lower(lower)
    rollout = collect(practice, courses[task.course], task.steps, generator(*task.seed), enough)
    return rollout, practice.lower_weights()


def merged(practice: Practice, done: Sequence[Done]) -> list[Rollout]:
    """Give `practice` the mean of the lower agents; returns the rollouts."""
    practice.take_lower(mean_weights([weights for _, weights in done]))
    return [rollout for rollout, _ in done]


def mean_weights(some: Sequence[Weights]) -> Weights:
    """Tensor by tensor."""

    def mean(parts: Sequence[Any]) -> Any:
        if isinstance(parts[0], dict):
            return {name: mean([part[name] for part in parts]) for name in parts[0]}
        return torch.stack(list(parts)).mean(0)

    whole: Weights = mean(some)
    return whole


class Station:
    """One worker: the courses and networks of its own, to which an order brings the weights."""

    def __init__(self, config: HiPpoConfig, courses: Sequence[Course]):
        torch.set_num_threads(1)
        self.courses, self.practice = courses, Practice(*checkpoints.build(config), config)

    def work(self, order: bytes) -> bytes:
        """Carry out one order of `orders`; the answer is a pickled `Done`."""
        upper, lower, multipliers, task = pickle.loads(order)
        self.practice.upper.load_state_dict(upper)
        self.practice.multipliers.values = multipliers
        return pickle.dumps(carried_out(self.practice, self.courses, lower, task))


def orders(practice: Practice, tasks: Sequence[Task]) -> list[bytes]:
    """The tasks with the weights to do them with."""
    upper, lower = practice.upper.state_dict(), practice.lower_weights()
    return [pickle.dumps((upper, lower, practice.multipliers.values, task)) for task in tasks]


_station: Station | None = None
"""Of a worker process."""


def _open(config: HiPpoConfig, courses: Sequence[Course]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who sends orders decides when there are no more
    global _station
    _station = Station(config, courses)


def _work(order: bytes) -> bytes:
    assert _station is not None
    return _station.work(order)


class Processes:
    """Worker processes on this machine."""

    def __init__(self, workers: int, config: HiPpoConfig, courses: Sequence[Course]):
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"), _open, (config, courses))

    def collect(self, practice: Practice, tasks: Sequence[Task], enough: Enough = go_on) -> list[Rollout]:
        """As `Crew.collect`."""
        done = [pickle.loads(answer) for answer in self._pool.map(_work, orders(practice, tasks))]
        return merged(practice, done)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)
