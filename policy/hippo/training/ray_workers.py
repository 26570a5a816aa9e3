"""Rollout workers over Ray, on one machine or a cluster; needs the extra `ray`."""

import pickle
from collections.abc import Sequence

from policy.core.ray_cluster import RayCluster
from policy.hippo.env.training_task import TrainingTask
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.training.learner import PpoLearner, Rollout
from policy.hippo.training.rollout import EarlyStop
from policy.hippo.training.rollout_workers import (
    Requests,
    RolloutWorker,
    encode_orders,
    merge_rollouts,
    never_stop,
)


class RayWorkers:
    """Actors of the Ray cluster that RAY_ADDRESS names, else of one started on this machine.

    Raises:
        UsageError: Ray is not installed, or no cluster answers at RAY_ADDRESS.
    """

    def __init__(self, workers: int, config: HiPpoConfig, tasks: Sequence[TrainingTask]):
        self._cluster = RayCluster(workers, "training over Ray")
        ray = self._cluster.module
        actor = ray.remote(num_cpus=1)(RolloutWorker)
        shared = ray.put(list(tasks))
        self._actors = [actor.remote(config, shared) for _ in range(workers)]

    def collect(self, learner: PpoLearner, requests: Requests, stop: EarlyStop = never_stop) -> list[Rollout]:
        """Collects rollouts as `RolloutWorkers.collect`."""
        sent = [
            self._actors[number % len(self._actors)].work.remote(order)
            for number, order in enumerate(encode_orders(learner, requests))
        ]
        return merge_rollouts(learner, [pickle.loads(result) for result in self._cluster.module.get(sent)])

    def close(self) -> None:
        """Ends the actors, and Ray if it was started here."""
        for actor in self._actors:
            self._cluster.module.kill(actor)
        self._cluster.close()
