"""Every recipe under every rule set: the kernel has the events of the SimPy referee.

`TWIN_FUZZ=1000` sets the number of random queues of each recipe; the default makes a thousand of all.
"""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.event_streams import of_kernel, of_referee
from tests.support.queues import PLAYABLE, POOL, RECIPES, queues
from twin.queue import kernel, referee
from twin.queue.jobs import PREDICTIONS, Prediction, QueueJobs
from twin.queue.referee import Happening
from twin.queue.rules import RULES, QueueRules
from twin.queue.simulation import QueueSchedule, simulate

EXAMPLES = int(os.environ.get("TWIN_FUZZ", "16"))


def prioritised(jobs: QueueJobs) -> QueueJobs:
    """The jobs, one of which surely has a priority."""
    jobs.priority[0] = max(0, jobs.priority[0])
    return jobs


@pytest.mark.parametrize("name", RECIPES)
@given(jobs=queues(), prediction=st.sampled_from(PREDICTIONS), data=st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_kernel_and_referee_have_the_same_events(
    name: str, jobs: QueueJobs, prediction: Prediction, data: st.DataObject
) -> None:
    rules = data.draw(st.sampled_from(PLAYABLE[name]))
    recipe, played = RECIPES[name], jobs.cut_at_estimate() if rules.cuts else jobs
    predicted = played.predicted_ns(prediction)
    given_both = (
        played, predicted, POOL, recipe.keys(prioritised(played), predicted), recipe.backfill, rules,
    )  # fmt: skip
    start, backfilled = kernel.play(*given_both)
    happened: list[Happening] = []
    referee.play(*given_both, happened=happened)
    done = QueueSchedule(played, POOL, start, backfilled)
    assert of_kernel(done) == of_referee(happened, done)


@pytest.mark.parametrize("name", RECIPES)
@given(jobs=queues(most=60))
@settings(max_examples=5, deadline=None)
def test_no_job_starts_early_and_the_pool_is_never_over_full(name: str, jobs: QueueJobs) -> None:
    done = simulate(prioritised(jobs), POOL, RECIPES[name], rules=PLAYABLE[name][0])
    assert (done.start_ns >= jobs.submit_ns).all()
    for begin in done.start_ns:
        held = (done.start_ns <= begin) & (begin < done.end_ns)
        assert jobs.processors[held].sum() <= POOL


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_two_simulations_share_nothing(rules: QueueRules) -> None:
    jobs = QueueJobs.of_seconds([0, 1, 2, 3], [9, 3, 5, 2], [5, 4, 8, 1])
    first = simulate(jobs, POOL, RECIPES["wfp3+easy"], rules=rules).start_ns.tolist()
    simulate(jobs, POOL, RECIPES["sjf"], rules=rules)
    assert simulate(jobs, POOL, RECIPES["wfp3+easy"], rules=rules).start_ns.tolist() == first
