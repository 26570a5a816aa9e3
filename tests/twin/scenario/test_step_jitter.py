"""Iterations that scatter as measured steps do."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.accounts import problems
from tests.support.plays import durations, hold, of_type, plan_over, play, totals
from tests.support.restless_world import shape
from tests.support.worlds import toy_setup
from twin.core.plan import Plan
from twin.engines.engine import EngineName
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario
from twin.scenario.step_jitter import Jitter, quantiles

ENGINES: tuple[EngineName, ...] = ("kernel", "des")


def _uneven(factors: list[float], seconds: float = 1_500, **changes: object) -> PreparedScenario:
    return replace(toy_setup(seconds=seconds, **changes), jitter=np.array(factors))  # type: ignore[arg-type]


def _plan(setup: PreparedScenario) -> Plan:
    return plan_over(setup, (0, 1), (17, 17))


def test_quantiles_are_relative_to_the_median_of_each_worker() -> None:
    steps = np.array([1.0, 2.0, 3.0, 10.0, 20.0, 30.0, 0.0])
    found = quantiles(steps, np.array([0, 0, 0, 1, 1, 1, 1]), points=5)
    assert found.tolist() == [0.5, 0.625, 1.0, 1.375, 1.5]
    with pytest.raises(ValueError, match="greater than 0"):
        quantiles(np.zeros(3), np.zeros(3, np.int64))


def test_draws_follow_the_distribution_and_the_seed() -> None:
    jitter = Jitter(np.linspace(0.5, 1.5, 11), 3, np.random.default_rng(1))
    drawn = np.array([jitter.draw() for _ in range(4_000)])
    assert drawn.shape == (4_000, 3) and abs(drawn.mean() - 1) < 0.01
    assert np.quantile(drawn, 0.9) == pytest.approx(1.4, abs=0.02)
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.05


@pytest.mark.parametrize("engine", ENGINES)
def test_jitter_of_nothing_changes_no_iteration(engine: EngineName) -> None:
    still, calm = _uneven([1.0, 1.0]), toy_setup(seconds=1_500)
    assert durations(play(still, hold(_plan(still)), engine=engine)) == durations(
        play(calm, hold(_plan(calm)))
    )


def test_with_constant_links_both_engines_draw_the_same_iterations() -> None:
    setup = _uneven([0.9, 1.0, 1.0, 1.3], seconds=900)
    runs = [durations(play(setup, hold(_plan(setup)), engine=engine)) for engine in ENGINES]
    assert runs[0] == runs[1] and len(set(runs[0])) > 50


def test_the_slowest_domain_holds_up_the_iteration() -> None:
    """Every domain is either nominal or twice as slow: what counts is the slowdown of those in the plan."""
    setup = _uneven([1.0, 2.0 - 1e-12, 2.0])
    one = Estimator(setup.cluster, setup.job).iter_ns(_plan(setup), setup.wan.at(0))
    slow = Estimator(setup.cluster, setup.job).iter_ns(
        _plan(setup), setup.wan.at(0), np.array([2.0, 2.0, 2.0])
    )
    seen = durations(play(setup, hold(_plan(setup))))
    assert min(seen) >= one and max(seen) <= slow and np.mean(seen) > one


@pytest.mark.parametrize("engine", ENGINES)
def test_accounts_hold_and_computing_time_scatters_with_the_iterations(engine: EngineName) -> None:
    steps = {(0, 1): [(100.0, 5e8), (300.0, 3e9)], (1, 0): [(333.0, 1e9)]}
    fault = [{"domain": "d1", "gpus": 1, "at_s": 400, "for_s": 60}]
    setup = _uneven([0.8, 1.0, 1.6], steps=steps, gpu_faults=fault)
    facts = play(setup, hold(_plan(setup)), engine=engine)
    assert problems(setup, facts) == []
    total = totals(facts)
    calm = totals(play(toy_setup(seconds=1_500), hold(_plan(setup))))
    ratio = total["compute_ns"][0] / len(durations(facts)) / (calm["compute_ns"][0] / calm["iterations"])
    assert ratio == pytest.approx(1.1, abs=0.08)  # the mean of the interpolated quantiles
    assert len(of_type(facts, "gpu_failed")) == 1


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    runs = [_uneven([0.9, 1.2], seconds=300, seed=seed) for seed in (1, 1, 2)]
    shapes = [shape(play(setup, hold(_plan(setup)))) for setup in runs]
    assert shapes[0] == shapes[1] != shapes[2]
