"""Links of a data set played into `twin serve`, and a job that runs over them: what a service has to follow.

python examples/play_links.py http://127.0.0.1:8712 --scenario tri-7b --dataset synthetic-tri --speed 60

The links change `--speed` times as fast as they were recorded; the job steps in real time. The job is
SIMULATED by the cost models: each step lasts what they give for the plan and the links of that moment, times
noise. It reports steps, sends and computing times through `service.hook`, and carries orders out.
"""

import argparse
import json
import random
import time
import urllib.request
from pathlib import Path

from ingest.core.units import NS_PER_S
from replay.store.decision_codec import plan_from_json
from service.hook import TrainingHook
from twin.core.domain import LinkState
from twin.core.plan import Plan, to_json
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario

NOISE = 0.02
"""Deviation of the log of a step time."""
SHORTEST_S = 1.0
"""Seconds between two samples of a link, at least."""


class PlayedLinks:
    """The recorded links at a moment of the play; they begin again at their end."""

    def __init__(self, setup: PreparedScenario, speed: float) -> None:
        self.setup, self.speed, self._began = setup, speed, time.monotonic()
        self.period_s = max(SHORTEST_S, setup.scenario.telemetry.period_s / speed)

    @property
    def trace_ns(self) -> int:
        """Time of the trace now."""
        wan = self.setup.wan
        played = int((time.monotonic() - self._began) * self.speed * NS_PER_S)
        return wan.start_ns + played % (wan.end_ns - wan.start_ns)

    def now(self) -> LinkState:
        """Bandwidths and latencies now."""
        return self.setup.wan.at(self.trace_ns)


class SimulatedJob:
    """Steps of the scenario's job under the plan that it was given."""

    def __init__(self, setup: PreparedScenario, plan: Plan, hook: TrainingHook) -> None:
        self._estimator, self._names = setup.estimator(), [one.name for one in setup.cluster.domains]
        self._restart_s, self._hook = setup.scenario.moving.restart_s, hook
        self._noise = random.Random(setup.seed)
        self.plan = plan
        hook.running(to_json(plan))

    def step(self, links: LinkState) -> float:
        """Reports a step over `links` and returns its seconds."""
        estimate = self._estimator.iteration(self.plan, links)
        seconds = estimate.iter_s * self._noise.lognormvariate(0.0, NOISE)
        for i, j in zip(*estimate.wan_bytes.nonzero(), strict=True):
            size = int(estimate.wan_bytes[i, j])
            self._hook.sent(self._names[i], self._names[j], size, 8 * size / links.bandwidth_bps[i, j])
        for share, busy_s in zip(self.plan.shares, estimate.compute_s, strict=True):
            self._hook.computed(self._names[share.domain], busy_s)
        self._hook.add_step(seconds)
        return seconds

    def follow(self) -> None:
        """Carries out the order that waits, if one does."""
        change = self._hook.plan_change()
        if change is None:
            return
        plan = plan_from_json(change.plan)
        if plan is None or self._estimator.problems(plan):
            self._hook.refused(change, "the plan does not run on this cluster")
            return
        time.sleep(self._restart_s)
        self.plan = plan
        self._hook.applied(change, self._restart_s)


def report(links: PlayedLinks, hook: TrainingHook) -> None:
    """Reports a sample of every link."""
    state, names = links.now(), links.setup.wan.names
    for i, src in enumerate(names):
        for j, dst in enumerate(names):
            if i != j:
                hook.link(src, dst, float(state.bandwidth_bps[i, j]), float(state.latency_s[i, j]))


def play(links: PlayedLinks, hook: TrainingHook, job: SimulatedJob, seconds: float) -> None:
    """Plays for `seconds`: samples of the links in their period, a step of the job whenever one has ended."""
    end = time.monotonic() + seconds
    sample_at = step_at = time.monotonic()
    while (now := time.monotonic()) < end:
        if now >= sample_at:
            report(links, hook)
            sample_at = now + links.period_s
        if now >= step_at:
            job.follow()
            step_at = time.monotonic() + job.step(links.now())
        time.sleep(0.05)


def first_plan(address: str, token: str) -> Plan:
    """Returns the plan that the service has in force."""
    head = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/v1/decision", headers=head)) as answer:
        plan = plan_from_json(json.load(answer)["plan"])
    assert plan is not None, "a service has a plan in force from its first decision on"
    return plan


def main() -> None:
    """Plays until the time is over or Ctrl-C."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address")
    parser.add_argument("--store", type=Path, default=Path(".twin"))
    parser.add_argument("--scenario", default="tri-7b")
    parser.add_argument("--dataset", default="synthetic-tri")
    parser.add_argument("--speed", type=float, default=60.0, help="times as fast as recorded [60]")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="how long [until Ctrl-C]")
    parser.add_argument("--token", default="", help="bearer token with the roles push and read")
    given = parser.parse_args()
    setup = scenarios.prepare(scenarios.load(given.scenario), given.store, dataset=given.dataset)
    address = given.address.rstrip("/")
    with TrainingHook(address, token=given.token) as hook:
        job = SimulatedJob(setup, first_plan(address, given.token), hook)
        play(PlayedLinks(setup, given.speed), hook, job, given.seconds)


if __name__ == "__main__":
    main()
