"""Power of jobs on nodes: each GPU draws what its own model does, idle or busy, or asleep with its node."""

import numpy as np

from ingest.core.errors import UsageError
from twin.core.gpu_models import preset
from twin.costs.energy import busy_w
from twin.nodes.on_nodes import NodeSchedule
from twin.placement.cluster import MILLI, NodeCluster
from twin.power.conversion import NOTHING_LOST, ConversionChain
from twin.power.node_sleep import NodeSleep
from twin.power.site_power import PowerModel, SitePower, power_of
from twin.power.step_series import Int


def gpu_powers(cluster: NodeCluster) -> list[PowerModel]:
    """Returns the idle power of a GPU of each model of a cluster, and what a job adds to it.

    Raises:
        UsageError: the power of a model is not known.
    """
    gpus = [preset(name) for name in cluster.models]
    return [PowerModel.of_watts(one.name, one.idle_w, busy_w(one)) for one in gpus]


def mean_power(cluster: NodeCluster, chain: ConversionChain = NOTHING_LOST) -> PowerModel:
    """Returns the power of a GPU in the mean over a cluster, with what conversion takes.

    Raises:
        UsageError: the power of a model is not known.
    """
    powers = gpu_powers(cluster)
    counts = cluster.gpus_of(range(len(powers)))
    idle_mw = round(np.average([one.idle_mw for one in powers], weights=counts))
    job_mw = round(np.average([one.job_mw for one in powers], weights=counts))
    return PowerModel(f"{', '.join(cluster.models)}, mean of a GPU", idle_mw, job_mw, chain)


def added_mw(done: NodeSchedule) -> Int:
    """Returns what each job (n,) adds while it runs, milliwatts: the sum over its GPUs.

    Raises:
        UsageError: jobs share a GPU, whose power cannot be told apart.
    """
    milli = done.demands.wants.milli
    if ((milli > 0) & (milli < MILLI)).any():
        raise UsageError("power on nodes is that of whole GPUs; the jobs share some: leave its options out")
    busy = np.array([one.job_mw for one in gpu_powers(done.cluster)], np.int64)
    node = done.slots // int(done.cluster.gpus.max())
    job = np.repeat(np.arange(len(done.jobs)), np.diff(done.first))
    found = np.zeros(len(done.jobs), np.int64)
    np.add.at(found, job, busy[done.cluster.model[node]])
    return found


def node_site_power(
    done: NodeSchedule, chain: ConversionChain = NOTHING_LOST, sleep: NodeSleep | None = None
) -> SitePower:
    """Returns the power of a schedule of at least one job on nodes, which sleep as they did in it.

    Raises:
        UsageError: jobs share a GPU, or the power of a model is not known.
    """
    idle = np.array([one.idle_mw for one in gpu_powers(done.cluster)], np.int64)
    idle_mw = int((idle[done.cluster.model] * done.cluster.gpus).sum())
    if sleep is None:
        return power_of(done.in_gpus, added_mw(done), idle_mw, chain)
    more = sleep.beyond_idle(done, idle[done.cluster.model])
    return power_of(done.in_gpus, added_mw(done), idle_mw, chain, more)
