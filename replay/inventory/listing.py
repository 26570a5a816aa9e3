"""One row a run: what it is, when it began, how it ended, its key figures, its tags and note."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest.core.errors import TwinError
from ingest.core.progress import SILENT, Progress
from replay.inventory import cached_figures
from replay.log.run_log import RunReader
from replay.store import run_index, run_labels
from replay.store.run_header import QUEUE, Header, from_payload
from replay.store.run_kind import kind_of
from replay.store.run_labels import Labels

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of a store; None where a run that is damaged, unfinished or of no policy has no value.

    `kind`: that of `replay.store.run_kind`. `scheduler`: of a queue run, with its placement. `figures`: those
    of the kind by name, of `replay.metrics.kpis.Kpis` or of `twin.queue.metrics.QueueFigures`.
    """

    run: str
    kind: str | None
    scenario: str | None
    policy: str | None
    scheduler: str | None
    seed: int | None
    window: str | None
    dataset: str | None
    engine: str | None
    started: str | None  # UTC
    finished: bool
    events: int
    bytes: int
    branch_of: str | None
    labels: Labels
    problem: str | None
    figures: Json | None

    def to_json(self) -> Json:
        """Returns all fields by name, figures beside the others."""
        own = ("run", "kind", "scenario", "policy", "scheduler", "seed", "window", "dataset", "engine",
               "started", "finished", "events", "bytes", "branch_of")  # fmt: skip
        known = dict.fromkeys(cached_figures.NAMES) | (self.figures or {})
        return {
            **{name: getattr(self, name) for name in own},
            **self.labels.to_json(),
            **known,
            "problem": self.problem,
        }


def rows(store: Path, progress: Progress = SILENT) -> list[RunRow]:
    """Returns every run of a store, the newest first; a damaged one with its problem."""
    ids = run_index.all_ids(store)
    progress.start(len(ids), "runs", "runs")
    found = []
    for run_id in reversed(run_index.by_start(store, ids)):
        found.append(row(store, run_id))
        progress.advance(1, run_id)
    return found


def row(store: Path, run_id: str) -> RunRow:
    """Returns the row of one run."""
    run_dir = run_index.folder(store, run_id)
    size = sum(path.lstat().st_size for path in run_dir.iterdir())
    reader = RunReader(run_dir)
    try:
        contents = reader.contents()
        header = from_payload(reader.header())
        labels = run_labels.read(store, run_id, contents)
        kind = kind_of(header, run_index.made_by(store, run_id))
        known = contents.final and kind.family != "record"
        figures = cached_figures.of_run(store, reader, contents.head) if known else None
    except TwinError as error:  # one damaged run must not hide the others
        return RunRow(
            run_id, None, None, None, None, None, None, None, None, None, False, 0, size, None, Labels(),
            str(error), None,
        )  # fmt: skip
    return RunRow(
        run=run_id, kind=kind.name, scenario=str(header.world["scenario"]["name"]),
        policy=header.policy, scheduler=_scheduler(header), seed=header.seed, window=_window(header),
        dataset=header.world["dataset"],
        engine=header.engine, started=_started(store, run_id), finished=contents.final, events=contents.end,
        bytes=size, branch_of=None if header.branch is None else str(header.branch["run"]), labels=labels,
        problem=None, figures=figures,
    )  # fmt: skip


def _scheduler(header: Header) -> str | None:
    """The scheduler of a queue run, with its placement on nodes or over sites."""
    if header.policy != QUEUE:
        return None
    choices = header.world["scenario"][QUEUE]
    return ", ".join(filter(None, (choices["policy"], choices.get("placement"))))


def _window(header: Header) -> str:
    return str(header.world["window"])


def _started(store: Path, run_id: str) -> str:
    began = datetime.fromtimestamp(run_index.started_ns(store, run_id) // 10**9, UTC)
    return began.strftime("%Y-%m-%dT%H:%M:%SZ")
