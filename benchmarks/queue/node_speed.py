"""Speed of queues on nodes, on one core: python -m benchmarks.queue.node_speed [--page PAGE]

100,000 synthetic jobs on 10,000 GPUs in 1,250 nodes, starts, ends and places written to a Parquet file:
seconds and peak memory. Then the time of a scheduling pass at 1,000 nodes of 10 GPUs while about 5,000 jobs
wait; the loop of the kernel is in Python there, so that the call of a pass is in its time."""

import argparse
import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.core.compiled import njit
from ingest.core.durable import replace
from policy.placement.registry import PLACEMENTS, placement
from policy.queue.registry import recipe
from twin.nodes import kernel
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.nodes.passes import run_pass
from twin.nodes.state import NOBODY, ClusterState, site_of
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.queue.jobs import Float, QueueJobs
from twin.queue.ordering import submit
from twin.queue.pool import ENDED, RUNNING, WAITING, Flags, Inputs, Pool, flags_of, idle, inputs_of
from twin.queue.rules import PREDICTSIM

SIZES, SHARES = (1, 2, 4, 8, 16, 64), (0.5, 0.15, 0.15, 0.15, 0.04, 0.01)
LOAD, MEAN_S = 0.95, 3600.0
WAITING_JOBS = 4_500, 5_500
LARGE = (("easy", "best-fit"), ("easy", "packing"), ("easy-sjbf", "spread"), ("easy", "fgd"))
SCHEDULERS = (
    "fcfs",
    "easy",
    "easy-sjbf",
    "saf+easy",
    "f1+easy",
    "wfp3+easy",
    "unicef+easy",
    "hrrn+easy",
    "las+easy",
)


def workload(count: int, gpus: int, *, at_once: bool = False) -> QueueJobs:
    """Jobs of powers of two GPUs and exponential run times, at a load of `LOAD`, or all at once."""
    random = np.random.default_rng(1)
    sizes = random.choice(SIZES, count, p=SHARES)
    interval_s = 0.0 if at_once else float(np.dot(SIZES, SHARES)) * MEAN_S / (gpus * LOAD)
    run = np.ceil(random.exponential(MEAN_S, count))
    return QueueJobs.of_seconds(
        np.ceil(random.exponential(interval_s, count).cumsum()),
        run,
        sizes,
        np.ceil(run * random.uniform(1, 4, count)),
    )


def written(done: NodeSchedule, path: Path) -> None:
    """Writes a row for every start and end, with the nodes of the job."""
    sizes, width = np.diff(done.first), int(done.cluster.gpus.max())
    nodes = pa.ListArray.from_arrays(pa.array(done.first), pa.array(done.slots // width))
    end_ns = done.start_ns + done.jobs.run_ns
    rows = {
        "time_ns": np.concatenate((done.start_ns, end_ns)), "job": np.tile(done.jobs.number, 2),
        "kind": np.repeat(("start", "end"), len(sizes)), "nodes": pa.concat_arrays([nodes, nodes]),
    }  # fmt: skip
    pq.write_table(pa.table(rows), path)


def large() -> str:
    """Returns the table of 100,000 jobs."""
    cluster, jobs = NodeCluster.parse("1250 x 8 A100-80"), workload(100_000, 10_000)
    demands = Demands.of_jobs(cluster, jobs.processors)
    rows = ["| scheduler | placement | wall s | CPU s | peak memory GB |", "|---|---|---:|---:|---:|"]
    with TemporaryDirectory() as folder:
        for policy, place in LARGE:
            few = jobs.select(slice(50))
            simulate_on_nodes(
                few, Demands.of_jobs(cluster, few.processors), cluster, recipe(policy), placement(place),
                rules=PREDICTSIM,
            )  # fmt: skip
            begin, used = perf_counter(), process_time()
            done = simulate_on_nodes(
                jobs, demands, cluster, recipe(policy), placement(place), rules=PREDICTSIM
            )
            written(done, Path(folder) / "events.parquet")
            wall, cpu = perf_counter() - begin, process_time() - used
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            rows.append(f"| `{policy}` | `{place}` | {wall:.1f} | {cpu:.1f} | {peak:.2f} |")
            print(rows[-1], flush=True)
    return "\n".join(rows)


@njit
def count_task(site: ClusterState, job: int) -> None:
    """The kernel's function, with a way in from Python; so too the next two."""
    kernel.count_task(site, job)


@njit
def scheduling_pass(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, time: int) -> None:
    """One pass of the kernel."""
    run_pass(jobs, flags, pool, site, time, NOBODY)


@njit
def end_next(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, time: int) -> None:
    """Ends the job that ends next."""
    kernel.end_next(jobs, flags, pool, site, time)


def pass_times(policy: str, place: str) -> Float:
    """CPU seconds of each pass while the wanted number of jobs waits."""
    cluster, jobs = NodeCluster.parse("1000 x 10 A100-80"), workload(10_000, 10_000, at_once=True)
    chosen, predicted = recipe(policy), jobs.predicted_ns("estimate")
    keys = chosen.keys(jobs, predicted)
    inputs, flags = inputs_of(jobs, predicted, keys), flags_of(keys, chosen.backfill, PREDICTSIM)
    pool = idle(1, keys, int(inputs.user.max(initial=0)) + 1)
    site = site_of(cluster, Demands.of_jobs(cluster, jobs.processors), placement(place))
    found, time = [], int(jobs.submit_ns[0])
    for job in range(len(jobs)):
        submit(inputs, flags, pool, job)
        count_task(site, job)
    while True:
        waiting, begin = int(pool.now[WAITING]), process_time()
        scheduling_pass(inputs, flags, pool, site, time)
        if waiting <= WAITING_JOBS[1]:
            found.append(process_time() - begin)
        if waiting < WAITING_JOBS[0]:
            return np.array(found)
        time = int(pool.end_at[pool.now[RUNNING] - 1])
        pool.now[ENDED] = 0
        end_next(inputs, flags, pool, site, time)


def passes() -> str:
    """Returns the table of scheduling passes."""
    rows = ["| scheduler | placement | passes | mean ms | p99 ms |", "|---|---|---:|---:|---:|"]
    for policy in SCHEDULERS:
        for place in PLACEMENTS if policy == "easy" else ("best-fit",):
            took = 1e3 * pass_times(policy, place)
            slowest = np.percentile(took, 99)
            rows.append(f"| `{policy}` | `{place}` | {len(took):,} | {took.mean():.2f} | {slowest:.2f} |")
            print(rows[-1], flush=True)
    return "\n".join(rows)


PAGE = """# Queues on nodes: speed

Written by `python -m benchmarks.queue.node_speed --page docs/measured/queue-speed.md`, on one core.
The jobs are **synthetic**: powers of two GPUs, exponential run times, estimates of one to four times the run.

## A large cluster
100,000 jobs on 10,000 GPUs in 1,250 nodes at a load of 0.95; starts, ends and places are written to a
Parquet file. Where other work runs beside it, CPU seconds are what counts.

{large}

## One scheduling pass
1,000 nodes, 10,000 GPUs, 4,500 to 5,500 waiting jobs; CPU time of a pass with the call of it from Python.
Aim: below 10 ms at the 99th percentile.

{passes}
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--page", type=Path, help="write the page there")
    page = options.parse_args().page
    text = PAGE.format(large=large(), passes=passes())
    if page is not None:
        replace(page, text.encode())


if __name__ == "__main__":
    main()
