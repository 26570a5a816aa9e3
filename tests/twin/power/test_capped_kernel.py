"""Small queues under limits of power, by hand; random ones against the SimPy referee and the limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.queues import PLAYABLE, POOL, RECIPES, queues
from twin.power import capped_kernel, capped_referee
from twin.power.limits import PowerLimits
from twin.power.site_power import of_runs
from twin.power.swing import largest_rise
from twin.queue import kernel
from twin.queue.jobs import PREDICTIONS, Prediction, QueueJobs
from twin.queue.rules import INSTANT, PREDICTSIM, QueueRules

S = 10**9
Row = tuple[int, int, int]
"""Submit, run, processors."""


def starts(
    rows: list[Row], watts: list[int], policy: str, limits: PowerLimits, rules: QueueRules = PREDICTSIM
) -> list[int]:
    jobs = QueueJobs.of_seconds(*zip(*rows, strict=True))
    recipe = RECIPES[policy]
    start, _ = capped_kernel.play(
        jobs, jobs.estimate_ns, POOL, recipe.keys(jobs, jobs.estimate_ns), recipe.backfill, rules,
        np.array(watts), limits,
    )  # fmt: skip
    return [int(one) // S for one in start]


ROWS: list[Row] = [(0, 10, 1), (1, 10, 1), (2, 8, 1), (3, 20, 1)]


def test_a_cap_makes_jobs_wait_for_power() -> None:
    limits = PowerLimits(cap_mw=100)
    assert starts(ROWS, [60, 60, 30, 40], "fcfs", limits) == [0, 10, 10, 18]
    # The third job ends at 10, when the second starts; the fourth would hold 40 of 100 beyond then.
    assert starts(ROWS, [60, 60, 30, 40], "easy", limits) == [0, 10, 2, 10]
    assert starts(ROWS, [60, 60, 30, 40], "conservative", limits) == [0, 10, 2, 10]
    assert starts(ROWS, [60, 60, 40, 50], "easy", limits) == [0, 10, 2, 20]


def test_power_that_the_head_leaves_is_given_away_once() -> None:
    # At 10 the head leaves 20 of 100; the third job takes 15 of it for longer, the fourth finds 5.
    rows: list[Row] = [(0, 10, 1), (1, 10, 1), (2, 20, 1), (2, 20, 1)]
    assert starts(rows, [60, 80, 15, 15], "easy", PowerLimits(cap_mw=100), INSTANT) == [0, 10, 2, 20]


def test_a_ramp_limit_lets_jobs_in_one_after_the_other() -> None:
    limits = PowerLimits(rise_mw=100, window_ns=5 * S)
    rows: list[Row] = [(0, 30, 1)] * 4
    # 60 at once; 120 no sooner than 5 s after power was 0, 180 five seconds after 60.
    assert starts(rows, [60] * 4, "easy", limits) == [0, 5, 10, 15]
    assert starts(rows, [50] * 4, "easy", limits) == [0, 0, 5, 5]


LIMITS = st.builds(
    PowerLimits,
    cap_mw=st.sampled_from((None, 9, 12, 20)),
    rise_mw=st.sampled_from((None, None, 9, 14)),
    window_ns=st.sampled_from((1, S, 3 * S, 20 * S)),
)
NAMES = ("fcfs", "easy", "easy-sjbf", "conservative", "saf+easy", "wfp3+easy", "las+easy-sjbf", "hrrn")


@pytest.mark.parametrize("name", NAMES)
@given(jobs=queues(), limits=LIMITS, prediction=st.sampled_from(PREDICTIONS), data=st.data())
@settings(max_examples=15, deadline=None)
def test_kernel_and_referee_start_every_job_alike(
    name: str, jobs: QueueJobs, limits: PowerLimits, prediction: Prediction, data: st.DataObject
) -> None:
    recipe = RECIPES[name]
    if recipe.backfill == "conservative":
        limits = PowerLimits(limits.cap_mw)
    rules = data.draw(st.sampled_from(PLAYABLE[name]))
    played = jobs.cut_at_estimate() if rules.cuts else jobs
    predicted = played.predicted_ns(prediction)
    watts = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(jobs), max_size=len(jobs))), np.int64)
    given_both = (
        played, predicted, POOL, recipe.keys(played, predicted), recipe.backfill, rules, watts, limits,
    )  # fmt: skip
    start, backfilled = capped_kernel.play(*given_both)
    assert (start.tolist(), backfilled.tolist()) == capped_referee.play(*given_both)
    power = of_runs(start, start + played.run_ns, watts, 0, int((start + played.run_ns).max()) + 1)
    assert limits.cap_mw is None or power.value.max() <= limits.cap_mw
    assert limits.rise_mw is None or largest_rise(_from_nothing(power), limits.window_ns) <= limits.rise_mw


def _from_nothing(power):  # type: ignore[no-untyped-def]
    """The series after a while of nothing."""
    shifted = type(power)(power.at_ns + 100 * S, power.value, power.end_ns + 100 * S)
    return type(power)(np.append(0, shifted.at_ns), np.append(0, shifted.value), shifted.end_ns)


@pytest.mark.parametrize("name", NAMES)
@given(jobs=queues(), data=st.data())
@settings(max_examples=8, deadline=None)
def test_without_a_limit_it_is_the_pool(name: str, jobs: QueueJobs, data: st.DataObject) -> None:
    recipe, rules = RECIPES[name], data.draw(st.sampled_from(PLAYABLE[name]))
    played = jobs.cut_at_estimate() if rules.cuts else jobs
    given_both = (
        played, played.estimate_ns, POOL, recipe.keys(played, played.estimate_ns), recipe.backfill, rules,
    )  # fmt: skip
    plain, capped = kernel.play(*given_both), capped_kernel.play(*given_both, jobs.processors, PowerLimits())
    assert plain[0].tolist() == capped[0].tolist() and plain[1].tolist() == capped[1].tolist()


@given(jobs=queues())
@settings(max_examples=8, deadline=None)
def test_a_cap_on_equal_processors_is_a_smaller_pool(jobs: QueueJobs) -> None:
    recipe = RECIPES["easy"]
    given_both = (jobs.cut_at_estimate(), jobs.cut_at_estimate().estimate_ns)
    keys = recipe.keys(*given_both)
    small = kernel.play(*given_both, POOL, keys, "easy", INSTANT)[0]
    large = capped_kernel.play(
        *given_both, 5 * POOL, keys, "easy", INSTANT, 7 * jobs.processors, PowerLimits(7 * POOL + 6)
    )[0]
    assert small.tolist() == large.tolist()
