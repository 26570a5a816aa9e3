"""An alarm is a change that the whole forecast did not expect: raised once, cleared when that fits again."""

from math import log

import numpy as np
import pytest

from ingest.core.units import NS_PER_S
from twin.filters.change_alarms import GATE, MEMORY, OUTLIERS, SETTLED, ChangeAlarms, Innovations
from twin.filters.filterpy_bank import FilterpyBank
from twin.filters.forecasters import Persistence, SingleModel
from twin.filters.kalman_bank import FilterBank
from twin.filters.multiple_model import MultipleModelFilter
from twin.filters.ou_process import Array, OuParameters

S = NS_PER_S
ONE = np.array([0])
NOISE = 0.03


def models(bank: type[FilterBank] = FilterBank, links: int = 1, tau_s: float = 30) -> MultipleModelFilter:
    """Links that return to 3 Gb/s within a minute, as training saw them, or stay where they are."""
    returns = OuParameters.of(np.full(links, log(3e9)), tau_s=tau_s, sd=0.05, r=NOISE**2)
    stays = OuParameters.of(np.full(links, log(3e9)), tau_s=1e13, sd=0.02 * 1e6, r=NOISE**2)
    return MultipleModelFilter(returns, stays, bank)


def alarms(filter_: MultipleModelFilter | SingleModel, rates_bps: Array, seed: int = 0) -> list[int]:
    """Numbers of the samples, 30 s apart and with noise, that raise an alarm."""
    noise = NOISE * np.random.default_rng(seed).standard_normal(len(rates_bps))
    raised = []
    for k, z in enumerate((np.log(rates_bps) + noise).tolist()):
        if len(filter_.observe(30 * k * S, ONE, np.array([z]))[0]):
            raised.append(k)
    return raised


def levels(*pairs: tuple[float, int]) -> Array:
    """Rates that hold each level, in Gb/s, for a number of samples."""
    return np.concatenate([np.full(count, 1e9 * level) for level, count in pairs])


every_bank = pytest.mark.parametrize("bank", [FilterBank, FilterpyBank])


@every_bank
def test_a_link_that_settles_away_from_its_mean_is_one_alarm(bank: type[FilterBank]) -> None:
    filter_ = models(bank)
    restarts = 0
    assert alarms(filter_, levels((3, 20))) == []
    for k, z in enumerate((np.log(levels((1.48, 200)))).tolist()):
        raised, nis = filter_.observe(30 * (20 + k) * S, ONE, np.array([z]))
        restarts += len(filter_.restarted)
        assert len(raised) == (k == 1), f"sample {k} at the new level"
    assert restarts > 100, "the reverting filter alone is wrong all the time: that is no alarm"
    assert nis[0] < 1


def test_the_first_sample_of_a_link_elsewhere_is_no_storm() -> None:
    """As it was tried: trained at 3 Gb/s, flat at 1.48 from the first sample on."""
    assert len(alarms(models(), levels((1.48, 200)))) <= 1


@pytest.mark.parametrize("factor", [0.3, 0.5, 1.8])
def test_a_change_of_level_is_found_by_its_second_sample_and_so_is_the_way_back(factor: float) -> None:
    assert alarms(models(), levels((3, 50), (3 * factor, 50), (3, 50))) == [51, 101]


def test_one_outlier_is_no_alarm_and_neither_are_outliers_on_both_sides() -> None:
    assert alarms(models(), levels((3, 30), (1, 1), (3, 30), (9, 1), (1, 1), (9, 1), (3, 30))) == []


def test_where_outliers_are_usual_two_in_a_row_are_not_enough_but_three_are() -> None:
    spiky = [(3, 30), *((1.0, 1), (3.0, 10)) * 8]
    assert alarms(models(), levels((3, 30), (1, 2))) == [31]
    assert alarms(models(), levels(*spiky, (1, 2), (3, 10))) == []
    start = sum(count for _, count in spiky)
    assert alarms(models(), levels(*spiky, (1, 40))) == [start + 2]


def test_noise_as_stated_raises_no_alarm() -> None:
    assert [n for seed in range(20) for n in alarms(models(), levels((3, 500)), seed)] == []


