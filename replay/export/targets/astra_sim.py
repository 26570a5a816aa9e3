"""ASTRA-sim: workload, system, network and memory of a plan for its analytical network.

The network has a dimension of the stages inside a domain and one of the domains; links of a dimension are
alike, both ways. A plan over unlike links goes there with links that take the mean time for a bit. Sources:
ASTRA-sim 2.0 (Won et al., ISPASS 2023), its `examples/network/analytical` and `examples/system`.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from replay.export import differences, yaml_text
from replay.export.contract import Difference
from replay.export.planned_job import PlannedJob
from replay.export.rank_map import nodes
from replay.export.targets.chakra import ChakraTarget, known_links
from twin.core.domain import LinkState

RUN = """#!/usr/bin/env bash
# Simulates one iteration; ASTRA_SIM is the folder in which ASTRA-sim was built.
set -euo pipefail
cd "$(dirname "$0")"
exec "${ASTRA_SIM:?}/build/astra_analytical/build/bin/AstraSim_Analytical_Congestion_Aware" \\
  --workload-configuration=iteration --system-configuration=system.json \\
  --network-configuration=network.yml --remote-memory-configuration=memory.json "$@"
"""
SYSTEM: dict[str, int | str | list[str]] = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 1,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 1600,
    "boost-mode": 0,
}
EQUAL = 1e-6
"""Relative difference below which links are the same."""


class AstraSimTarget:
    """Inputs of ASTRA-sim's analytical network."""

    name = "astra-sim"
    about = "ASTRA-sim: Chakra workload of one iteration, system, network, memory"

    def difference(self, job: PlannedJob) -> Difference | None:
        """Returns the first part that its network cannot have."""
        return differences.first(
            job, (differences.no_replicas, direct, known_links, equal_depths, equal_links)
        )

    def files(self, job: PlannedJob) -> Mapping[str, str | bytes]:
        """Returns the inputs and the script that starts the simulator."""
        dimensions = len(network(job)["topology"])
        system = {k: v * dimensions if isinstance(v, list) else v for k, v in SYSTEM.items()}
        return {
            **ChakraTarget().files(job),
            "system.json": json.dumps(system, indent=2) + "\n",
            "network.yml": yaml_text.dump(network(job), default_flow_style=None),
            "memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}, indent=2) + "\n",
            "run.sh": RUN,
        }

    def start(self, job: PlannedJob) -> str:
        """Returns how to simulate, and how far to trust it."""
        return (
            "    ASTRA_SIM=/path/to/astra-sim bash run.sh\n\n"
            "An NPU is a stage. Cycles are nanoseconds; the trace counts microseconds, so an iteration of "
            f"{2 * job.plan.micro_batches + 1} operations a stage may differ by as many. Sends are "
            "store-and-forward per link, and a receiver needs no buffer."
        )


def direct(job: PlannedJob) -> Difference | None:
    """Messages of its network take the way of its topology."""
    if not job.plan.routes:
        return None
    return Difference(
        "relays", "messages take the way of its topology", "direct links", replace(job.plan, routes=())
    )


def equal_depths(job: PlannedJob) -> Difference | None:
    """A dimension has as many members everywhere: domains have as many stages each."""
    depths = [share.pp for share in job.plan.shares]
    if len(set(depths)) == 1:
        return None
    words = ", ".join(f"{d.name} {n}" for d, n in zip(job.used, depths, strict=True))
    return Difference(
        f"domains with different numbers of stages ({words})", "a dimension of its network is regular",
        "export it to chakra, or plan with as many stages in each domain", None,
    )  # fmt: skip


def equal_links(job: PlannedJob) -> Difference | None:
    """Links of a dimension are alike: the nearest takes the mean time for a bit and the mean latency."""
    assert job.links is not None, "links are asked for before"
    pairs = _pairs(job)
    if not pairs:
        return None
    rows, columns = zip(*pairs, strict=True)
    bandwidth, latency = job.links.bandwidth_bps[rows, columns], job.links.latency_s[rows, columns]
    if np.ptp(bandwidth) <= EQUAL * bandwidth.max() and np.ptp(latency) <= EQUAL * max(latency.max(), 1e-9):
        return None
    mean_bps, mean_s = 1 / np.mean(1 / bandwidth), float(np.mean(latency))
    same = np.eye(len(job.domains), dtype=np.bool_)
    links = LinkState(np.where(same, np.inf, mean_bps), np.where(same, 0.0, mean_s))
    spread = f"{bandwidth.min() / 1e9:.2f} to {bandwidth.max() / 1e9:.2f} Gb/s"
    return Difference(
        f"links that differ ({spread}, {latency.min() * 1e3:.0f} to {latency.max() * 1e3:.0f} ms)",
        "all links of a dimension are alike",
        f"{mean_bps / 1e9:.2f} Gb/s and {mean_s * 1e3:.0f} ms on each", job.plan, links,
    )  # fmt: skip


def _pairs(job: PlannedJob) -> list[tuple[int, int]]:
    """Directed links between domains that follow each other, around where the pipeline goes round."""
    order = job.plan.order
    across = list(pairwise(order))
    if job.plan.chunks > 1 and len(order) > 2:
        across.append((order[-1], order[0]))
    return [pair for a, b in across for pair in ((a, b), (b, a))]


def network(job: PlannedJob) -> dict[str, list[object]]:
    """Returns dimensions from the inside out: stages of a domain, domains; GB/s and ns."""
    depth, domains = job.plan.shares[0].pp, len(job.plan.shares)
    found: dict[str, list[object]] = {"topology": [], "npus_count": [], "bandwidth": [], "latency": []}
    if depth > 1 or domains == 1:
        spans = any(node.node for node in nodes(job))
        first = job.used[0]
        bps = first.inter_node_bps if spans else first.intra_node_bps
        latency_s = first.inter_node_latency_s if spans else first.intra_node_latency_s
        _dimension(found, depth, bps, latency_s)
    if domains > 1:
        assert job.links is not None, "links are asked for before"
        a, b = job.plan.order[:2]
        _dimension(found, domains, float(job.links.bandwidth_bps[a, b]), float(job.links.latency_s[a, b]))
    return found


def _dimension(found: dict[str, list[object]], members: int, bps: float, latency_s: float) -> None:
    found["topology"].append("Ring" if members > 2 else "FullyConnected")
    found["npus_count"].append(members)
    found["bandwidth"].append(round(bps / 8e9, 6))
    found["latency"].append(round(latency_s * 1e9, 3))
