"""Records of the lake that a scenario uses besides links: node faults, job arrivals, step-time scatter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.units import to_ns
from twin.core import model_presets
from twin.core.job import JobSpec
from twin.scenario import step_jitter
from twin.scenario.fault_timeline import Fault
from twin.scenario.step_jitter import Factors
from twin.scenario.submission import Submission
from twin.settings.disturbances import FaultTrace, JitterSettings
from twin.settings.scenario_file import Arrivals, Scenario

_FAULTS = """
    SELECT epoch_ns(ts), host, epoch_ns(repaired_ts) FROM faults
    WHERE dataset = $dataset AND host IS NOT NULL AND (len($kinds) = 0 OR kind IN (SELECT unnest($kinds)))
    ORDER BY ts, host
"""
_JOBS = """
    SELECT job_id, epoch_ns(submit_ts), gpus, seconds, priority
    FROM (SELECT *, coalesce(duration_s, date_diff('second', start_ts, end_ts)) AS seconds FROM jobs)
    WHERE dataset = $dataset AND gpus >= $least AND seconds > 0
    ORDER BY submit_ts, job_id LIMIT $count OFFSET $skip
"""
_STEPS = """
    SELECT time_s, dense_rank() OVER (ORDER BY job, worker) FROM step_times
    WHERE dataset = $dataset AND time_s IS NOT NULL AND ($job IS NULL OR job = $job)
    ORDER BY job, worker, step
"""


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Rows of the lake as faults, jitter and submissions; `digests` are those of the tables read."""

    faults: tuple[Fault, ...] = ()
    jitter: Factors | None = None
    arrivals: tuple[Submission, ...] = ()
    digests: tuple[tuple[str, str], ...] = ()


NO_RECORDS = Records()


def load(store: Path, scenario: Scenario, spec: JobSpec) -> Records:
    """Records of every data set that `scenario` names; opens nothing when it names none.

    Raises:
        NotFoundError: the lake lacks the rows. UsageError: they cannot be used.
    """
    found = NO_RECORDS
    if scenario.fault_trace is not None:
        settings = scenario.fault_trace
        rows = _rows(store, "faults", settings.dataset, _FAULTS, kinds=list(settings.kinds))
        nodes = [d.gpus_per_node or scenario.cluster.hardware.gpus_per_node for d in scenario.cluster.domains]
        found = replace(found, faults=faults(rows, settings, nodes))
        found = _with_digest(found, "faults", rows)
    if scenario.jitter is not None:
        rows = _rows(store, "step_times", scenario.jitter.dataset, _STEPS, job=scenario.jitter.job)
        found = _with_digest(replace(found, jitter=_quantiles(rows, scenario.jitter)), "step_times", rows)
    if scenario.arrivals is not None:
        wanted = scenario.arrivals
        limits = {"least": wanted.at_least_gpus, "count": wanted.count, "skip": wanted.skip}
        rows = _rows(store, "jobs", wanted.dataset, _JOBS, **limits)
        found = _with_digest(replace(found, arrivals=arrivals(rows, wanted, spec)), "jobs", rows)
    return found


def faults(rows: Sequence[Any], settings: FaultTrace, nodes: Sequence[int]) -> tuple[Fault, ...]:
    """Losses and repairs in order, from rows (ns, host, repair ns or None); `nodes` (K,): GPUs of a node."""
    hosts = {host: n % len(nodes) for n, host in enumerate(sorted({row[1] for row in rows}))}
    zero = rows[0][0] + to_ns(settings.from_s)
    found = []
    for at_ns, host, repaired_ns in rows:
        k, start = hosts[host], at_ns - zero
        end = repaired_ns - zero if repaired_ns is not None else start + to_ns(settings.repair_s)
        if start >= 0 and end > start:
            found.append(Fault(start, "gpu_failed", k, nodes[k]))
            found.append(Fault(end, "gpu_repaired", k, nodes[k]))
    return tuple(sorted(found))


def arrivals(rows: Sequence[Any], settings: Arrivals, spec: JobSpec) -> tuple[Submission, ...]:
    """Submissions from rows (id, ns, GPUs, seconds, priority) in order of time."""
    zero, whole = rows[0][1], rows[-1][1] - rows[0][1]
    stretch = 1.0 if settings.spread_s is None or not whole else to_ns(settings.spread_s) / whole
    return tuple(
        Submission(
            name=name,
            submit_ns=round((at_ns - zero) * stretch),
            priority=int(priority in settings.urgent),
            spec=_of_size(spec, settings.models, gpus),
            tokens=max(1, round(gpus * seconds * settings.tokens_per_gpu_s)),
        )
        for name, at_ns, gpus, seconds, priority in rows
    )


def _of_size(spec: JobSpec, models: Mapping[int, str], gpus: int) -> JobSpec:
    """Training job of a submission of so many GPUs."""
    least = max((size for size in models if size <= gpus), default=None)
    return spec if least is None else replace(spec, model=model_presets.preset(models[least]))


def _quantiles(rows: Sequence[Any], settings: JitterSettings) -> Factors:
    times = np.array([row[0] for row in rows], np.float64)
    workers = np.array([row[1] for row in rows], np.int64)
    try:
        return step_jitter.quantiles(times, workers)
    except ValueError as error:
        raise UsageError(f"data set {settings.dataset!r}: {error}; name another under `jitter`") from error


def _rows(store: Path, table: str, dataset: str, sql: str, **values: Any) -> list[Any]:
    from ingest.lake import duckdb_views  # brings duckdb, needed here only

    with duckdb_views.connect(store) as connection:
        rows = connection.execute(sql, {"dataset": dataset, **values}).fetchall()
    if not rows:
        raise NotFoundError(
            f"the lake in {store} has no rows of table {table} from {dataset!r} that the scenario can use: "
            "run `twin ingest` on its folder, or look at `twin traces`"
        )
    return rows


def _with_digest(found: Records, name: str, rows: Sequence[Any]) -> Records:
    return replace(found, digests=(*found.digests, (name, sha256(repr(rows).encode()).hexdigest())))
