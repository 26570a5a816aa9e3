"""Speed of the queue kernel on one core: python -m benchmarks.queue.speed LOG

Jobs per second of every usual scheduler on a log (best of five, CPU seconds, so that other work beside it
counts little), the time to read the log, and the growth: the log repeated one after another, up to a million
jobs.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np

from ingest.readers.clusters import swf_log
from policy.queue.registry import recipe
from twin.queue.jobs import QueueJobs
from twin.queue.rules import PREDICTSIM
from twin.queue.simulation import simulate
from twin.workload.selection import select

POLICIES = (
    "fcfs", "easy", "easy-sjbf", "conservative", "sjf", "saf+easy", "f1+easy", "wfp3+easy", "unicef+easy",
    "hrrn+easy", "las+easy",
)  # fmt: skip


def seconds(call: Callable[[], object], repeat: int = 5) -> float:
    """CPU seconds of a call, best of some."""
    found = []
    for _ in range(repeat):
        begin = process_time()
        call()
        found.append(process_time() - begin)
    return min(found)


def repeated(jobs: QueueJobs, times: int) -> QueueJobs:
    """The jobs some times over, each copy submitted when the one before it has been."""
    span_s = int(jobs.submit_ns.max() - jobs.submit_ns.min()) // 10**9 + 1
    copies = np.repeat(np.arange(times), len(jobs))
    columns = (np.tile(column, times) for column in (jobs.run_ns, jobs.processors, jobs.estimate_ns))
    run, processors, estimate = columns
    submit = np.tile(jobs.submit_ns, times) // 10**9 + copies * span_s
    return QueueJobs.of_seconds(submit, run // 10**9, processors, estimate // 10**9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    path = parser.parse_args().log
    read_s = seconds(lambda: swf_log.read(path), 1)
    log = select(swf_log.read(path), PREDICTSIM)
    count = len(log.jobs)
    print(f"{log.name}: {count:,} jobs on {log.processors} processors; reading takes {read_s:.2f} s")
    print("| scheduler | ms | million jobs/s |\n|---|---:|---:|")
    for name in POLICIES:
        simulate(log.jobs.select(slice(50)), log.processors, recipe(name))  # compiles
        taken = seconds(lambda name=name: simulate(log.jobs, log.processors, recipe(name)))
        print(f"| `{name}` | {taken * 1e3:.0f} | {count / taken / 1e6:.2f} |")
    print("\n| jobs | easy, million jobs/s | conservative |\n|---:|---:|---:|")
    for times in (1, 2, 5, 10, 20):
        more = repeated(log.jobs, times)
        taken = [
            seconds(lambda name=name, more=more: simulate(more, log.processors, recipe(name)), 3)
            for name in ("easy", "conservative")
        ]
        print(f"| {len(more):,} | {' | '.join(f'{len(more) / one / 1e6:.2f}' for one in taken)} |")


if __name__ == "__main__":
    main()
