"""Small trained applications with numbers made up so that goodput can be computed by hand."""

from dataclasses import replace

import numpy as np

from twin.goodput.many_jobs import ApplicationThroughput, GpuThroughput
from twin.goodput.throughput_model import ThroughputModel
from twin.queue.jobs import Int, QueueJobs
from twin.sharing import engine
from twin.sharing.changes import FREE, ChangeRules
from twin.sharing.curves import SpeedCurves
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.job_goodput import JobGoodput, TrainedApplication
from twin.sharing.speeds import MeasuredSpeeds
from twin.sharing.view import SharingScheduler

MODELS = ("slow", "fast")
"""GPU models; the second computes twice as fast."""
SECOND = 10**9


def gpu(gradient_s: float, local_s: float, node_s: float) -> GpuThroughput:
    """One GPU: seconds of a sample's gradient, and of synchronisation within a node and over several."""
    model = ThroughputModel(0.0, gradient_s, local_s, 0.0, node_s, 0.0, 1.0)
    return GpuThroughput(model, least_local=1, most_local=40, most_nodes=4, most_replicas=16)


def application(name: str = "made-up", noise: tuple[float, ...] = (100.0, 400.0)) -> TrainedApplication:
    """Two epochs of 600 useful samples each, noise scales of both, batches 10 to 160."""
    by_gpu = {"slow": gpu(0.02, 0.1, 0.4), "fast": gpu(0.01, 0.1, 0.4)}
    scales = np.tile(np.array(noise), (2, 1))
    ends = np.linspace(0, 1, len(noise) + 1)[1:]
    throughput = ApplicationThroughput(name, by_gpu, 10, 160)
    return TrainedApplication(throughput, ends, np.array([10.0, 160.0]), scales, 600.0 * len(noise))


APPLICATIONS = (application(), application("other", (50.0, 50.0, 800.0)))


def goodput_of(
    run_ns: Int, of_node: Int, of_job: Int, *, tuned: bool, refresh_s: int = 60, samples: float | None = None
) -> JobGoodput:  # fmt: skip
    """Jobs of the applications above with batches of 40; `samples`: another length of their trainings."""
    batch = np.full(len(run_ns), 40, np.int64)
    each = tuple(one if samples is None else replace(one, samples=samples) for one in APPLICATIONS)
    return JobGoodput(each, of_job, batch, run_ns, MODELS, of_node, tuned, refresh_s * SECOND)


def played(
    scheduler: SharingScheduler, count: int, rules: ChangeRules = FREE, *, sizes: tuple[int, ...] = (4, 4),
    models: tuple[int, ...] = (0, 0), pause_s: int = 10,
) -> SharedSchedule:  # fmt: skip
    """Jobs of the first application, an hour alone on 1 GPU, that come at once."""
    one = APPLICATIONS[0]
    alone_s = 3600.0
    samples = one.samples * alone_s / one.alone_s("slow", 1, 1, 40)
    jobs = QueueJobs.of_seconds([0] * count, [round(alone_s)] * count, [1] * count)
    speeds = MeasuredSpeeds(np.zeros(count), np.zeros((count, 3)), SpeedCurves.rigid(jobs.processors))
    goodput = goodput_of(
        jobs.run_ns, np.array(models), np.zeros(count, np.int64), tuned=True, samples=samples
    )
    pause = np.full(count, pause_s * SECOND)
    return engine.play(
        SharingWorld(
            jobs, jobs.run_ns, pause, len(sizes), max(sizes), rules, speeds, sizes=np.array(sizes),
            goodput=goodput,
        ),
        scheduler,
    )  # fmt: skip