def test_a_link_that_flaps_is_one_alarm_until_it_rests() -> None:
    flapping = levels(*((1.0, 2), (3.0, 2)) * 20)
    raised = alarms(models(), np.concatenate([levels((3, 20)), flapping, levels((3, 60), (1.2, 20))]))
    assert raised[0] == 21 and raised[-1] == 20 + 80 + 60 + 1
    assert len(raised) <= 4


def test_a_second_sample_hours_later_confirms_only_what_the_uncertainty_of_that_time_excludes() -> None:
    returns = OuParameters.of(np.full(1, log(3e9)), tau_s=600, sd=0.5, r=NOISE**2)
    filter_ = MultipleModelFilter(returns, returns.without_reversion)
    for k in range(20):
        filter_.observe(k * S, ONE, np.array([log(3e9)]))
    assert not len(filter_.observe(20 * S, ONE, np.array([log(2e9)]))[0])
    assert not len(filter_.observe(20_000 * S, ONE, np.array([log(2e9)]))[0])


def test_a_forecaster_raises_alarms_too() -> None:
    rng = np.random.default_rng(0)
    past = log(3e9) + NOISE * rng.standard_normal(200)
    trained = Persistence()
    trained.train([np.arange(200) * 30.0], [past])
    assert alarms(SingleModel(trained, 1), levels((3, 50), (1.5, 200))) == [51]


def test_links_have_alarms_of_their_own() -> None:
    filter_, rates = models(links=3), np.log([3e9, 3e9, 3e9])
    for k in range(20):
        filter_.observe(30 * k * S, np.arange(3), rates)
    rates[2] = log(1e9)
    filter_.observe(600 * S, np.array([1, 2]), rates[1:])
    raised, _ = filter_.observe(630 * S, np.array([0, 2]), rates[[0, 2]])
    assert raised.tolist() == [2]


def test_the_compiled_alarms_equal_plain_ones() -> None:
    rng = np.random.default_rng(1)
    compiled, plain, raised = ChangeAlarms(6), [_Plain() for _ in range(6)], 0
    for _ in range(600):
        index = np.flatnonzero(rng.random(6) < 0.7)
        z, e, first, second, weight = rng.uniform(0.1, 1, (5, len(index)))
        z, e = 3 * z, np.where(rng.random(len(index)) < 0.3, 6, 1) * (e - 0.5)
        found = Innovations(e, weight * first + (1 - weight) * second + 0.1, weight, first, second)
        if len(index):
            found.variance[:] *= rng.uniform(0.02, 1)
            first *= 0.03
            second *= 0.03
        new = compiled.observe(index, z, found)
        expected = [link for n, link in enumerate(index.tolist()) if plain[link].observe(n, z[n], found)]
        assert new.tolist() == expected
        assert compiled.raised[index].tolist() == [plain[link].raised for link in index]
        raised += len(expected)
    assert raised > 20


class _Plain:
    """Alarm of one link, in plain Python."""

    def __init__(self) -> None:
        self.nis, self.outliers, self.raised = 1.0, 0.0, False
        self.before: tuple[float, float, float] | None = None  # forecast from before the first odd sample
        self.sides: list[int] = []  # of it on which the last samples were, in a row

    def observe(self, n: int, z: float, found: Innovations) -> bool:
        e, variance, weight = found.innovation[n], found.variance[n], found.weight[n]
        self.nis = MEMORY[0] * self.nis + (1 - MEMORY[0]) * min(e**2 / variance, GATE**2)
        if self.raised:
            self.raised = self.nis > SETTLED
            return False
        fits = abs(e) <= GATE * variance**0.5
        if self.before is None:
            if fits:
                self.outliers *= MEMORY[1]
                return False
            self.before, self.sides = (z - e, variance, weight), []
        forecast, stated, share = self.before
        reach = GATE * max(stated, share * found.first[n] + (1 - share) * found.second[n]) ** 0.5
        side = 0 if abs(z - forecast) <= reach else 1 if z > forecast else -1
        outlier = bool(self.sides) and self.sides[-1] != side
        self.sides = [*([] if outlier else self.sides), side] if side else []
        self.raised = len(self.sides) >= (2 if self.outliers <= OUTLIERS else 3)
        self.outliers = MEMORY[1] * self.outliers + (1 - MEMORY[1]) * outlier
        if self.raised or (side == 0 and fits):
            self.before = None
        return self.raised
