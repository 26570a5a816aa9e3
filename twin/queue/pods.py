"""Lists of nodes and pods as a cluster and its demands."""

from collections.abc import Sequence

import numpy as np

from ingest.readers.clusters.openb_lists import NodeList, PodList
from twin.placement.cluster import Cluster
from twin.placement.demands import Demands
from twin.placement.recipe import Int


def cluster_of(nodes: NodeList, order: Int | None = None) -> Cluster:
    """Returns the cluster of a list of nodes, in the order of the list or in another one."""
    chosen = np.arange(len(nodes.gpus)) if order is None else order
    models = [nodes.models[one] for one in chosen]
    return Cluster.of_nodes(nodes.gpus[chosen], models, nodes.cpu_milli[chosen], nodes.memory_mib[chosen])


def demands_of(pods: PodList, cluster: Cluster, order: Sequence[int] | Int | None = None) -> Demands:
    """Returns what pods ask for, in the order of the list or of indices."""
    chosen = np.arange(len(pods)) if order is None else np.asarray(order, np.int64)
    return Demands.of_jobs(
        cluster, pods.gpus[chosen], pods.milli[chosen], pods.cpu_milli[chosen], pods.memory_mib[chosen],
        [pods.models[one] for one in chosen],
    )  # fmt: skip
