"""Links of a data set played into `twin serve`, and a job that runs over them: what a service has to follow.

python examples/play_links.py http://127.0.0.1:8712 --scenario tri-7b --dataset synthetic-tri --speed 60

The links change `--speed` times as fast as they were recorded; the job steps in real time. The job is
SIMULATED by the cost models: each step lasts what they give for the plan and the links of that moment, times
noise. It reports steps, sends and computing times through `service.hook`, and carries orders out.
"""

import argparse
import json
import math
import random
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from ingest.core.units import NS_PER_S
from replay.store.decision_codec import plan_from_json
from service import local_token
from service.hook import TrainingHook
from twin.core.domain import LinkState
from twin.core.plan import Plan, to_json
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario

NOISE = 0.02
"""Deviation of the log of a step time."""
DEAD_S = 1.0
"""Seconds that the job waits for a dead link before it tries a step again."""
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

    def step(self, links: LinkState) -> None:
        """Makes a step over `links`, which takes its time, and reports it; over a dead link none is made."""
        estimate = self._estimator.iteration(self.plan, links)
        if math.isinf(estimate.iter_s):
            time.sleep(DEAD_S)
            return
        seconds = estimate.iter_s * self._noise.lognormvariate(0.0, NOISE)
        time.sleep(seconds)
        for i, j in zip(*estimate.wan_bytes.nonzero(), strict=True):
            size = int(estimate.wan_bytes[i, j])
            self._hook.sent(self._names[i], self._names[j], size, 8 * size / links.bandwidth_bps[i, j])
        for share, busy_s in zip(self.plan.shares, estimate.compute_s, strict=True):
            self._hook.computed(self._names[share.domain], busy_s)
        self._hook.add_step(seconds)

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


def report_often(links: PlayedLinks, hook: TrainingHook, stop: threading.Event) -> None:
    """Reports samples of the links in their period until it is stopped."""
    while not stop.wait(links.period_s):
        report(links, hook)


def play(links: PlayedLinks, hook: TrainingHook, job: SimulatedJob, seconds: float) -> None:
    """Plays for `seconds`: the job steps here, a thread reports the links."""
    stop, end = threading.Event(), time.monotonic() + seconds
    reporter = threading.Thread(target=report_often, args=(links, hook, stop), daemon=True)
    reporter.start()
    try:
        while time.monotonic() < end:
            job.follow()
            job.step(links.now())
    finally:
        stop.set()
        reporter.join()


def first_plan(address: str, token: str) -> Plan:
    """Returns the plan that the service has in force."""
    head = {"Authorization": f"Bearer {token}"} if token else {}
    asked = urllib.request.Request(f"{local_token.split(address)[0]}/v1/decision", headers=head)
    with urllib.request.urlopen(asked) as answer:
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
    parser.add_argument(
        "--token", default="", help="bearer token with the roles push and read [that of this machine]"
    )
    given = parser.parse_args()
    setup = scenarios.prepare(scenarios.load(given.scenario), given.store, dataset=given.dataset)
    address = given.address.rstrip("/")
    with TrainingHook(address, token=given.token) as hook:
        job = SimulatedJob(setup, first_plan(address, given.token), hook)
        with suppress(KeyboardInterrupt):
            play(PlayedLinks(setup, given.speed), hook, job, given.seconds)


if __name__ == "__main__":
    main()
