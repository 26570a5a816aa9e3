"""A run as trackers know one: parameters, tags, series of figures, and the figures at its end."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ingest.core.errors import NotFoundError
from replay.log.run_log import RunReader
from replay.metrics.formatting import is_synthetic
from replay.sql.query import query
from replay.store import run_index

PARAMETERS = (
    "scenario", "policy", "seed", "engine", "window", "dataset", "checkpoint", "weights", "link_changes",
    "branch_of", "config_digest",
)  # fmt: skip
FIGURES = (
    "tokens", "progress_tokens", "iterations", "lost_iterations", "moves", "turns", "egress_usd", "gpu_usd",
    "horizon_s", "tokens_per_s", "total_usd", "usd_per_1e9_tokens", "rent_usd_per_1e9_tokens",
    "egress_usd_per_1e9_tokens",
)  # fmt: skip
"""Columns of the view `runs`: what a run was made with, and its sums."""
NS_PER_MS = 1_000_000


class Point(NamedTuple):
    """A value of a series: its step, and when it was, milliseconds since 1970."""

    step: int
    epoch_ms: int
    value: float


@dataclass(slots=True)
class TrackedSeries:
    """The points of one figure, and what their steps count: `iteration`, `decision` or `update`."""

    counts: str
    points: list[Point] = field(default_factory=list)


AllSeries = dict[str, TrackedSeries]


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """One run: `project` is its scenario.

    Times are those of the trace; a training has none of its own, and is given one second a step.
    """

    run_id: str
    project: str
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    series: Mapping[str, TrackedSeries]
    figures: Mapping[str, float]
    began_ms: int

    @property
    def ended_ms(self) -> int:
        """Returns the time of the last point, or of the beginning."""
        return max((one.points[-1].epoch_ms for one in self.series.values()), default=self.began_ms)


def tracked(store: Path, name: str) -> TrackedRun:
    """Returns a run by its id, a unique beginning of it, or `latest`.

    Raises:
        NotFoundError: no run or more than one fits, or it has no figures. DamageError: a log of the store is
        not as it was written.
    """
    run = run_index.find(store, name)
    found = _rows(store, f"SELECT * FROM runs WHERE run = '{run}'")
    if not found:
        raise NotFoundError(f"{run}: has no figures yet, it was stopped at its beginning; name another run")
    facts = found[0]
    header = next(iter(RunReader(run_index.folder(store, run)).events())).payload
    began_ms = int(header.get("origin_epoch_ns", 0)) // NS_PER_MS
    series: AllSeries = {}
    _iterations(store, run, began_ms, series)
    _decisions(store, run, began_ms, series)
    _updates(store, run, began_ms, series)
    finished = "yes" if facts["finished"] else "no"
    tags = {"twin.run": run, "twin.digest": facts["digest"] or "", "twin.finished": finished}
    if is_synthetic(facts["dataset"] or "", str(header.get("note", ""))):
        tags["twin.links"] = "SYNTHETIC"
    return TrackedRun(
        run, facts["scenario"] or run,
        {column: str(facts[column]) for column in PARAMETERS if facts[column] is not None}, tags,
        series,
        {column: float(facts[column]) for column in FIGURES if facts[column] is not None}, began_ms,
    )  # fmt: skip


def _rows(store: Path, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = query(store, sql).to_pylist()
    return rows


def _iterations(store: Path, run: str, began_ms: int, series: AllSeries) -> None:
    """Times and rates of each group of iterations, and sums of cost, traffic and energy so far, by job."""
    sums: dict[str, float] = defaultdict(float)
    for row in _rows(store, f"SELECT * FROM iterations WHERE run = '{run}' ORDER BY seq"):
        job, lasted_s = f"{row['job']}/" if row["job"] else "", row["end_s"] - row["start_s"]
        found = {"iteration_s": row["iter_s"], **{name: row[name] for name in ("utilisation", "stalled_s")}}
        if lasted_s > 0:
            found |= {"tokens_per_s": row["tokens"] / lasted_s, "power_w": row["energy_j"] / lasted_s}
        for column in ("tokens", "egress_usd", "gpu_usd", "energy_j", "wan_bytes"):
            sums[job + column] += row[column]
            found[f"so_far/{column}"] = sums[job + column]
        step, at_ms = row["first"] + row["count"], began_ms + round(1e3 * row["end_s"])
        _add(series, job, "iteration", step, at_ms, found)


def _decisions(store: Path, run: str, began_ms: int, series: AllSeries) -> None:
    """What each decision predicts, how long it took, and the moves so far, by job."""
    moves: dict[str, int] = defaultdict(int)
    for row in _rows(store, f"SELECT * FROM decisions WHERE run = '{run}' ORDER BY seq"):
        job = f"{row['job']}/" if row["job"] else ""
        moves[job] += row["action"] == "move" and row["number"] > 0  # the first one only starts the job
        found = {
            "predicted_iteration_s": row["predicted_iter_s"], "latency_s": row["latency_s"],
            "candidates": row["candidates"], "moves": moves[job],
        }  # fmt: skip
        at_ms = began_ms + round(1e3 * row["time_s"])
        _add(series, f"{job}decision/", "decision", row["number"], at_ms, found)


def _updates(store: Path, run: str, began_ms: int, series: AllSeries) -> None:
    """Figures of the updates of a training by stage; its steps are those of the environment, else updates."""
    updates = f"SELECT * FROM training WHERE run = '{run}' AND event = 'updated' ORDER BY seq"
    for row in _rows(store, updates):
        step = row["steps"] or row["number"]
        _add(series, f"{row['stage']}/", "update", step, began_ms + 1000 * step, dict(row["figures"]))


def _add(
    series: AllSeries, begin: str, counts: str, step: int, at_ms: int, found: Mapping[str, float | None]
) -> None:
    """Adds a point to each series whose value is known."""
    for name, value in found.items():
        if value is not None:
            one = series.setdefault(begin + name, TrackedSeries(counts))
            one.points.append(Point(step, at_ms, float(value)))
