"""One log under one recipe: who starts when."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from twin.queue import kernel
from twin.queue.dependencies import Dependencies, MovedSubmissions
from twin.queue.jobs import Int, Prediction, QueueJobs
from twin.queue.recipe import QueueRecipe
from twin.queue.rules import PREDICTSIM, QueueRules


@dataclass(frozen=True, eq=False)
class QueueSchedule:
    """The jobs as they ran (cut where the rules cut), their starts (n,), nanoseconds, and which of them
    overtook the head of the queue (n,). Where jobs are submitted by the ends of others, submissions are those
    of this replay, the jobs in the order of the log, and `moved` tells who followed whom."""

    jobs: QueueJobs
    processors: int
    start_ns: Int
    backfilled: NDArray[np.bool_]
    moved: MovedSubmissions | None = None

    @property
    def end_ns(self) -> Int:
        """Ends (n,), nanoseconds."""
        return self.start_ns + self.jobs.run_ns


def simulate(
    jobs: QueueJobs, processors: int, recipe: QueueRecipe, *,
    prediction: Prediction = "estimate", rules: QueueRules = PREDICTSIM,
    dependencies: Dependencies | None = None,
) -> QueueSchedule:  # fmt: skip
    """Returns what a recipe makes of the jobs on a pool of identical processors.

    `prediction` is the run time that the scheduler counts on; "actual" is known to nobody before the end, and
    is there for bounds. `dependencies` say which jobs are submitted when another one has ended.

    Raises:
        UsageError: a job is larger than the pool, or the recipe cannot be played under these rules.
    """
    check(jobs, processors, recipe, rules)
    played = jobs.cut_at_estimate() if rules.cuts else jobs
    predicted = played.predicted_ns(prediction)
    keys = recipe.keys(played, predicted)
    if dependencies is not None:
        dependencies.check(len(jobs))
        if keys.as_recorded or keys.scorer is not None:
            raise UsageError(
                f"{recipe.name} goes by recorded submit times, and dependencies change them: leave it out"
            )
    start_ns, backfilled = kernel.play(
        played, predicted, processors, keys, recipe.backfill, rules, dependencies=dependencies
    )
    if dependencies is None:
        return QueueSchedule(played, processors, start_ns, backfilled)
    moved = MovedSubmissions(dependencies, played.submit_ns)
    played = replace(played, submit_ns=dependencies.submit_ns(played, start_ns))
    return QueueSchedule(played, processors, start_ns, backfilled, moved)


def check(jobs: QueueJobs, processors: int, recipe: QueueRecipe, rules: QueueRules) -> None:
    """Checks that the jobs can be played.

    Raises:
        UsageError: they cannot.
    """
    jobs.check()
    if processors < 1:
        raise UsageError(f"a pool of {processors} processors; it needs at least 1")
    if len(jobs) and (largest := int(jobs.processors.max())) > processors:
        raise UsageError(f"a job asks for {largest:,} processors of {processors:,}: take it out first")
    if rules.cuts and len(jobs) and jobs.estimate_ns.min() < 0:
        raise UsageError(
            f"a job without an estimate; rules {rules.name} end a run at its estimate: take it out"
        )
    check_together(recipe, rules)


def check_together(recipe: QueueRecipe, rules: QueueRules) -> None:
    """Checks that a recipe can be played under the rules.

    Raises:
        UsageError: it cannot.
    """
    if recipe.backfill == "conservative" and (not rules.cuts or rules.commits):
        raise UsageError(
            f"{recipe.name} needs runs that end by their prediction; rules {rules.name} do not cut them: "
            "take other rules or another policy"
        )
    if recipe.backfill == "easy-sjbf" and rules.backfills_by_submission:
        raise UsageError(
            f"{recipe.name} backfills the shortest job first, rules {rules.name} by submission: "
            "take other rules or another policy"
        )
