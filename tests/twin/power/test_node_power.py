"""Power of jobs on nodes: by the models of the GPUs that they hold, summed by hand."""

import numpy as np
import pytest

from ingest.core.errors import UsageError
from policy.placement.registry import placement
from policy.queue.registry import recipe
from twin.core.gpu_models import preset
from twin.costs.energy import busy_w
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.nodes.outages import NO_OUTAGES, NodeOutages
from twin.nodes.runs import runs_of
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.power.accounts import accounts, charged, totals
from twin.power.conversion import ConversionChain, Overhead
from twin.power.node_power import added_mw, mean_power, node_site_power
from twin.queue.jobs import QueueJobs

CLUSTER = NodeCluster.parse("1 x 4 A100-80, 1 x 2 V100-32")


def played(
    gpus: list[int], milli: list[int] | None = None, outages: NodeOutages = NO_OUTAGES
) -> NodeSchedule:
    jobs = QueueJobs.of_seconds(np.zeros(len(gpus)), [100.0, 50.0, 30.0][: len(gpus)], gpus)
    demands = Demands.of_jobs(CLUSTER, jobs.processors, milli)
    return simulate_on_nodes(jobs, demands, CLUSTER, recipe("fcfs"), placement("best-fit"), outages=outages)


def test_the_energy_of_a_site_is_that_of_its_gpus_idle_and_busy() -> None:
    done = played([4, 2])
    large, small = preset("A100-80"), preset("V100-32")
    idle_w = 4 * large.idle_w + 2 * small.idle_w
    added = np.array([4 * (busy_w(large) - large.idle_w), 2 * (busy_w(small) - small.idle_w)])
    runs = runs_of(done)
    assert added_mw(done, runs) == pytest.approx(1000 * added, abs=4)

    held, power = node_site_power(done, runs, ConversionChain((Overhead("PUE", 1.5),)))
    joules = 1.5 * (100 * idle_w + 100 * added[0] + 50 * added[1])
    assert power.meter.integral / 1e12 == pytest.approx(joules, rel=1e-5)
    amounts = charged(held, power)
    assert totals(accounts(amounts, ["a", "b"])).energy_pj == power.meter.integral


def test_a_node_draws_nothing_from_a_fault_to_its_repair_and_lost_work_is_charged() -> None:
    # The job of 100 s on the first node is ended at 40, waits until 60 and runs to 160; the second node
    # drains meanwhile, which costs no power.
    s = 10**9
    done = played([4], outages=NodeOutages.of_rows([(0, 40 * s, 60 * s, False), (1, 0, 30 * s, True)]))
    runs, large, small = runs_of(done), preset("A100-80"), preset("V100-32")
    held, power = node_site_power(done, runs)
    added = 4 * (busy_w(large) - large.idle_w)
    joules = 140 * (4 * large.idle_w + added) + 160 * 2 * small.idle_w
    assert power.meter.integral / 1e12 == pytest.approx(joules, rel=1e-5)
    assert power.meter.at(np.array([50 * s])) == pytest.approx(2000 * small.idle_w, abs=4)
    user, idle = accounts(charged(held, power), ["a"], runs.job)
    assert (user.jobs, user.gpu_ns) == (1, 4 * 140 * s)
    assert user.energy_pj + idle.energy_pj == power.meter.integral


def test_the_mean_of_a_gpu_counts_nodes() -> None:
    mean = mean_power(CLUSTER)
    watts = (4 * preset("A100-80").idle_w + 2 * preset("V100-32").idle_w) / 6
    assert mean.idle_mw == pytest.approx(1000 * watts, abs=1)
    assert "A100-80, V100-32" in mean.name


def test_shared_gpus_are_refused() -> None:
    with pytest.raises(UsageError, match="power on nodes is that of whole GPUs"):
        shared = played([1, 1], [500, 500])
        node_site_power(shared, runs_of(shared))
