"""Choices of sites: by hand by load and carbon; a network that passes a rule on is that rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from policy.queue.registry import recipe
from tests.support.site_worlds import S, choice, clusters, links, world
from twin.queue.jobs import QueueJobs
from twin.queue.recipe import JobScorer
from twin.sites.choosing import CHOICE_COUNT, CHOICES, HINTS, ROWS, SITE_FEATURES, Choosing, choosing_of
from twin.sites.inputs import SITE_RULES, SiteCarbon, SiteJobs, SiteOptions, joined, single_sites
from twin.sites.simulation import SiteWorld, simulate_on_sites

LEARNED = SITE_RULES.index("learned")
EASY = recipe("easy")


def passing_on(made: SiteWorld, feature: int, room: int = 0, seed: int = 0) -> Choosing:
    """A network of one layer whose score is one feature."""
    weights = np.zeros(len(SITE_FEATURES) + 1)
    weights[feature] = 1.0
    net = JobScorer((len(SITE_FEATURES), 1), weights)
    return choosing_of(LEARNED, made.gpus, made.carbon, net, room, seed)


def two_green_sites() -> SiteWorld:
    """8 and 4 GPUs; a is dirty until 50 s, b afterwards."""
    over = links((0, [[0, 100], [100, 0]]))
    made = world([8, 4], over, single_sites(np.array([2]), np.array([8, 4]), 1))
    carbon = SiteCarbon(np.array([0, 50]) * S, np.array([[400_000, 100_000], [200_000, 300_000]]))
    return SiteWorld(made.names, made.gpus, made.links, made.options, carbon)


def test_load_and_carbon_by_hand() -> None:
    jobs = QueueJobs.of_seconds([0, 1, 2, 60], [100, 100, 100, 100], [2, 2, 2, 2])
    asked = SiteJobs(np.zeros(4, np.int64), np.zeros(4, np.int64), np.full(4, -1))
    made = two_green_sites()
    # a 0 of 8 -> a; a 2 of 8, b 0 of 4 -> b; a 2 of 8 < b 2 of 4 -> a; a 4 of 8 = b 2 of 4 -> the first
    loaded = simulate_on_sites(jobs, asked, made, EASY, choice("least-loaded"))
    assert loaded.option.tolist() == [0, 1, 0, 0]
    # b until it is full; at 60 s a is greener
    green = simulate_on_sites(jobs, asked, made, EASY, choice("greenest"))
    assert green.option.tolist() == [1, 1, 0, 0]
    with pytest.raises(UsageError, match="carbon intensity of the sites is not given"):
        blind = SiteWorld(made.names, made.gpus, made.links, made.options)
        simulate_on_sites(jobs, asked, blind, EASY, choice("greenest"))
    with pytest.raises(UsageError, match="needs its network"):
        simulate_on_sites(jobs, asked, made, EASY, choice("learned"))


def test_mast_goes_to_the_data_and_then_to_the_least_demand_over_supply() -> None:
    over = links((0, [[0, 100, 100], [100, 0, 100], [100, 100, 0]]))
    made = world([4, 4, 8], over, single_sites(np.array([2, 4, 8]), np.array([4, 4, 8]), 1))
    jobs = QueueJobs.of_seconds(range(6), [100, 100, 50, 20, 20, 20], [4, 2, 8, 2, 2, 2])
    asked = SiteJobs(np.array([1, 0, 2, 0, 0, 0]), np.full(6, 1_000), np.array([0, 2, 2, 0, 0, 2]))
    done = simulate_on_sites(jobs, asked, made, EASY, choice("mast"))
    # a is full from 0 s on, and the third job waits at c for all of it. The fourth: b 2 of 4, or c with
    # 2 that run, 8 that wait and its own 2 of 8: b. The fifth: b 4 of 4, c still 12 of 8: b.
    # The last one has its data at c, whatever the demand there.
    assert [made.options.home[way] for way in done.option] == [0, 2, 2, 1, 1, 2]
    assert (done.end_ns // S).tolist() == [100, 101, 151, 33, 34, 25]
    loaded = simulate_on_sites(jobs, asked, made, EASY, choice("least-loaded"))
    assert made.options.home[loaded.option[4]] == 2  # 2 of 8 run there, 2 of 4 at b: who waits is not seen


def test_mast_takes_one_site_before_several() -> None:
    alone = single_sites(np.array([1, 2]), np.array([2, 2]), 1)
    both = SiteOptions(
        np.array([0, 0, 1]), np.array([[1, 1]]), np.array([0]), np.array([[1000]]), np.array([0])
    )
    made = world([2, 2], links((0, [[0, 100], [100, 0]])), joined(alone, both))
    jobs = QueueJobs.of_seconds([0, 1], [100, 20], [1, 2])
    asked = SiteJobs(np.array([0, 1]), np.array([1_000, 1_000]), np.array([0, 0]))
    # One GPU is free at the data, and two at the other site: the data move there
    found = simulate_on_sites(jobs, asked, made, EASY, choice("mast"))
    assert made.options.need[found.option].tolist() == [[1, 0], [0, 2]]
    fast = simulate_on_sites(jobs, asked, made, EASY, choice("fastest"))
    assert made.options.need[fast.option].tolist() == [[1, 0], [1, 1]]


@settings(max_examples=30, deadline=None)
@given(clusters(), st.sampled_from(range(len(HINTS))), st.sampled_from(("easy", "saf", "wfp3+easy")))
def test_a_network_that_passes_a_rule_on_is_that_rule(
    cluster: tuple[QueueJobs, SiteJobs, SiteWorld], hint: int, name: str
) -> None:
    jobs, asked, made = cluster
    rule = SITE_RULES[HINTS[hint]]
    assert SITE_FEATURES[hint] == rule
    ruled = simulate_on_sites(jobs, asked, made, recipe(name), choice(rule))
    learned = simulate_on_sites(jobs, asked, made, recipe(name), choice("learned"), by=passing_on(made, hint))
    assert learned.option.tolist() == ruled.option.tolist()
    assert learned.start_ns.tolist() == ruled.start_ns.tolist()


def test_a_trail_holds_every_choice_and_follows_from_its_seed() -> None:
    jobs = QueueJobs.of_seconds([0, 1, 2, 3], [100] * 4, [2] * 4)
    asked = SiteJobs(np.zeros(4, np.int64), np.zeros(4, np.int64), np.full(4, -1))
    made, found = two_green_sites(), list[tuple[list[int], Choosing]]()
    for seed in (1, 1, 2, 3, 4):
        by = passing_on(made, 4, room=100, seed=seed)
        found.append(
            (simulate_on_sites(jobs, asked, made, EASY, choice("learned"), by=by).option.tolist(), by)
        )
    assert found[0][0] == found[1][0] and len({str(way) for way, _ in found}) > 1
    by = found[0][1]
    assert by.counts[CHOICES] >= 2 and (by.choices[: by.counts[CHOICES], CHOICE_COUNT] == 2).all()
    rows = by.rows[: by.counts[ROWS]]
    assert rows[:, : len(HINTS)].sum() == len(HINTS) * by.counts[CHOICES]  # each rule takes one way
    assert rows[:, 10].max() == 0.4  # kg/kWh
