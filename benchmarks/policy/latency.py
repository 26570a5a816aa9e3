"""How long a decision takes, by trigger: hippo beside mpc and greedy, on made-up clusters of 4, 8 and 64
domains.

    nice python -m benchmarks.policy.latency [--decisions 400] [--seconds 25] [--sizes 4,8,64] [--policies
    hippo,mpc]

`--policies all` times every registered one; `network` is the network of `hippo` alone, both levels, and the
routes and depth of its plan, neither verified nor searched beside. One thread. Wall time and the CPU time of
the process, in milliseconds: on a busy machine only the second says something. A decision follows on the last
one's plan; links move by 10 % between decisions. `cold` is the first decision of a fresh process, after
`reset`; `start` is that decision again in a process that runs already. `search` tells the decisions in which
plans were searched from those in which what was known sufficed. After a `failure` a domain has no GPUs for
four decisions. `inside` is the part of one answer of the network in which its plan is built, layers and
arrangements of all domains together: the lower agents take less. A policy is asked until it has decided often
enough or its time is over; n says how often that was.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ingest.core.errors import InfeasibleError
from policy.control.candidate_search import CandidateSearch
from policy.core import registry
from policy.core.protocol import Context, Policy
from policy.hippo.agent.agent import HiPpo, shipped_checkpoint
from policy.hippo.decoding import sampling
from policy.hippo.decoding.autoregressive import decode
from policy.hippo.env.training_task import random_links
from policy.hippo.networks.hippo_config import CoordinatorConfig
from twin.core.link_history import LinkHistory
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.core.view import Forecast, View
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario, Scenario, assemble


class Inside:
    """Counts the CPU and wall seconds in which plans are built: the lower agents' part is inside of it."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Put a clock around building plans."""
        before = sampling.decode
        sampling.decode = self._timed
        try:
            yield
        finally:
            sampling.decode = before

    def _timed(self, *given: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            return decode(*given)
        finally:
            self.wall_s += time.perf_counter() - wall
            self.cpu_s += time.process_time() - cpu


class Searches:
    """Counts the searches for candidate plans."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Put a counter before searching."""
        search = CandidateSearch.plans

        def counted(*given: Any) -> list[Plan]:
            self.count += 1
            return search(*given)

        CandidateSearch.plans = counted  # type: ignore[method-assign]
        try:
            yield
        finally:
            CandidateSearch.plans = search  # type: ignore[method-assign]


CLUSTERS = {  # domains: model, N layers, global batch, GPU, GPUs of a domain
    4: ("llama2-70b", 82, 192, "a100-80", 16),
    8: ("gpt3-175b", 98, 256, "a100-80", 32),
    64: ("llama3-405b", 128, 512, "h100", 32),
}
HORIZONS_S = (0.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
PERIOD_S, RESTART_S, MOVES_BY = 300.0, 11.35, 0.1
EVENTS = {1: "change", 2: "alarm"}
"""Of four decisions in a row; the others are periodic."""
FAILS_EVERY, DOWN_FOR = 40, 4
"""Decisions from a failure to the next one, and to the repair."""
PAST, STARTS = 96, 12
"""Samples of the past, and starts that are timed."""


@dataclass
class Times:
    """Milliseconds of the decisions after one kind of trigger."""

    wall: list[float]
    cpu: list[float]

    def row(self) -> str:
        """p50, p99 and the largest of both clocks."""
        parts = [f"{np.percentile(ms, 50):9.1f}{np.percentile(ms, 99):9.1f}{max(ms):9.1f}"
                 for ms in (self.cpu, self.wall)]  # fmt: skip
        return f"{len(self.cpu):4d}" + "".join(parts)


def made_up(size: int) -> PreparedScenario:
    """A cluster of equal domains with random links."""
    model, _, batch, gpu, gpus = CLUSTERS[size]
    hardware = {
        "gpu": gpu, "gpus_per_node": 8, "intra_node_bps": 2.4e12, "inter_node_bps": 2e11,
        "intra_node_latency_s": 3e-6, "inter_node_latency_s": 8e-6, "usd_per_gpu_hour": 5.0,
    }  # fmt: skip
    domains = [{"name": f"d{k}", "gpus": gpus} for k in range(size)]
    scenario = Scenario.model_validate(
        {
            "name": f"made-up-{size}",
            "model": model,
            "job": {"global_batch": batch, "micro_batches": [1, 2], "zero": 1},
            "cluster": {"hardware": hardware, "domains": domains, "usd_per_gb": {"default": 0.05}},
            "wan": {"dataset": "made-up", "streams": 1, "cap_bps": 1e11, "default_rtt_s": 0.1},
            "control": {"period_s": PERIOD_S, "horizons_s": list(HORIZONS_S)},
        }
    )
    wan, filters = random_links(generator(0, "latency"), size, 10 * PERIOD_S)
    return assemble(scenario, wan, window="all", seed=0, filters=filters)


def past(setup: PreparedScenario) -> LinkHistory:
    """A past whose links move as they will."""
    rng, links = np.random.default_rng(2), setup.wan.at(0)
    bandwidth = links.bandwidth_bps * np.exp(rng.normal(0, MOVES_BY, (PAST, *links.latency_s.shape)))
    latency = np.broadcast_to(links.latency_s, bandwidth.shape)
    return LinkHistory(PERIOD_S, bandwidth, latency, 0)


def trigger_of(number: int) -> str:
    """What decision `number` follows."""
    if number == 0:
        return "start"
    since = number % FAILS_EVERY - FAILS_EVERY // 2
    return {0: "failure", DOWN_FOR: "repair"}.get(since, EVENTS.get(number % 4, "period"))


def views(setup: PreparedScenario, decisions: int) -> Iterator[View]:
    """Half of them after an event; whoever asks fills in the running plan."""
    rng, links, size = np.random.default_rng(1), setup.wan.at(0), len(setup.cluster.domains)
    shape = (len(HORIZONS_S), size, size)
    for number in range(decisions):
        bandwidth = links.bandwidth_bps * np.exp(rng.normal(0, MOVES_BY, shape))
        forecast = Forecast(np.array(HORIZONS_S), bandwidth, np.full(shape, MOVES_BY), links.latency_s)
        down = 0 <= number % FAILS_EVERY - FAILS_EVERY // 2 < DOWN_FOR
        gpus = [0 if down and k == 0 else d.gpus for k, d in enumerate(setup.cluster.domains)]
        yield View(
            now_ns=int(number * PERIOD_S * 1e9), trigger=trigger_of(number), forecast=forecast, plan=None,
            free_gpus=tuple(gpus), slowdown=np.ones(size),
            since_move_s=number * PERIOD_S, tokens=0.0,
        )  # fmt: skip


class Measured:
    """Times of the decisions of a policy by trigger and whether plans were searched."""

    def __init__(self, setup: PreparedScenario, policy: Policy) -> None:
        self.setup, self.policy, self.times = setup, policy, dict[str, Times]()
        self._estimator = Estimator(setup.cluster, setup.job, restart_s=RESTART_S)
        self._history = past(setup)
        self._inside, self._searches = Inside(), Searches()

    def reset(self) -> None:
        """Begin a run."""
        rng, weights = np.random.default_rng(0), (1.0, 0.0, 0.0)
        context = Context(self._estimator, PERIOD_S, RESTART_S, weights, rng, self._history)
        self.policy.reset(context)

    def decide(self, view: View, plan: Plan | None) -> Plan | None:
        """Time a decision; returns the plan after it."""
        asked = View(**{name: getattr(view, name) for name in View.__slots__} | {"plan": plan})
        self._inside.wall_s = self._inside.cpu_s = 0.0
        self._searches.count = 0
        wall, cpu = time.perf_counter(), time.process_time()
        with self._inside.watching(), self._searches.watching():
            plan = self.policy.decide(asked).plan or plan
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self._add(view.trigger + (" search" if self._searches.count else ""), wall, cpu)
        if self._inside.wall_s and view.trigger == "period":
            self._add("inside", self._inside.wall_s, self._inside.cpu_s)
        return plan

    def _add(self, name: str, wall_s: float, cpu_s: float) -> None:
        times = self.times.setdefault(name, Times([], []))
        times.wall.append(1e3 * wall_s)
        times.cpu.append(1e3 * cpu_s)


def measured(setup: PreparedScenario, policy: Policy, decisions: int, seconds: float) -> dict[str, Times]:
    """Times by kind of trigger; what is compiled or loaded at the first starts is left out."""
    clock, began = Measured(setup, policy), time.perf_counter()
    first = next(views(setup, 1))
    for _ in range(STARTS + 1):
        clock.reset()
        plan = clock.decide(first, None)
    for times in clock.times.values():
        del times.wall[0], times.cpu[0]
    for view in list(views(setup, decisions))[1:]:
        plan = clock.decide(view, plan)
        if view.now_ns >= 4 * PERIOD_S * 1e9 and time.perf_counter() - began > seconds:
            break
    return clock.times


def cold(size: int, name: str) -> None:
    """Print the time of the first decision of this process."""
    setup = made_up(size)
    clock = Measured(setup, created(name))
    clock.reset()
    clock.decide(next(views(setup, 1)), None)
    (times,) = clock.times.values()
    print(f"{size:>3}{CLUSTERS[size][1]:>5} {name:<14}{'cold':<15}{times.row()}", flush=True)


def created(name: str) -> Policy:
    """A registered policy, or the network of `hippo` alone."""
    if name == "network":
        return HiPpo(coordinator=CoordinatorConfig(verify=False))
    return registry.create(name, checkpoint=shipped_checkpoint())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=25.0, help="for a policy at a size")
    parser.add_argument("--sizes", default="4,8,64")
    parser.add_argument("--policies", default="hippo,network,mpc,greedy")
    parser.add_argument("--cold", action="store_true", help="only the first decision of this process")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.cold:
        cold(int(asked.sizes), asked.policies)
        return
    print(f"{'K':>3}{'N':>5} {'policy':<14}{'trigger':<15}   n" + "".join(
        f"{clock + ' ' + name:>9}" for clock in ("cpu", "wall") for name in ("p50", "p99", "max")
    ))  # fmt: skip
    for size in map(int, asked.sizes.split(",")):
        setup = made_up(size)
        for name in registry.names() if asked.policies == "all" else asked.policies.split(","):
            policy = created(name)
            try:
                found = measured(setup, policy, asked.decisions, asked.seconds)
            except InfeasibleError as error:
                print(f"{size:>3}{CLUSTERS[size][1]:>5} {name:<14}{str(error)[:90]}", flush=True)
                continue
            fresh = [sys.executable, "-m", "benchmarks.policy.latency", "--cold"]
            subprocess.run([*fresh, "--sizes", str(size), "--policies", name], check=True)
            for trigger, times in sorted(found.items()):
                print(f"{size:>3}{CLUSTERS[size][1]:>5} {name:<14}{trigger:<15}{times.row()}", flush=True)


if __name__ == "__main__":
    main()
