"""The warm start: collecting demonstrations, and one step of imitation."""

from collections.abc import Callable, Sequence

from ingest.core.progress import Progress
from policy.baselines.mpc import Mpc
from policy.core.protocol import Policy
from policy.hippo.agent.agent import HiPpo
from policy.hippo.env.training_task import TrainingTask
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import CoordinatorConfig, HiPpoConfig
from policy.hippo.training.imitation import (
    DemonstrationSet,
    LoggedDemonstration,
    batch_indices,
    imitation_loss,
    logged_demonstrations,
    merge_demonstrations,
    query_teacher,
)
from policy.hippo.training.learner import PpoLearner
from policy.hippo.training.past_teacher import PastTeacher
from twin.core.seeds import generator

SEARCH = CoordinatorConfig(proposals=8, rounds=16, wide_rounds=16)
"""Search as a teacher: many proposals of an untrained network, refined until nothing improves."""


def collect_demonstrations(
    tasks: Sequence[TrainingTask],
    config: HiPpoConfig,
    logged: Sequence[LoggedDemonstration],
    *,
    progress: Progress,
    stop: Callable[[], bool],
) -> list[DemonstrationSet]:
    """Returns decisions of `mpc` on the first task (the user's), of the verified search on all tasks, of the
    best plan of the first task's past, and logged ones.

    The search (random proposals, many rounds of refinement) has the horizon and objective of `mpc` and is a
    hundred times cheaper.
    """
    # New networks, so that a resumed training has equal demonstrations.
    search = HiPpo.of(*checkpoint.build(config), SEARCH)
    share = -(-config.imitation.searched // len(tasks))
    queries: list[tuple[TrainingTask, Policy, int]] = [(tasks[0], Mpc(), config.imitation.lessons)]
    queries += [(task, search, share) for task in tasks]
    queries.append((tasks[0], PastTeacher(), config.imitation.past))
    found = [
        query_teacher(task, teacher, config, count, progress, stop)
        for task, teacher, count in queries
        if count and not stop()
    ]
    found.append(logged_demonstrations(tasks[0], logged, config.imitation))
    return merge_demonstrations([demonstration for demonstration in found if demonstration is not None])


def imitation_step(
    learner: PpoLearner, config: HiPpoConfig, demonstrations: Sequence[DemonstrationSet], number: int
) -> float:
    """Makes imitation step `number` on a batch of one cluster; returns the loss."""
    rng = generator(config.seed, f"imitation-{number}")
    demonstration = demonstrations[int(rng.integers(len(demonstrations)))]
    index = batch_indices(demonstration, config.imitation.batch, rng)
    total = imitation_loss(learner.upper, learner.lower, demonstration, index, config.imitation.entropy_coef)
    learner.imitate(total)
    return float(total.detach())
