"""Power of jobs on nodes: each GPU draws what its own model does, idle or busy, or asleep with its node."""

import numpy as np

from ingest.core.errors import UsageError
from twin.core.gpu_models import preset
from twin.costs.energy import busy_w
from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.runs import NodeRuns
from twin.placement.cluster import MILLI, NodeCluster
from twin.power.conversion import NOTHING_LOST, ConversionChain
from twin.power.node_sleep import NodeSleep
from twin.power.site_power import PowerModel, SitePower, of_runs, power_of
from twin.power.step_series import Int, StepSeries
from twin.queue.simulation import QueueSchedule


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


def added_mw(done: NodeSchedule, runs: NodeRuns) -> Int:
    """Returns what each run (r,) adds while it lasts, milliwatts: the sum over its GPUs.

    Raises:
        UsageError: jobs share a GPU, whose power cannot be told apart.
    """
    milli = done.demands.wants.milli
    if ((milli > 0) & (milli < MILLI)).any():
        raise UsageError("power on nodes is that of whole GPUs; the jobs share some: leave its options out")
    busy = np.array([one.job_mw for one in gpu_powers(done.cluster)], np.int64)
    node = runs.slots // int(done.cluster.gpus.max())
    run = np.repeat(np.arange(len(runs)), np.diff(runs.first))
    found = np.zeros(len(runs), np.int64)
    np.add.at(found, run, busy[done.cluster.model[node]])
    return found


def node_site_power(
    done: NodeSchedule, runs: NodeRuns, chain: ConversionChain = NOTHING_LOST, sleep: NodeSleep | None = None
) -> tuple[QueueSchedule, SitePower]:
    """Returns the runs of a schedule of at least one job on nodes as jobs of their own, and the power of the
    site. A node draws nothing from a fault to its repair; one that drains draws as ever. Nodes sleep as they
    did in the schedule.

    Raises:
        UsageError: jobs share a GPU, or the power of a model is not known.
    """
    idle = np.array([one.idle_mw for one in gpu_powers(done.cluster)], np.int64)
    idle_mw = idle[done.cluster.model] * done.cluster.gpus
    if sleep is not None:
        if len(done.outages):
            raise UsageError("nodes that sleep go without outages: leave one of the two out")
        more = sleep.beyond_idle(done, idle[done.cluster.model])
        run_mw = added_mw(done, runs)
        return done.in_gpus, power_of(done.in_gpus, run_mw, int(idle_mw.sum()), chain, more)
    held = runs.as_jobs(done.in_gpus)
    begin_ns, end_ns = int(done.jobs.submit_ns.min()), int(done.end_ns.max())
    run_mw = added_mw(done, runs)
    added = of_runs(held.start_ns, held.end_ns, run_mw, begin_ns, end_ns)
    node, down_ns, up_ns = done.outages.faults().stretches()
    since_ns, until_ns = (np.clip(one, begin_ns, end_ns) for one in (down_ns, up_ns))
    off = of_runs(since_ns, until_ns, idle_mw[node], begin_ns, end_ns)
    at_ns = np.union1d(added.at_ns, off.at_ns)
    jobs = StepSeries(at_ns, added.at(at_ns), end_ns)
    computers = jobs.mapped(jobs.value + int(idle_mw.sum()) - off.at(at_ns))
    return held, SitePower(jobs, computers, jobs.mapped(chain.metered_mw(computers.value)), run_mw)
