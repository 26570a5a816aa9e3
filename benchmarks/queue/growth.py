"""How a schedule on nodes grows with its jobs: python -m benchmarks.queue.growth [--jobs 10000,30000,...]

The **synthetic** jobs and the cluster of `benchmarks.queue.node_speed` (10,000 GPUs in 1,250 nodes, load
0.95), EASY with best fit: CPU seconds of the simulation, and the exponent of their growth.
"""

import argparse
import resource
from time import process_time

import numpy as np

from benchmarks.queue.node_speed import workload
from policy.placement.registry import placement
from policy.queue.registry import recipe
from twin.nodes.on_nodes import simulate_on_nodes
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.queue.rules import PREDICTSIM


def simulated_s(count: int) -> float:
    """CPU seconds to schedule so many jobs."""
    cluster, jobs = NodeCluster.parse("1250 x 8 A100-80"), workload(count, 10_000)
    demands = Demands.of_jobs(cluster, jobs.processors)
    begin = process_time()
    simulate_on_nodes(jobs, demands, cluster, recipe("easy"), placement("best-fit"), rules=PREDICTSIM)
    return process_time() - begin


def main() -> None:
    """Prints a line for every number of jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", default="10000,30000,100000,300000")
    sizes = sorted(int(text) for text in parser.parse_args().jobs.split(","))
    simulated_s(50)  # compiles the kernels
    spent = []
    for count in sizes:
        spent.append(simulated_s(count))
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        shown = f"CPU {spent[-1]:7.2f} s  {1e6 * spent[-1] / count:6.1f} us a job  peak {peak_mb:5.0f} MB"
        print(f"{count:>9,} jobs  {shown}", flush=True)
    print(f"grows as jobs^{np.polyfit(np.log(sizes), np.log(spent), 1)[0]:.2f}")


if __name__ == "__main__":
    main()
