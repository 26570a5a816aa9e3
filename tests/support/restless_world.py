"""A small world whose links never rest, answers that wander, and what two runs have in common."""

import hashlib
import json
from dataclasses import replace

import numpy as np

from tests.support.plays import Answer, plan_over
from tests.support.worlds import toy_setup
from twin.core.facts import Fact, Trigger
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.scenario.prepare import PreparedScenario
from twin.traces.wan_trace import LinkSeries, trace


def wide_plan(setup: PreparedScenario) -> Plan:
    return plan_over(setup, (0, 1, 2), (12, 12, 10))


def narrow_plan(setup: PreparedScenario) -> Plan:
    return plan_over(setup, (0, 1), (17, 17))


def restless(seconds: float = 1_200.0, seed: int = 3) -> PreparedScenario:
    """Links that change at random times, each a few times a minute, dying now and then."""
    rng = np.random.default_rng(seed)
    steps = {}
    for i in range(3):
        for j in range(3):
            if i != j:
                at = np.cumsum(rng.exponential(25.0, size=int(seconds / 25)))
                rates = 2e9 * np.exp(0.6 * rng.standard_normal(len(at))) * (rng.random(len(at)) > 0.03)
                steps[i, j] = [(float(a), float(r)) for a, r in zip(at, rates, strict=True) if a < seconds]
    return toy_setup(seconds=seconds, steps=steps, seed=seed)


def wandering(setup: PreparedScenario) -> Answer:
    """Goes to another plan at every fifth decision, or when something fails."""
    plans = [wide_plan(setup), narrow_plan(setup), plan_over(setup, (2, 0), (20, 14))]

    def answer(trigger: Trigger) -> Plan | None:
        number = trigger.payload["number"]
        if number % 5 == 0 or trigger.payload["trigger"] == "failure":
            return plans[number % 3]
        return None

    return answer


def shape(facts: list[Fact]) -> str:
    """Digest of a fact stream."""
    text = json.dumps([(f.sim_ns, f.type, f.payload) for f in facts], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def with_other_future(setup: PreparedScenario, after_ns: int) -> PreparedScenario:
    """The same world up to and including `after_ns`; later every link takes its values in another order."""
    rng = generator(5, "shuffle")
    series = {}
    for pair, link in setup.wan.series.items():
        later = link.times_ns > after_ns
        order = np.concatenate([np.flatnonzero(~later), rng.permutation(np.flatnonzero(later))])
        series[pair] = LinkSeries(link.times_ns, link.bandwidth_bps[order], link.latency_s[order])
    return replace(setup, wan=trace(setup.wan.names, series, setup.wan.end_ns))


def until(facts: list[Fact], ns: int) -> list[tuple[int, str, dict[str, object]]]:
    return [(f.sim_ns, f.type, f.payload) for f in facts if f.sim_ns <= ns]
