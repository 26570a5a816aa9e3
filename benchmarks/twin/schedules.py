"""Schedules over wide-area links: python -m benchmarks.twin.schedules

Llama-2 70B over four domains of one 8 x A100 node, one stage each, 32 micro-batches of one sequence:
iteration time of every schedule over one-way latency x bandwidth, with every point-to-point mode, and what
the memory of its fullest GPU holds; the best of a row is marked. A second table gives the speed of the kernel
of orders beside that of the recurrences.
"""

from timeit import repeat
from typing import get_args

import numpy as np

from ingest.core.units import GIB
from twin.core.domain import Cluster, Domain, LinkState
from twin.core.gpu_models import fabric, preset
from twin.core.job import JobSpec
from twin.core.model_presets import preset as model
from twin.core.plan import Plan, PointToPoint, Schedule
from twin.core.schedules import SPLIT, default_chunks, turns
from twin.estimation.estimator import Estimator
from twin.pipeline import fixed_order_kernel, kernel, operation_order
from twin.pipeline.pipeline import Pipeline, boundary_count, warmup_depths

DOMAINS, MICRO_BATCHES = 4, 32
LATENCIES_S = (0.0, 0.01, 0.05, 0.15)
RATES_GBPS = (1.0, 5.0, 25.0)
SCHEDULES: dict[str, tuple[Schedule, int, int]] = {
    "gpipe": ("gpipe", 1, 0),
    "1f1b": ("1f1b", 1, 0),
    "1f1b +1": ("1f1b", 1, 1),
    "1f1b +3": ("1f1b", 1, 3),
    "interleaved 2": ("interleaved", 2, 0),
    "interleaved 4": ("interleaved", 4, 0),
    "crosspipe": ("crosspipe", 1, 0),
    "crosspipe +3": ("crosspipe", 1, 3),
    "zb-h1": ("zb-h1", 1, 0),
    "zb-v": ("zb-v", 2, 0),
}
"""Name -> schedule, chunks, extra warm-up in front of each wide-area boundary."""


def plan_of(name: str, p2p: PointToPoint) -> tuple[Estimator, Plan]:
    """The plan of one column, and the estimator that prices it."""
    schedule, chunks, extra = SCHEDULES[name]
    kind = fabric("A100-80")
    site = Domain("d", preset("A100-80"), 8, 8, kind.intra_node_bps, kind.inter_node_bps, 3e-6, 8e-6, 2.0)
    cluster = Cluster((site,) * DOMAINS, ((0.02,) * DOMAINS,) * DOMAINS)
    job = JobSpec(
        model("llama2-70b"), MICRO_BATCHES, (1,), schedule, p2p, zero=0, chunks=chunks, extra_warmup=extra
    )
    estimator = Estimator(cluster, job)
    layers = (22, 20, 20, 20) if turns(schedule) else (21, 20, 20, 21)  # with embedding and head
    return estimator, estimator.make(range(DOMAINS), layers, 1, ((8, 1),) * DOMAINS, 1)


def links(gbps: float, latency_s: float) -> LinkState:
    """Every link alike."""
    shape = (DOMAINS, DOMAINS)
    return LinkState(np.full(shape, gbps * 1e9), np.full(shape, latency_s))


def times_table(p2p: PointToPoint) -> None:
    """Seconds of every schedule in every cell."""
    plans = [plan_of(name, p2p) for name in SCHEDULES]
    print(f"\n{p2p}: seconds an iteration (* best of the row)")
    print("latency  Gb/s  " + "".join(f"{name:>15}" for name in SCHEDULES))
    for latency_s in LATENCIES_S:
        for gbps in RATES_GBPS:
            found = [estimator.iter_ns(plan, links(gbps, latency_s)) / 1e9 for estimator, plan in plans]
            cells = "".join(f"{t:14.2f}{'*' if t == min(found) else ' '}" for t in found)
            print(f"{latency_s * 1e3:4.0f} ms  {gbps:4.0f}  {cells}")
    peaks = [max(estimator.peak_mem_bytes(plan)) / GIB for estimator, plan in plans]
    print("peak GiB       " + "".join(f"{peak:14.1f} " for peak in peaks))


def made(stages: int, m: int, plans: int, schedule: Schedule, chunks: int) -> Pipeline:
    """Random durations."""
    rng = np.random.default_rng(7)
    joints = boundary_count(stages, chunks, schedule)
    compute = [rng.integers(1, 10**9, (stages * chunks, plans)) for _ in range(2)]
    across = [rng.integers(1, 10**8, (joints, plans)) for _ in range(4)]
    weight = compute[1] // 2 if schedule in SPLIT else None
    tail, depths = np.zeros((stages, plans), np.int64), warmup_depths(stages, m)
    return Pipeline(*compute, *across, tail, depths, m, schedule, "overlapped", chunks, tw=weight)


def speed_table() -> None:
    """Evaluations a second of one core."""
    print("\n  S    m  schedule       recurrences/s      orders/s   ns per operation")
    for stages, m in ((4, 16), (8, 64), (16, 128)):
        for schedule in get_args(Schedule)[1:]:
            some = made(stages, m, 200, schedule, default_chunks(schedule))
            fixed_order_kernel.iteration_ns(some)
            seconds = min(repeat(lambda some=some: fixed_order_kernel.iteration_ns(some), number=1))
            quick = ""
            if schedule == "1f1b":
                kernel.iteration_ns(some)
                quick = f"{200 / min(repeat(lambda some=some: kernel.iteration_ns(some), number=1)):,.0f}"
            count = 200 * operation_order.of(some.column(0)).size
            each = seconds / count * 1e9
            print(f"{stages:3} {m:4}  {schedule:13} {quick:>14} {200 / seconds:13,.0f} {each:18.1f}")


def main() -> None:
    for p2p in ("blocking", "overlapped", "rendezvous"):
        times_table(p2p)  # type: ignore[arg-type]
    speed_table()


if __name__ == "__main__":
    main()
