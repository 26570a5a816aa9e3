"""How full FGD's cluster gets under six placements, published percent by percent, beside ours.

Weng et al., USENIX ATC 2023; hkust-adsl/kubernetes-scheduler-simulator @ 8f3d6417353c. The pods of a list,
sorted by name, are shuffled, and drawn ones follow until 130 % of the GPUs are asked for; nodes get a random
order, which decides between equal scores. Their random numbers are those of Go from a seed, so pods and
nodes come out in the published order. Between both, ten numbers are drawn by the simulator's watches of its
own cluster (found by trying 0 to 24: with ten all figures come out, with another number hardly any). Random
places by numbers that several threads draw: of it only the means can be compared."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError
from ingest.readers.clusters.openb_lists import NodeList, PodList, node_list, pod_list
from policy.placement.registry import placement
from replay.logqueue.go_random import GoRandom
from twin.nodes.selection import cluster_of, demands_of
from twin.placement.cluster import MILLI, NodeCluster
from twin.placement.demands import Demands
from twin.placement.filling import Filling, fill

PLACED = {
    "01-Random": "random", "02-DotProd": "dot-product", "03-GpuClustering": "clustering",
    "04-GpuPacking": "packing", "05-BestFit": "best-fit", "06-FGD": "fgd",
}  # fmt: skip
"""Our names of the published policies."""
LISTS = {
    "openb_pod_list_default": "traces/gpu/jobs-alibaba-openb-2023/openb_pod_list_default.csv",
    "openb_pod_list_multigpu20": "jobs/fgd-openb/openb_pod_list_multigpu20.csv",
}
NODES = "traces/gpu/jobs-alibaba-openb-2023/openb_node_list_gpu_node.csv"
DEMAND_PCT, WATCHES = 130, 10
FIGURES = {
    "gpu_allocation_pct": "fgd_allocation_by_arrival.csv",
    "gpu_fragmentation_pct": "fgd_fragmentation_by_arrival.csv",
}
SEEDS = range(42, 52)
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FilledRun:
    """One published run and ours: allocation and fragmentation, percent of all GPUs, at each percent of
    arrived demand (131,)."""

    workload: str
    policy: str
    seed: int
    published: dict[str, Float]
    ours: dict[str, Float]

    def equal(self, figure: str) -> int:
        """Returns how many of the published figures ours reads the same as."""
        return int((self.published[figure] == self.ours[figure]).sum())


def filled_runs(
    shared: Path, policies: Sequence[str] = tuple(PLACED), seeds: Sequence[int] = SEEDS
) -> Iterator[FilledRun]:
    """Yields published runs beside ours.

    Raises:
        InputError: a file is not there.
    """
    published = {figure: _table(shared / "validation/jobs" / name) for figure, name in FIGURES.items()}
    nodes = node_list(shared / NODES)
    for workload, path in LISTS.items():
        pods = pod_list(shared / path)
        for seed in seeds:
            arrival = arrivals(pods, nodes, seed)
            for policy in policies:
                yield FilledRun(
                    workload, policy, seed,
                    {figure: table[workload, policy, seed] for figure, table in published.items()},
                    by_percent(arrival, arrival.play(policy)),
                )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Arrival:
    """The cluster with its nodes in the order of a seed, and the pods in the order in which they arrive."""

    cluster: NodeCluster
    demands: Demands
    known: Demands
    """Of each pod of the list once: the workload that FGD is told of."""
    seed: int

    def play(self, policy: str) -> Filling:
        """Returns how the cluster fills up under a published policy."""
        return fill(self.cluster, self.demands, self.known.counted(), placement(PLACED[policy]), self.seed)


def arrivals(pods: PodList, nodes: NodeList, seed: int) -> Arrival:
    """Returns the pods and nodes in the order that the published simulator gives them."""
    random = GoRandom(seed)
    random.int63()  # a line of its log prints one
    by_name = sorted(range(len(pods)), key=lambda pod: pods.names[pod])
    order = list(by_name)
    random.shuffle(order)
    asked, one_each = pods.gpus * pods.milli, np.where(pods.gpus > 0, pods.milli, 0)
    total, most = int(asked.sum()), DEMAND_PCT * nodes.gpus.sum() * MILLI // 100
    while total + one_each[drawn := by_name[random.below(len(pods))]] <= most:
        order.append(drawn)
        total += int(asked[drawn])
    for _ in range(WATCHES):
        random.int63()
    cluster = cluster_of(nodes, np.argsort(random.permutation(len(nodes.gpus))))
    return Arrival(cluster, demands_of(pods, cluster, order), demands_of(pods, cluster), seed)


def by_percent(arrival: Arrival, filling: Filling) -> dict[str, Float]:
    """Returns the figures at each percent of arrived demand: means over the arrivals that round to it, or to
    its neighbours if none does, of figures rounded as the published scripts do."""
    wants, class_of = arrival.demands.wants, arrival.demands.class_of
    per_pct = arrival.cluster.total_gpus * MILLI / 100
    arrived = np.round(np.cumsum((wants.gpus * wants.milli)[class_of]) / per_pct)
    allocated = np.array([round(one, 2) for one in (filling.allocated_milli / per_pct).tolist()])
    lost = np.array([round(one, 2) for one in filling.fragments_milli.tolist()])
    found: dict[str, list[float]] = {figure: [] for figure in FIGURES}
    for pct in range(DEMAND_PCT + 1):
        here = arrived == pct
        if not here.any():
            here = np.abs(arrived - pct) <= 1
        found["gpu_allocation_pct"].append(float(np.round(allocated[here].mean(), 2)))
        found["gpu_fragmentation_pct"].append(float(np.round(lost[here].mean() / per_pct, 2)))
    return {figure: np.array(column) for figure, column in found.items()}


def _table(path: Path) -> dict[tuple[str, str, int], Float]:
    """The rows of a published table by workload, policy and seed."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; name the folder that holds jobs, traces and validation")
    with path.open(encoding="utf-8", newline="") as lines:
        rows: list[dict[str, Any]] = list(csv.DictReader(lines))
    return {
        (row["workload"], row["sc_policy"], int(row["seed"])): np.array(
            [float(row[str(pct)]) for pct in range(DEMAND_PCT + 1)]
        )
        for row in rows
    }
