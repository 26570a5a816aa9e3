"""What would change the answer: bandwidths of a link above or below which another plan is best.

The bandwidth of a link, both directions, is multiplied by a factor in every moment of the record, so that the
links still vary together. Rates of the best plan and of its rivals are compared over a grid of factors, and
the factor at which a rival draws level is found by bisection. Rates are means over a few states of the
record; the ratio of two plans is scaled to the one over all of them at factor 1, where it is known.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy.control.plan_rates import PlanRates
from replay.planning.figures import PlanFigures
from replay.planning.record import Record
from twin.core.domain import Pair
from twin.core.plan import Plan
from twin.costs.wan_traffic import crossings
from twin.estimation.link_state_times import States

Float = NDArray[np.float64]

STATES = 8
"""Joint states of the links over which rates are compared."""
FACTORS: Float = 2.0 ** np.arange(-4.0, 4.5, 0.5)
"""Factors on the bandwidth of a link that are tried: a sixteenth to sixteen times."""
LINKS = 4
"""Links that are tried: those on which the answer depends most."""
HALVED = 0.5
LEAST_GAIN = 0.01
"""A rival counts where it is ahead by so much somewhere: below, plans are the same to anyone who measures."""
ROUNDS = 12
"""Halvings of an interval of factors, which leave less than 0.01 % of it."""
NOW = len(FACTORS) // 2
"""Place of factor 1."""
Means = Callable[[Plan, Float], Float]
"""Mean rate of a plan for each factor on the bandwidth of one link."""
Lead = Callable[[Float], Float]
"""Share by which a rival is ahead of the best plan for each factor."""


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """The bandwidth of a link, both ways, above or below which the plan `winner` is best; `now_bps` is what
    it has, the mean of both directions over the record, and `gain` the most by which it wins within a factor
    of sixteen, as a share."""

    link: Pair
    now_bps: float
    at_bps: float
    above: bool
    winner: str
    gain: float

    def to_json(self, names: tuple[str, ...]) -> dict[str, Any]:
        """An element of `changes` in `twin.plan/1`."""
        return {**asdict(self), "link": [names[end] for end in self.link]}


def turning_points(
    record: Record, best: PlanFigures, rivals: Mapping[str, PlanFigures]
) -> list[TurningPoint]:
    """Returns for each link on which the answer depends the next turning points above and below its
    bandwidth, those nearest to it first."""
    rates, states = PlanRates(record.estimator, record.relayed), record.sampled(STATES)
    typical = record.typical.bandwidth_bps
    found = []
    for link in _links(record, best.plan, [one.plan for one in rivals.values()], rates, states):
        now = float(typical[link] + typical[link[::-1]]) / 2
        found += _of_link(link, now, partial(_means, rates, states, link), best, rivals)
    return sorted(found, key=lambda one: abs(np.log(one.at_bps / one.now_bps)))


def _links(
    record: Record, best: Plan, rivals: Iterable[Plan], rates: PlanRates, states: States
) -> list[Pair]:
    """Returns the links on which the answer depends most: that slow the best plan when halved, or bring a
    rival ahead of it when they are as wide as is tried."""
    alone = rates(best, states).mean()

    def change(plan: Plan, link: Pair, factor: float) -> float:
        return float(_means(rates, states, link, plan, np.array([factor]))[0] / alone - 1.0)

    worth = {link: -change(best, link, HALVED) for link in _crossed(record, best)}
    for rival in dict.fromkeys(rivals):
        for link in _crossed(record, rival):
            worth[link] = max(worth.get(link, 0.0), change(rival, link, float(FACTORS[-1])))
    return sorted(worth, key=lambda link: -worth[link])[:LINKS]


def _crossed(record: Record, plan: Plan) -> list[Pair]:
    """Returns the links that a plan crosses, each once."""
    return sorted({(min(pair), max(pair)) for pair in crossings(record.estimator.job, plan)})


def _means(rates: PlanRates, states: States, link: Pair, plan: Plan, factors: Float) -> Float:
    """Returns the mean rate of a plan for each factor (F,) on the bandwidth of a link."""
    count = len(states)
    bandwidth = np.tile(states.bandwidth_bps, (len(factors), 1, 1))
    scale = np.repeat(factors, count)
    for i, j in (link, link[::-1]):
        bandwidth[:, i, j] *= scale
    found = rates(plan, States(bandwidth, np.tile(states.latency_s, (len(factors), 1, 1))))
    means: Float = found.reshape(len(factors), count).mean(axis=1)
    return means


def _of_link(
    link: Pair, now_bps: float, means: Means, best: PlanFigures, rivals: Mapping[str, PlanFigures]
) -> list[TurningPoint]:
    """Returns the turning points of one link: the nearest above its bandwidth, and the nearest below."""
    own = means(best.plan, FACTORS)
    leads = {name: _lead(means, own, best, one) for name, one in rivals.items()}
    grid = {name: lead(FACTORS) for name, lead in leads.items()}
    found = []
    for above in (True, False):
        steps = range(NOW, len(FACTORS)) if above else range(NOW, -1, -1)
        serious = {name: values for name, values in grid.items() if values[steps].max() > LEAST_GAIN}
        turn = next((n for n in steps if any(values[n] > 0 for values in serious.values())), None)
        if turn is None:
            continue
        winner = max(serious, key=lambda name: float(serious[name][turn]))
        factor = _level(leads[winner], float(FACTORS[turn - (1 if above else -1)]), float(FACTORS[turn]))
        gain = float(serious[winner][steps].max())
        found.append(TurningPoint(link, now_bps, factor * now_bps, above, winner, gain))
    return found


def _lead(means: Means, own: Float, best: PlanFigures, rival: PlanFigures) -> Lead:
    """Returns the function that says by how much a rival is ahead; at factor 1 as over the whole record.
    `own` are the rates of the best plan for all `FACTORS`."""
    known = rival.mean_tokens_per_s / best.mean_tokens_per_s
    now = float(means(rival.plan, FACTORS[NOW : NOW + 1])[0])
    scale = known * own[NOW] / now if now > 0 else 0.0

    def lead(factors: Float) -> Float:
        rates = own if factors is FACTORS else means(best.plan, factors)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(rates > 0, scale * means(rival.plan, factors) / rates, 2.0) - 1.0

    return lead


def _level(lead: Lead, behind: float, ahead: float) -> float:
    """Returns the factor between two at which a rival draws level."""
    for _ in range(ROUNDS):
        middle = (behind * ahead) ** 0.5
        if lead(np.array([middle]))[0] > 0:
            ahead = middle
        else:
            behind = middle
    return ahead
