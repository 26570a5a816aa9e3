"""GPU failures with repair and domains that slow down for a while: declared, measured, or drawn at random."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy import Environment, Event

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S, to_ns
from twin.core.clock import TRUTH, At
from twin.core.domain import Cluster
from twin.core.seeds import generator
from twin.settings.disturbances import NodeFailures
from twin.settings.scenario_file import Scenario

MOST_LOSSES = 100_000
"""Random losses of nodes in one domain."""


@dataclass(order=True, frozen=True, slots=True)
class Fault:
    """Fault or repair of machines of a domain; ordered by time, then kind, then domain."""

    at_ns: int
    kind: str  # gpu_failed, gpu_repaired, slow_begins, slow_ends
    domain: int
    gpus: int = 0
    factor: float = 1.0


def timeline(scenario: Scenario, end_ns: int, seed: int, measured: Sequence[Fault] = ()) -> tuple[Fault, ...]:
    """Faults before `end_ns` in order: declared, `measured`, and random losses of nodes."""
    faults = _declared(scenario) + list(measured)
    if scenario.node_failures is not None:
        for k in range(len(scenario.domains)):
            faults += _random_losses(scenario, scenario.node_failures, k, end_ns / NS_PER_S, seed)
    return tuple(sorted(fault for fault in faults if fault.at_ns < end_ns))


def _declared(scenario: Scenario) -> list[Fault]:
    index = scenario.domains.index
    faults = []
    for lost in scenario.gpu_faults:
        start, end = to_ns(lost.at_s), to_ns(lost.at_s + lost.for_s)
        faults.append(Fault(start, "gpu_failed", index(lost.domain), lost.gpus))
        faults.append(Fault(end, "gpu_repaired", index(lost.domain), lost.gpus))
    for slow in scenario.slowdowns:
        start, end = to_ns(slow.at_s), to_ns(slow.at_s + slow.for_s)
        faults.append(Fault(start, "slow_begins", index(slow.domain), factor=slow.factor))
        faults.append(Fault(end, "slow_ends", index(slow.domain), factor=slow.factor))
    return faults


def _random_losses(
    scenario: Scenario, failures: NodeFailures, domain: int, end_s: float, seed: int
) -> list[Fault]:
    """Losses of nodes in one domain: a Poisson process of rate GPUs / MTBF, exponential repair times."""
    settings = scenario.cluster.domains[domain]
    node = settings.gpus_per_node or scenario.cluster.hardware.gpus_per_node
    mean_s = failures.mtbf_gpu_h * 3600 / settings.gpus
    if end_s / mean_s > MOST_LOSSES:
        raise UsageError(
            f"node_failures: domain {settings.name} would lose {end_s / mean_s:,.0f} nodes, more than "
            f"{MOST_LOSSES:,}; raise mtbf_gpu_h"
        )
    rng = generator(seed, f"faults:{settings.name}")
    faults = []
    at_s = rng.exponential(mean_s)
    while at_s < end_s:
        start, end = to_ns(at_s), to_ns(at_s + rng.exponential(failures.repair_s))
        faults += [Fault(start, "gpu_failed", domain, node), Fault(end, "gpu_repaired", domain, node)]
        at_s += rng.exponential(mean_s)
    return faults


@dataclass
class Machines:
    """GPUs alive and compute slowdown of every domain now.

    GPUs of a domain are interchangeable: the survivors of a fault are renumbered, so a plan can run while
    each of its domains has as many GPUs alive as it uses. `slowdown` (K,) is updated in place; of several
    slowdowns at once the greatest counts. `changed` is called after each fault.
    """

    env: Environment
    cluster: Cluster
    faults: tuple[Fault, ...]
    changed: Callable[[Fault], None]
    slowdown: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.slowdown = np.ones(self.cluster.size)
        self._missing = [0] * self.cluster.size
        self._slow: list[list[float]] = [[] for _ in range(self.cluster.size)]
        self.env.process(self._run())

    @property
    def free_gpus(self) -> tuple[int, ...]:
        """(K,) GPUs alive, per domain."""
        domains = self.cluster.domains
        return tuple(max(0, d.gpus - lost) for d, lost in zip(domains, self._missing, strict=True))

    def _run(self) -> Generator[Event, Any, None]:
        for fault in self.faults:
            yield At(self.env, fault.at_ns - self.env.now, TRUTH)
            self._apply(fault)
            self.changed(fault)

    def _apply(self, fault: Fault) -> None:
        k = fault.domain
        match fault.kind:
            case "gpu_failed":
                self._missing[k] += fault.gpus
            case "gpu_repaired":
                self._missing[k] -= fault.gpus
            case "slow_begins":
                self._slow[k].append(fault.factor)
            case "slow_ends":
                self._slow[k].remove(fault.factor)
        self.slowdown[k] = max(self._slow[k], default=1.0)
