"""Rollout workers: this process, or several. Equal seeds give equal rollouts with any workers.

The upper agent is constant during a rollout. The lower agents learn at every step; each request starts from
equal lower agents, and afterwards they are averaged, so that the order of requests does not matter.
"""

import pickle
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Protocol

import torch

from policy.hippo.env.training_task import TrainingTask
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.training.kept_plans import collect_kept
from policy.hippo.training.learner import PpoLearner, Rollout, Weights
from policy.hippo.training.rollout import EarlyStop, RolloutRequest, collect
from twin.core.seeds import generator

Requests = Sequence[RolloutRequest]
RequestResult = tuple[Rollout, Weights]


def never_stop(steps: int) -> bool:
    """Never stops a rollout early."""
    return False


class RolloutWorkers(Protocol):
    """Collects the rollouts of one iteration."""

    def collect(self, learner: PpoLearner, requests: Requests, stop: EarlyStop = never_stop) -> list[Rollout]:
        """Returns the rollouts in the order of the requests; gives `learner` the mean of the lower agents."""
        ...

    def close(self) -> None:
        """Ends the workers."""
        ...


class InProcessWorkers:
    """This process, one request after the other."""

    def __init__(self, config: HiPpoConfig, tasks: Sequence[TrainingTask]):
        self.tasks = tasks

    def collect(self, learner: PpoLearner, requests: Requests, stop: EarlyStop = never_stop) -> list[Rollout]:
        """Collects rollouts as `RolloutWorkers.collect`."""
        begin = learner.lower_weights()
        done = [run_request(learner, self.tasks[request.task], begin, request, stop) for request in requests]
        return merge_rollouts(learner, done)

    def close(self) -> None:
        """Does nothing."""


def run_request(
    learner: PpoLearner,
    task: TrainingTask,
    lower: Weights,
    request: RolloutRequest,
    stop: EarlyStop = never_stop,
) -> RequestResult:
    """Returns the rollout from the given lower agents, and the lower agents after it."""
    learner.load_lower(lower)
    rng = generator(*request.seed)
    if learner.config.ppo.kept_periods:  # the same work for all learners: none is stopped early
        return collect_kept(learner, task, request.steps, rng), learner.lower_weights()
    rollout = collect(learner, task, request.steps, rng, stop)
    return rollout, learner.lower_weights()


def merge_rollouts(learner: PpoLearner, done: Sequence[RequestResult]) -> list[Rollout]:
    """Gives `learner` the mean of the lower agents; returns the rollouts."""
    learner.load_lower(mean_weights([weights for _, weights in done]))
    return [rollout for rollout, _ in done]


def mean_weights(some: Sequence[Weights]) -> Weights:
    """Returns the mean of weights, tensor by tensor."""

    def mean(parts: Sequence[Any]) -> Any:
        if isinstance(parts[0], dict):
            return {name: mean([part[name] for part in parts]) for name in parts[0]}
        return torch.stack(list(parts)).mean(0)

    whole: Weights = mean(some)
    return whole


class RolloutWorker:
    """One worker with its own tasks and networks; every order brings the weights."""

    def __init__(self, config: HiPpoConfig, tasks: Sequence[TrainingTask]):
        torch.set_num_threads(1)
        self.tasks, self.learner = tasks, PpoLearner(*checkpoint.build(config), config)

    def work(self, order: bytes) -> bytes:
        """Executes one order of `encode_orders`; returns a pickled `RequestResult`."""
        upper, lower, multipliers, request = pickle.loads(order)
        self.learner.upper.load_state_dict(upper)
        self.learner.multipliers.values = multipliers
        return pickle.dumps(run_request(self.learner, self.tasks[request.task], lower, request))


def encode_orders(learner: PpoLearner, requests: Requests) -> list[bytes]:
    """Returns the requests, each pickled with the weights to use."""
    upper, lower = learner.upper.state_dict(), learner.lower_weights()
    return [pickle.dumps((upper, lower, learner.multipliers.values, request)) for request in requests]


_worker: RolloutWorker | None = None
"""The worker of a worker process."""


def _start_worker(config: HiPpoConfig, tasks: Sequence[TrainingTask]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends its workers
    global _worker
    _worker = RolloutWorker(config, tasks)


def _run_order(order: bytes) -> bytes:
    assert _worker is not None
    return _worker.work(order)


class ProcessWorkers:
    """Worker processes on this machine."""

    def __init__(self, workers: int, config: HiPpoConfig, tasks: Sequence[TrainingTask]):
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (config, tasks))

    def collect(self, learner: PpoLearner, requests: Requests, stop: EarlyStop = never_stop) -> list[Rollout]:
        """Collects rollouts as `RolloutWorkers.collect`."""
        results = self._pool.map(_run_order, encode_orders(learner, requests))
        return merge_rollouts(learner, [pickle.loads(result) for result in results])

    def close(self) -> None:
        """Ends the processes."""
        self._pool.shutdown(cancel_futures=True)
