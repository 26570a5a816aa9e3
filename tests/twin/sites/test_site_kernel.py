"""A queue over sites: by hand, and the compiled kernel equal to the reference simulator."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from policy.queue import registry
from tests.support.event_streams import of_kernel, of_referee
from tests.support.queues import queues
from tests.support.site_worlds import SITES, S, choice, clusters, links, world
from twin.queue.jobs import QueueJobs
from twin.queue.referee import Happening
from twin.queue.rules import INSTANT
from twin.queue.simulation import simulate
from twin.sites import kernel, referee
from twin.sites.figures import site_figures
from twin.sites.inputs import (
    SITE_RULES,
    SiteJobs,
    SiteOptions,
    joined,
    single_sites,
)
from twin.sites.simulation import SiteSchedule, SiteWorld, simulate_on_sites

CLUSTERS = int(os.environ.get("TWIN_FUZZ", "60"))
FCFS, EASY = registry.recipe("fcfs"), registry.recipe("easy")
CONSERVATIVE = registry.recipe("conservative")
RECIPES = [registry.recipe(name) for name in registry.names() if "slip" not in name]


def two_sites(rates: tuple[int, int]) -> SiteWorld:
    """Two sites of 4 GPUs; a link of 100 kB/s, from 50 s on of 50. Jobs of 2 GPUs run on one, 6 on both."""
    over = links((0, [[0, 100], [100, 0]]), (50, [[0, 50], [50, 0]]))
    alone = single_sites(np.array([2, 6]), np.array([4, 4]), 2)
    both = SiteOptions(
        np.array([0, 0, 1]),
        np.array([[3, 3]]),
        np.array([0]),
        np.array([[rates[0]], [rates[1]]]),
        np.array([7]),
    )
    return world([4, 4], over, joined(alone, both))


def test_data_come_first_and_cost_what_leaves_a_site() -> None:
    jobs = QueueJobs.of_seconds([0, 0], [100, 10], [2, 2])
    asked = SiteJobs(np.array([0, 0]), np.array([8_000, 0]), np.array([1, -1]))
    done = simulate_on_sites(jobs, asked, two_sites((500, 250)), FCFS, choice("first-site"))
    # 5,000 kB in 50 s, 3,000 kB more in 60 s, then 100 s of work
    assert (done.end_ns // S).tolist() == [210, 10] and done.option.tolist() == [0, 0]
    found = site_figures(done)
    assert found.egress_usd == pytest.approx(8_000 * 20 / 1e9) and found.moved_gb == 0.008
    assert (found.moved_jobs, found.spanning_jobs) == (0.5, 0.0)
    assert found.stretch == pytest.approx((210 * 2 + 10 * 2) / (110 * 2))
    assert found.gpu_share == pytest.approx({"a": 440 / (4 * 210), "b": 0.0})
    near = simulate_on_sites(jobs, asked, two_sites((500, 250)), FCFS, choice("fastest"))
    assert (near.end_ns // S).tolist() == [100, 10] and near.option.tolist() == [1, 0]


def test_a_job_over_two_sites_follows_its_links() -> None:
    jobs = QueueJobs.of_seconds([0], [100], [6])
    asked = SiteJobs(np.array([1]), np.array([0]), np.array([-1]))
    done = simulate_on_sites(jobs, asked, two_sites((500, 250)), FCFS, choice("fastest"))
    assert done.end_ns.tolist() == [350 * S]  # 50 s at a half, then 75 s of work at a quarter
    found = site_figures(done)
    assert found.spanning_jobs == 1 and found.egress_usd == pytest.approx(7 * 100_000 / 1e9)


def test_the_cheapest_site_waits_for_no_better_one_and_at_data_waits() -> None:
    jobs = QueueJobs.of_seconds([0, 1, 2], [100, 100, 100], [2, 2, 2])
    asked = SiteJobs(np.zeros(3, np.int64), np.full(3, 1_000), np.zeros(3, np.int64))
    recipe, given_ = FCFS, two_sites((500, 250))
    cheap = simulate_on_sites(jobs, asked, given_, recipe, choice("least-egress"))
    assert cheap.option.tolist() == [0, 0, 1] and (cheap.end_ns // S).tolist() == [100, 101, 112]
    patient = simulate_on_sites(jobs, asked, given_, recipe, choice("at-data"))
    assert patient.option.tolist() == [0, 0, 0] and (patient.start_ns // S).tolist() == [0, 1, 100]


def test_easy_does_not_delay_the_head_over_sites() -> None:
    jobs = QueueJobs.of_seconds([0, 1, 2, 3], [100, 50, 500, 90], [2, 6, 2, 2])
    asked = SiteJobs(np.array([0, 1, 0, 0]), np.zeros(4, np.int64), np.full(4, -1))
    done = simulate_on_sites(jobs, asked, two_sites((1000, 1000)), EASY, choice("first-site"))
    # the head wants 3 on both at 1 s: site a has 2 of 4 free until 100 s
    assert (done.start_ns // S).tolist()[1] == 100
    assert done.backfilled.tolist() == [False, False, False, True]  # the long one would hold 2 of a


def test_conservative_keeps_the_turn_of_every_job_over_sites() -> None:
    # The second job wants both sites, from 100 s on; the third, eight GPUs wide over the pair, comes then.
    # Under easy the fourth may run past the third's turn on GPUs that the head leaves.
    jobs = QueueJobs.of_seconds([0, 1, 2, 3], [100, 50, 50, 160], [2, 6, 6, 2])
    asked = SiteJobs(np.array([0, 1, 1, 0]), np.zeros(4, np.int64), np.full(4, -1))
    made = two_sites((1000, 1000))
    done = simulate_on_sites(jobs, asked, made, CONSERVATIVE, choice("first-site"))
    assert (done.start_ns // S).tolist() == [0, 100, 150, 200]
    shorter = QueueJobs.of_seconds([0, 1, 2, 3], [100, 50, 50, 90], [2, 6, 6, 2])
    done = simulate_on_sites(shorter, asked, made, CONSERVATIVE, choice("first-site"))
    assert (done.start_ns // S).tolist() == [0, 100, 150, 3]
    assert done.backfilled.tolist() == [False, False, False, True]


@given(queues(14))
@settings(max_examples=20, deadline=None)
def test_one_site_is_a_pool(jobs: QueueJobs) -> None:
    sizes, size = np.unique(jobs.processors, return_inverse=True)
    gpus, count = np.array([8]), len(jobs)
    made = world([8], links((0, [[0]])), single_sites(sizes, gpus, 1))
    asked = SiteJobs(size.astype(np.int64), np.zeros(count, np.int64), np.full(count, -1))
    for recipe in (EASY, CONSERVATIVE):
        done = simulate_on_sites(jobs, asked, made, recipe, choice("first-site"))
        pool = simulate(jobs, 8, recipe, rules=INSTANT)
        assert done.start_ns.tolist() == pool.start_ns.tolist()
        assert done.backfilled.tolist() == pool.backfilled.tolist()


def test_a_link_that_stays_dead_is_an_error() -> None:
    over = links((0, [[0, 100], [100, 0]]), (5, [[0, 0], [0, 0]]))
    made = world([4, 4], over, single_sites(np.array([2]), np.array([4, 4]), 2))
    jobs = QueueJobs.of_seconds([0], [10], [2])
    asked = SiteJobs(np.array([0]), np.array([10_000]), np.array([1]))
    with pytest.raises(UsageError, match="a link that stays dead"):
        simulate_on_sites(jobs, asked, made, FCFS, choice("first-site"))


@pytest.mark.parametrize(
    ("run_s", "kb", "size", "words"),
    [(9e6, 0, 0, "100 days"), (10, 10**10, 0, "9 TB"), (10, -1, 0, "9 TB"), (10, 0, 1, "fits on no site")],
)
def test_jobs_that_cannot_be_played(run_s: float, kb: int, size: int, words: str) -> None:
    over = links((0, [[0, 1], [1, 0]]))
    made = world([4, 4], over, single_sites(np.array([2, 9]), np.array([4, 4]), 1))
    asked = SiteJobs(np.array([size]), np.array([kb]), np.array([0]))
    with pytest.raises(UsageError, match=words):
        simulate_on_sites(QueueJobs.of_seconds([0], [run_s], [2]), asked, made, FCFS, choice("fastest"))


@settings(max_examples=CLUSTERS, deadline=None)
@given(clusters(), st.sampled_from(RECIPES), st.sampled_from(SITE_RULES[:-1]))
def test_kernel_and_referee_have_the_same_events(
    cluster: tuple[QueueJobs, SiteJobs, SiteWorld], recipe, rule: str
) -> None:  # type: ignore[no-untyped-def]
    jobs, asked, made = cluster
    played = jobs.cut_at_estimate()
    try:
        keys = recipe.keys(played, played.estimate_ns)
    except UsageError:
        return  # no job has a priority or a deadline
    given_ = (
        played,
        played.estimate_ns,
        asked,
        made.gpus,
        made.links,
        made.options,
        keys,
        recipe.backfill,
        rule,
        made.carbon,
    )
    happened: list[Happening] = []
    done = SiteSchedule(played, asked, made, *kernel.play(*given_))
    referee.play(*given_, happened=happened)
    assert of_kernel(done) == of_referee(happened, done)
    held = {k: np.zeros(0) for k in range(SITES)}
    for k in held:
        need = made.options.need[done.option, k]
        times = np.concatenate((done.start_ns, done.end_ns))
        order = np.lexsort((np.repeat((1, 0), len(jobs)), times))
        assert np.cumsum(np.concatenate((need, -need))[order]).max() <= made.gpus[k]
