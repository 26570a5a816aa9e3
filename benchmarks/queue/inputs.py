"""The job traces that lie beside the repository, each on a pool: for the comparison of schedulers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ingest.readers import job_logs
from ingest.readers.clusters.swf_log import FIELDS, SwfLog
from twin.queue.jobs import QueueJobs
from twin.queue.rules import PREDICTSIM
from twin.workload.selection import select

LOAD = 0.85
"""Offered load of a pool for traces that do not say how large their cluster was."""
MURI_GPUS = 64
"""The cluster of all published results on these traces (`n8g8.csv`)."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs on a pool; `sized` says where the size of the pool comes from."""

    name: str
    jobs: QueueJobs
    processors: int
    sized: str

    @property
    def load(self) -> float:
        """Processor-time asked for over that of the pool while jobs are submitted."""
        return _demand(self.jobs) / self.processors


def traces(shared: Path) -> Iterator[Trace]:
    """Yields every trace whose jobs have run times, the log machines first."""
    jobs = shared / "jobs"
    logs = {
        "KTH-SP2": "KTH-SP2-log.swf", "SDSC-SP2": "SDSC-SP2-1998-4.2-cln.swf.gz",
        "Lublin-256": "lublin_256.swf", "NASA-iPSC": "NASA-iPSC-1993-3.1-cln.swf",
    }  # fmt: skip
    for name, file in logs.items():
        found = select(job_logs.read(jobs / "swf" / file), PREDICTSIM)
        yield Trace(name, found.jobs, found.processors, "header")
    for name in ("trace1", "trace1_pr", "trace3", "trace3_pr"):
        log = job_logs.read(jobs / f"muri/{name}.csv")
        yield _on(f"Muri {name}", log, MURI_GPUS, "published")
    for cluster in ("02", "04", "07", "08"):
        log = job_logs.read(jobs / f"itp-elasticflow/simulation/cluster{cluster}.csv")
        yield _on(f"ITP {cluster}", log)
    gpu = shared / "traces/gpu"
    yield _on("Philly", job_logs.read(gpu / "jobs-philly/philly.csv"))
    yield _on("openb", job_logs.read(gpu / "jobs-alibaba-openb-2023/openb_pod_list_default.csv"))
    yield _on("Gavel", gavel(jobs / "gavel"))


def gavel(folder: Path) -> SwfLog:
    """Returns the jobs of Gavel's list with arrivals; run times are steps over the rate alone on V100s."""
    rates = json.loads((folder / "simulation_throughputs.json").read_text(encoding="utf-8"))["v100"]
    path = folder / "max_min_fairness.trace"
    log = job_logs.read(path)
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    run_s = [int(cells[5]) / rates[f"('{cells[0]}', {cells[6]})"]["null"] for cells in rows]
    table = log.table.copy()
    table[:, FIELDS.index("run_s")] = run_s
    return replace(log, table=table)


def _on(name: str, log: SwfLog, processors: int | None = None, sized: str = f"load {LOAD}") -> Trace:
    """Returns the jobs of a log on a pool; without a size it is the least one below the offered load."""
    everything = select(log, PREDICTSIM, 10**9)
    size = processors
    if size is None:
        least = int(np.ceil(_demand(everything.jobs) / LOAD))
        size = max(least, int(everything.jobs.processors.max()))
    return Trace(name, select(log, PREDICTSIM, size).jobs, size, sized)


def _demand(jobs: QueueJobs) -> float:
    """Mean processors that are asked for from the first submission to the last."""
    span_ns = int(jobs.submit_ns.max() - jobs.submit_ns.min())
    asked = float((jobs.run_ns / 1e9 * jobs.processors).sum())
    return asked / (span_ns / 1e9) if span_ns else float("inf")
