"""Runs beside each other: their key figures, and paired differences where runs share a world.

The first run is the base. Runs of one policy (and checkpoint, and plan) in several worlds stand together for
it, so that a difference is judged over worlds and time (`replay.metrics.paired_comparison`). Runs of other
worlds on the same stretch of the same trace are paired by time alone; others have no differences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.progress import SILENT, Progress
from replay.log.events import canonical
from replay.log.run_log import RunReader
from replay.metrics.kpis import Kpis, of_events
from replay.metrics.paired_comparison import PairedDifference, TimeBlocks, blocks_of, judge
from replay.store import run_index
from replay.store.run_header import Header, from_payload, unfinished
from replay.store.run_kind import require_plans

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One finished run: its header, key figures and figures in blocks of time."""

    run_id: str
    header: Header
    kpis: Kpis
    blocks: TimeBlocks

    @property
    def variant(self) -> str:
        """Identity of what decided in it; equal for the same policy in other worlds."""
        branch = self.header.branch or {}
        kept = (
            self.header.checkpoint,
            self.header.plan,
            branch.get("decision"),
            self.header.enforce_deadline,
        )
        return canonical([self.header.policy, *kept])

    @property
    def world(self) -> str:
        """Everything that happened to it from outside; equal for other policies in the same world."""
        return canonical([dict(self.header.world), self.header.engine])

    @property
    def stretch(self) -> str:
        """The part of a trace that it ran on, whatever else was changed in its world."""
        world = self.header.world
        return canonical(
            [world["traces"]["source"], world["origin_epoch_ns"], world["end_ns"], world["window"]]
        )


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """One policy against the base over pairs of runs; differences are positive where it is better.

    `by`: `world` where the runs of each pair are of one world, `time` where only their stretch of the trace
    is the same. `saved`: share of the base's time per token, mean of the pairs; None: one trained nothing.
    """

    base: str
    other: str
    pairs: tuple[tuple[str, str], ...]
    by: str
    saved: float | None
    differences: tuple[PairedDifference, ...]

    @property
    def verdict(self) -> str:
        """`better` or `worse` where the interval of the tokens excludes zero, else `equal`."""
        tokens = self.differences[0]
        return "better" if tokens.better else "worse" if tokens.worse else "equal"

    def to_json(self) -> Json:
        """Returns all fields by name, and the verdict."""
        found = [{"kpi": d.kpi, "mean": d.mean, "low": d.low, "high": d.high} for d in self.differences]
        return {
            "base": self.base, "other": self.other, "pairs": [list(pair) for pair in self.pairs],
            "by": self.by, "saved": self.saved, "differences": found, "verdict": self.verdict,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Compared runs in the order in which they were asked for, the differences from the first, and notes."""

    runs: tuple[ComparedRun, ...]
    paired: tuple[PairedRuns, ...]
    notes: tuple[str, ...]

    def to_json(self) -> Json:
        """The object of `twin compare --json`."""
        rows = [
            {"run": one.run_id, "policy": one.header.policy, "seed": one.header.seed,
             "scenario": one.header.world["scenario"]["name"], "kpis": one.kpis.to_json()}
            for one in self.runs
        ]  # fmt: skip
        return {
            "schema": "twin.runs_compared/1",
            "runs": rows,
            "paired": [pair.to_json() for pair in self.paired],
            "notes": list(self.notes),
        }


def compare(store: Path, run_ids: Sequence[str], progress: Progress = SILENT) -> SideBySide:
    """Compares finished runs with the first of them.

    Raises:
        UsageError: fewer than two, one twice, or the log of an operation. NotFoundError: one is not finished.
        DamageError: a log is not what was written.
    """
    if len(set(run_ids)) < max(2, len(run_ids)):
        raise UsageError("compare takes two or more different runs; `twin runs` lists them")
    progress.start(len(run_ids), "runs", "runs")
    runs = []
    for run_id in run_ids:
        runs.append(compared(store, run_id))
        progress.advance(1, run_id)
    groups = _groups(runs)
    base, *others = groups.values()
    paired, notes = [], []
    for other in others:
        found = _paired(base, other)
        if found is None:
            where = "in a world, or on a stretch of a trace, of"
            notes.append(f"{_named(other)}: no run {where} {_named(base)}; figures alone are compared")
        else:
            paired.append(found)
            if found.by == "time":
                notes.append(f"{found.other}: another world than that of {found.base}, paired by time alone")
    return SideBySide(tuple(runs), tuple(paired), tuple(notes))


def compared(store: Path, run_id: str) -> ComparedRun:
    """Reads one run for a comparison; errors as `compare`."""
    reader = RunReader(run_index.folder(store, run_id))
    header = from_payload(reader.header())
    require_plans(run_id, header, "a comparison")
    if not reader.finished:
        raise NotFoundError(unfinished(header, run_id))
    events = list(reader.events())
    return ComparedRun(run_id, header, of_events(events), blocks_of(events, header.window_ns))


def _groups(runs: Sequence[ComparedRun]) -> dict[str, list[ComparedRun]]:
    """Runs by variant; each by itself where a variant ran twice in one world, for then it is not the policy
    that is compared."""
    found: dict[str, list[ComparedRun]] = {}
    for run in runs:
        found.setdefault(run.variant, []).append(run)
    repeated = any(len({run.world for run in group}) < len(group) for group in found.values())
    return {run.run_id: [run] for run in runs} if repeated or len(found) == 1 else found


def _paired(base: Sequence[ComparedRun], other: Sequence[ComparedRun]) -> PairedRuns | None:
    ways: tuple[tuple[str, Callable[[ComparedRun], str]], ...] = (
        ("world", lambda run: run.world),
        ("time", lambda run: run.stretch),
    )
    for by, key in ways:
        mine = {key(run): run for run in base}
        pairs = [(mine[key(run)], run) for run in other if key(run) in mine]
        if pairs and len({key(run) for _, run in pairs}) == len(pairs):
            return PairedRuns(
                _named(base), _named(other), tuple((a.run_id, b.run_id) for a, b in pairs), by, _saved(pairs),
                judge([a.blocks for a, _ in pairs], [b.blocks for _, b in pairs]),
            )  # fmt: skip
    return None


def _saved(pairs: Sequence[tuple[ComparedRun, ComparedRun]]) -> float | None:
    times = [(a.kpis.time_per_token_s, b.kpis.time_per_token_s) for a, b in pairs]
    known = [1 - own / base for base, own in times if base is not None and own is not None]
    return float(np.mean(known)) if len(known) == len(times) else None


def _named(group: Sequence[ComparedRun]) -> str:
    """The run, or the policy where several runs stand for it."""
    first = group[0]
    if len(group) == 1:
        return first.run_id
    digest = first.header.checkpoint
    return first.header.policy + (f" {digest[:8]}" if digest else "")
