"""Rollouts collected over Ray, on one machine or a cluster of them; the optional extra `ray`."""

import os
import pickle
from collections.abc import Sequence

from ingest.core.errors import UsageError
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.env.training_task import Course
from policy.hippo.training.rollout_workers import Station, go_on, merged, orders
from policy.hippo.training.learner import Practice, Rollout
from policy.hippo.training.rollout import Enough, Task


class RayCrew:
    """Actors of a Ray cluster: the one that RAY_ADDRESS names, else one started on this machine.

    Raises:
        UsageError: Ray is not installed.
    """

    def __init__(self, workers: int, config: HiPpoConfig, courses: Sequence[Course]):
        try:
            import ray
        except ImportError as error:
            raise UsageError("training over Ray needs the extra: pip install 'twin[ray]'") from error
        self._ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            ray.init(num_cpus=None if "RAY_ADDRESS" in os.environ else workers, include_dashboard=False)
        actor = ray.remote(num_cpus=1)(Station)
        shared = ray.put(list(courses))
        self._actors = [actor.remote(config, shared) for _ in range(workers)]

    def collect(self, practice: Practice, tasks: Sequence[Task], enough: Enough = go_on) -> list[Rollout]:
        """As `Crew.collect`."""
        sent = [
            self._actors[number % len(self._actors)].work.remote(order)
            for number, order in enumerate(orders(practice, tasks))
        ]
        return merged(practice, [pickle.loads(answer) for answer in self._ray.get(sent)])

    def close(self) -> None:
        """End the actors, and Ray if it was started here."""
        for actor in self._actors:
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()
