"""A learned choice of sites: what it costs, where it begins, what its choices are rewarded, what it finds."""

import numpy as np
import pytest

from policy.hippo.queue import site_training
from policy.hippo.queue.network import scorer_of
from policy.hippo.queue.rollout import accrued
from policy.hippo.queue.site_windows import SitePart, SitePrices, SiteWindow, site_log_slowdowns
from tests.support.site_worlds import S
from twin.core.seeds import generator
from twin.queue.jobs import QueueJobs
from twin.sites.figures import carbon_kg, egress_usd
from twin.sites.inputs import SiteCarbon, SiteJobs, SiteLinks, single_sites
from twin.sites.simulation import SiteWorld

HOUR = 3600 * S
ORDER = "fcfs+easy"


def over_two(jobs: QueueJobs, data_kb: int = 0) -> SitePart:
    """Synthetic: two sites of 8 GPUs; b is green, but its data lie at a; from 1 h on a is as green."""
    sizes, size = np.unique(jobs.processors, return_inverse=True)
    gpus, count = np.array([8, 8]), len(jobs)
    links = SiteLinks(np.zeros(1, np.int64), np.array([[[0, 1000], [1000, 0]]]), np.array([[0, 20], [20, 0]]))
    carbon = SiteCarbon(np.array([0, HOUR]), np.array([[500_000, 100_000], [100_000, 100_000]]))
    asked = SiteJobs(size.astype(np.int64), np.full(count, data_kb), np.zeros(count, np.int64))
    return SitePart(jobs, asked, SiteWorld(("a", "b"), gpus, links, single_sites(sizes, gpus, 1), carbon))


@pytest.fixture(scope="module")
def part() -> SitePart:
    random = generator(3, "toy sites")
    submit = np.sort(random.integers(0, 9_000, 120))
    run = random.integers(50, 800, 120)
    jobs = QueueJobs.of_seconds(submit, run, random.integers(1, 5, 120), run + 20)
    return over_two(jobs, data_kb=50_000)


def test_egress_and_carbon_by_hand() -> None:
    jobs = QueueJobs.of_seconds([0, 0], [3600, 7200], [2, 4], [3600, 7200])
    made = over_two(jobs, data_kb=1_000)
    at_home = made.play(ORDER, next(one for one in site_training.site_rules() if one.name == "at-data"))
    assert at_home.option.tolist() == [0, 2] and egress_usd(at_home).tolist() == [0.0, 0.0]
    # 2 GPUs x 400 W x 1 h x 500 g; 4 x 400 W x (1 h x 500 g + 1 h x 100 g)
    assert carbon_kg(at_home, 400.0) == pytest.approx([0.4, 0.96])
    prices = SitePrices(egress_usd=1.0, carbon_kg=0.5)
    assert prices.costs(at_home) == pytest.approx([0.8, 1.92])  # no wait, no transfer: log slowdown 0
    green = made.play(ORDER, site_training.GREENEST)
    assert green.option.tolist() == [1, 3] and egress_usd(green) == pytest.approx([2e-5, 2e-5])


def test_parts_begin_with_their_intensities(part: SitePart) -> None:
    first, later = part.split(0.6)
    assert len(first.jobs) == 72 and len(later.jobs) == 48 and later.jobs.submit_ns.min() == 0
    began = int(part.jobs.submit_ns[72])
    assert later.world.carbon is not None
    assert later.world.carbon.at.tolist() == ([0] if began >= HOUR else [0, HOUR - began])


@pytest.mark.parametrize("rule", site_training.site_rules(), ids=lambda one: one.name)
def test_a_training_begins_at_its_rule(part: SitePart, rule) -> None:  # type: ignore[no-untyped-def]
    scorer = scorer_of(site_training.begun_at(site_training.SITE_WIDTHS, rule, seed=1))
    own, by_rule = part.play_network(ORDER, scorer)[0], part.play(ORDER, rule)
    assert own.start_ns.tolist() == by_rule.start_ns.tolist()
    assert own.option.tolist() == by_rule.option.tolist()


def test_rewards_add_up_to_what_costs_less(part: SitePart) -> None:
    rule = site_training.GREENEST
    window = SiteWindow.of(part, ORDER, rule, SitePrices.of(part, ORDER))
    scorer = scorer_of(site_training.begun_at(site_training.SITE_WIDTHS, rule, seed=1))
    found = site_training.site_rollout(window, scorer, seed=5)
    own = part.play_network(ORDER, scorer, site_training.SITE_ROOM, 5)[0]
    assert own.option.tolist() != window.base.option.tolist()
    before = [
        accrued(part.jobs.submit_ns, part.jobs.run_ns, done.start_ns, found.time_ns[:1])[0]
        for done in (window.base, own)
    ]
    expected = window.cost.sum() - window.prices.costs(own).sum() - before[0] + before[1]
    assert found.reward.sum() == pytest.approx(expected)
    assert site_log_slowdowns(own).min() >= 0


@pytest.mark.parametrize("method", ["ppo", "evolution"])
def test_what_is_kept_costs_no_more_than_the_rule(part: SitePart, method) -> None:  # type: ignore[no-untyped-def]
    begun = (ORDER, site_training.GREENEST)
    made = site_training.train_sites(part, method, seed=2, steps=1, begun=begun)
    assert made.order == ORDER and made.provenance["rule"] == "greenest" and made.provenance["steps"] == 1
    assert made.provenance["validation"]["cost"] <= made.provenance["validation"]["rule"]
    again = site_training.train_sites(part, method, seed=2, steps=1, begun=begun)
    assert again.scorer.weights.tolist() == made.scorer.weights.tolist()


def test_the_best_pair_costs_least(part: SitePart) -> None:
    order, rule = site_training.best_on_sites(part, site_training.site_rules())
    prices = SitePrices.of(part, site_training.SITE_ORDERS[0])
    best = prices.costs(part.play(order, rule)).mean()
    assert all(best <= prices.costs(part.play(ORDER, one)).mean() for one in site_training.site_rules())
