"""The offline stage: who is asked for lessons, and one step of following them."""

from collections.abc import Callable, Sequence

from ingest.core.progress import Progress
from policy.hippo.networks import checkpoint as checkpoints
from policy.hippo.agent.agent import HiPpo
from policy.hippo.networks.hippo_config import CoordinatorConfig, HiPpoConfig
from policy.hippo.env.training_task import Course
from policy.hippo.training.imitation import (
    Logged,
    Material,
    batch_loss,
    draw,
    lessons,
    logged_lessons,
    taught,
)
from policy.hippo.training.learner import Practice
from policy.control.mpc import Mpc
from policy.core.protocol import Policy
from twin.core.seeds import generator

SEARCH = CoordinatorConfig(proposals=8, rounds=16, wide_rounds=16)
"""The teacher that needs no planner: many proposals of an untrained network, refined to the end."""


def gathered(
    courses: Sequence[Course],
    config: HiPpoConfig,
    logged: Sequence[Logged],
    *,
    progress: Progress,
    stop: Callable[[], bool],
) -> list[Material]:
    """Answers of `mpc` on the first course, the user's own, of the agent's own search on all of them, and
    what was logged.

    The search (random proposals, many rounds of refinement in the twin) judges by the same horizon and
    objective as `mpc` and is a hundred times cheaper, so it can be asked everywhere.
    """
    # New networks, not the learner's: after a resume the lessons must be the same.
    search = HiPpo.of(*checkpoints.build(config), SEARCH)
    share = -(-config.imitation.searched // len(courses))
    asked: list[tuple[Course, Policy, int]] = [(courses[0], Mpc(), config.imitation.lessons)]
    asked += [(course, search, share) for course in courses]
    found = [
        lessons(course, teacher, config, count, progress, stop)
        for course, teacher, count in asked
        if count and not stop()
    ]
    found.append(logged_lessons(courses[0], logged, config.imitation))
    return taught([lesson for lesson in found if lesson is not None])


def followed(practice: Practice, config: HiPpoConfig, material: Sequence[Material], number: int) -> float:
    """Step `number` of imitation, on a batch of one cluster's lessons; returns the loss."""
    rng = generator(config.seed, f"imitation-{number}")
    lesson = material[int(rng.integers(len(material)))]
    index = draw(lesson, config.imitation.batch, rng)
    total = batch_loss(practice.upper, practice.lower, lesson, index, config.imitation.entropy_coef)
    practice.follow(total)
    return float(total.detach())
