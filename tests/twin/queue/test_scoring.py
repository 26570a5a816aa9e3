"""A queue ordered by a network: kernel and referee are equal, and a trail is a sample of the softmax."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.queue.registry import recipe
from tests.support.queues import POOL, queues
from twin.core.seeds import generator
from twin.queue import kernel, referee, scoring
from twin.queue.jobs import Int, QueueJobs
from twin.queue.pool import Scoring
from twin.queue.recipe import JobScorer, OrderKeys
from twin.queue.rules import PREDICTSIM, RULES
from twin.queue.scoring import FEATURES

SMALL, DEEP = (len(FEATURES), 6, 1), (len(FEATURES), 32, 16, 8, 1)


def scorer(widths: tuple[int, ...] = SMALL, seed: int = 0) -> JobScorer:
    return JobScorer(widths, generator(seed, "weights").normal(size=scoring.weights_in(widths)))


def played(jobs: QueueJobs, with_: JobScorer, trail: Scoring | None = None) -> Int:
    keys = OrderKeys.scored(len(jobs), with_)
    return kernel.play(jobs, jobs.estimate_ns, POOL, keys, "easy", PREDICTSIM, trail)[0]


def crowd(jobs: int = 300, seed: int = 0) -> QueueJobs:
    random = generator(seed, "crowd")
    estimate = random.integers(1, 5_000, jobs)
    return QueueJobs.of_seconds(
        np.sort(random.integers(0, 20 * jobs, jobs)), random.integers(1, estimate + 1),
        random.integers(1, POOL + 1, jobs), estimate, user=random.integers(0, 4, jobs),
    )  # fmt: skip


def test_the_control_has_67_weights_and_the_network_of_four_layers_993() -> None:
    assert (scoring.weights_in(SMALL), scoring.weights_in(DEEP)) == (67, 993)


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@given(jobs=queues(), seed=st.integers(0, 9), widths=st.sampled_from([SMALL, DEEP]))
@settings(max_examples=20, deadline=None)
def test_kernel_and_referee_start_every_job_alike(
    rules: object, jobs: QueueJobs, seed: int, widths: tuple[int, ...]
) -> None:
    jobs = jobs.cut_at_estimate()
    keys = OrderKeys.scored(len(jobs), scorer(widths, seed))
    given_both = (jobs, jobs.estimate_ns, POOL, keys, "easy", rules)
    start, overtook = kernel.play(*given_both)  # type: ignore[arg-type]
    assert (start.tolist(), overtook.tolist()) == referee.play(*given_both)  # type: ignore[arg-type]


def test_only_the_oldest_are_scored_in_kernel_and_referee_alike() -> None:
    jobs = crowd()
    keys = OrderKeys.scored(len(jobs), scorer())
    start, overtook = kernel.play(jobs, jobs.estimate_ns, POOL, keys, "easy", PREDICTSIM)
    waiting = max(int(((jobs.submit_ns <= at) & (start > at)).sum()) for at in jobs.submit_ns)
    assert waiting > scoring.CANDIDATES
    assert (start.tolist(), overtook.tolist()) == referee.play(
        jobs, jobs.estimate_ns, POOL, keys, "easy", PREDICTSIM
    )


def test_a_network_of_minus_the_estimate_is_sjf() -> None:
    jobs = crowd(100)
    weights = np.zeros(len(FEATURES) + 1)
    weights[FEATURES.index("estimate")] = -1
    shortest = kernel.play(
        jobs, jobs.estimate_ns, POOL, recipe("sjf").keys(jobs, jobs.estimate_ns), "easy", PREDICTSIM
    )[0]
    assert played(jobs, JobScorer((len(FEATURES), 1), weights)).tolist() == shortest.tolist()


def logits(with_: JobScorer, rows: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """The network once more, layer by layer."""
    used, values = 0, rows
    for below, above in zip(with_.widths, with_.widths[1:], strict=False):
        weights = with_.weights[used : used + below * above].reshape(below, above)
        used += below * above + above
        values = values @ weights + with_.weights[used - above : used]
        values = np.maximum(values, 0) if above > 1 else values
    return values[:, 0]


def test_a_trail_holds_every_choice_with_all_that_could_be_chosen() -> None:
    # Two processors: the first job runs, the second (two processors) is chosen to be the head or the others
    # are; whoever is not the head and ends by second 10 may overtake it.
    jobs = QueueJobs.of_seconds([0, 1, 1, 1], [10, 5, 4, 30], [1, 2, 1, 1])
    weights = np.zeros(len(FEATURES) + 1)
    weights[FEATURES.index("size")] = 1e6  # the largest is the head, whatever the noise
    trail = scoring.trail_of(1_000, seed=1)
    played_on(jobs, JobScorer((len(FEATURES), 1), weights), 2, trail)
    found = trail.decisions[: trail.counts[scoring.DECISIONS]]
    first = found[0].tolist()
    assert first[scoring.COUNT :] == [2, 10**9, 1, 0]  # job 1 against job 2: a pass after each submission
    assert all(one[scoring.COUNT] >= 2 for one in found.tolist())
    assert [one[scoring.OVERTOOK] for one in found.tolist() if one[scoring.JOB] == 2] == []  # alone it fitted


def played_on(jobs: QueueJobs, with_: JobScorer, processors: int, trail: Scoring) -> Int:
    keys = OrderKeys.scored(len(jobs), with_)
    return kernel.play(jobs, jobs.estimate_ns, processors, keys, "easy", PREDICTSIM, trail)[0]


def test_choices_are_drawn_from_the_softmax_of_the_scores() -> None:
    with_, jobs = scorer(DEEP), crowd(2_000)
    expected, seen, variance = 0.0, 0.0, 0.0
    trail = scoring.trail_of(400_000, seed=7)
    played(jobs, with_, trail)
    for begin, count, *_ in trail.decisions[: trail.counts[scoring.DECISIONS]].tolist():
        scores = logits(with_, trail.rows[trail.eligible[begin : begin + count]])
        odds = np.exp(scores - scores.max())
        odds /= odds.sum()
        place = np.argsort(np.argsort(-scores))  # 0: the highest score
        expected += odds @ (place == 0)
        variance += (odds @ (place == 0)) * (1 - odds @ (place == 0))
        seen += place[0] == 0
    assert trail.counts[scoring.DECISIONS] > 1_000
    assert abs(seen - expected) < 4 * np.sqrt(variance)


def test_a_trail_depends_on_its_seed_alone_and_ends_where_it_is_full() -> None:
    jobs = crowd()
    one, same, other, short = (
        scoring.trail_of(size, seed) for size, seed in ((60_000, 1), (60_000, 1), (60_000, 2), (50, 1))
    )
    starts = [played(jobs, scorer(), trail).tolist() for trail in (one, same, other, short)]
    assert starts[0] == starts[1] == starts[3] != starts[2]
    assert np.array_equal(one.decisions, same.decisions)
    assert 0 < short.counts[scoring.DECISIONS] < one.counts[scoring.DECISIONS]


def test_no_start_depends_on_what_comes_after_it() -> None:
    jobs = crowd(400)
    before = played(jobs, scorer(DEEP))
    middle = int(np.median(before))
    later = (before + jobs.run_ns > middle) & (before <= middle) | (jobs.submit_ns > middle)
    run = np.where(before > middle, 1, np.where(later, np.maximum(middle + 1 - before, 1), jobs.run_ns))
    kept = jobs.submit_ns <= middle
    after = played(replace(jobs, run_ns=run).select(kept), scorer(DEEP))
    assert (run != jobs.run_ns).sum() > 100
    assert (before[kept][before[kept] <= middle] == after[before[kept] <= middle]).all()
