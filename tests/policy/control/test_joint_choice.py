"""The best set of options without overlap, and the options of a job."""

from itertools import product

import numpy as np
import pytest

from policy.control.joint_choice import OF_EACH_LENGTH, Gpus, Option, best_choice, domains_worth, options
from tests.support.views import flat
from tests.support.worlds import toy_setup
from twin.estimation.estimator import Estimator

ESTIMATOR = Estimator(toy_setup(3).cluster, toy_setup(3).job)
PLAN = ESTIMATOR.make((0,), (34,), 2, ((2, 1),), 1)


def option(gpus: Gpus, share: float, price: float = 0.0) -> Option:
    return Option(gpus, PLAN, share, share, price)


def test_two_jobs_of_one_domain_each_are_worth_more_than_one_on_both() -> None:
    both, left, right = option((4, 4), 1.0), option((4, 0), 0.9), option((0, 4), 0.9)
    worth, chosen = best_choice((4, 4), [[both, left, right], [both, left, right]])
    assert worth == pytest.approx(1.8)
    assert chosen == [left, right]


def test_a_job_that_would_be_worth_less_than_its_price_gets_none() -> None:
    worth, chosen = best_choice((4,), [[option((4,), 0.2, price=0.3)]])
    assert (worth, chosen) == (0.0, [None])


def test_among_equals_the_first_job_has_its_option() -> None:
    one = option((4,), 0.5)
    assert best_choice((4,), [[one], [one]]) == (0.5, [one, None])


def test_the_choice_is_that_of_trying_all() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        jobs = [
            [option(tuple(rng.integers(0, 5, 3).tolist()), float(rng.uniform(0, 1))) for _ in range(5)]
            for _ in range(3)
        ]
        best = 0.0
        for chosen in product(*([None, *own] for own in jobs)):
            taken = [one for one in chosen if one is not None]
            if all(sum(one.gpus[k] for one in taken) <= 6 for k in range(3)):
                best = max(best, sum(one.worth for one in taken))
        assert best_choice((6, 6, 6), jobs)[0] == pytest.approx(best)


def test_options_have_every_single_domain_and_the_price_of_their_gpus() -> None:
    found = options(ESTIMATOR, flat(3), (4, 4, 4), np.ones(3), price=0.1)
    single = [one for one in found if sum(map(bool, one.gpus)) == 1]
    assert {one.gpus for one in single} >= {(4, 0, 0), (0, 4, 0), (0, 0, 4)}
    assert len(single) <= OF_EACH_LENGTH
    assert max(one.share for one in found) == 1.0
    for one in found:
        assert one.price == pytest.approx(0.1 * sum(one.gpus) / 4)
        assert not ESTIMATOR.problems(one.plan, one.gpus)
    assert [one.worth for one in found] == sorted((one.worth for one in found), reverse=True)


def test_gpus_are_counted_in_mean_domains() -> None:
    assert domains_worth(ESTIMATOR.cluster, 6) == 1.5
