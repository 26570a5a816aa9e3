"""The runs of a store: their ids, their folders, and lookup by id, prefix or `latest`."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ingest.core import names
from ingest.core.errors import NotFoundError, TwinError
from ingest.core.terminal import LONGEST
from replay.log.run_log import RunReader
from replay.store.layout import CHECKPOINTS, RUNS, all_ids, beginning_with, folder
from replay.store.run_header import MADE_BY, STARTED

__all__ = [
    "CHECKPOINTS", "RUNS", "LatestRun", "all_ids", "by_start", "find", "folder", "latest", "made_by",
    "new_id", "same_config",
]  # fmt: skip

LATEST = "latest"
BENCH = "bench"
"""Policy named in the header of a benchmark's log, and what its members say that they were made by."""


def same_config(store: Path, scenario: str, policy: str, seed: int, config_digest: str) -> tuple[str, ...]:
    """Returns the runs whose ids `new_id` made for these values, by number."""
    base = f"{scenario}-{policy}-s{seed}-{config_digest[:8]}"
    numbered = re.compile(re.escape(base) + r"(?:-(\d+))?")
    found = [(int(m[1] or 1), run) for run in beginning_with(store, base) if (m := numbered.fullmatch(run))]
    return tuple(run for _, run in sorted(found))


def new_id(store: Path, scenario: str, policy: str, seed: int, config_digest: str) -> str:
    """Returns `<scenario>-<policy>-s<seed>-<8 hex of the config>`, with -2, -3, ... where it exists.

    Raises:
        UsageError: scenario or policy cannot be part of a path; runs of earlier versions may have such names.
    """
    names.checked(scenario, "scenario name")
    names.checked(policy, "policy name")
    base = f"{scenario}-{policy}-s{seed}-{config_digest[:8]}"
    name, number = base, 1
    while (store / RUNS / name).exists():
        number += 1
        name = f"{base}-{number}"
    return name


def find(store: Path, name: str) -> str:
    """Returns the run with this id, a unique beginning of it, or for `latest` that of `latest`.

    Raises:
        NotFoundError: no run or more than one fits.
    """
    ids = all_ids(store)
    if name in ids:
        return name
    if name == LATEST and ids:
        return latest(store).run_id
    fitting = [run for run in ids if run.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise NotFoundError(
            f"{name}: {len(fitting)} runs begin so: {', '.join(fitting[:5])}; type more of the name"
        )
    close = get_close_matches(name[:LONGEST], [LATEST, *ids] if ids else [], n=1)
    known = f"did you mean {close[0]}?" if close else f"there: {', '.join(ids[:5]) or 'none yet'}"
    raise NotFoundError(f"{name}: no such run in {store / RUNS} ({known}); see `twin runs`")


@dataclass(frozen=True, slots=True)
class LatestRun:
    """The newest finished run of a store, of any kind, and the later runs that are not finished."""

    run_id: str
    unfinished: tuple[str, ...]


def latest(store: Path) -> LatestRun:
    """Returns the finished run that was first started last: a replay, a what-if, a queue, a record, ...

    A damaged run counts, so that damage is noticed.

    Raises:
        NotFoundError: no run is finished.
    """
    unfinished: list[str] = []
    for run in reversed(by_start(store, all_ids(store))):
        if _ended(store, run):
            return LatestRun(run, tuple(unfinished))
        unfinished.append(run)
    newest = f"; the newest is {unfinished[0]}, name it or see `twin runs`" if unfinished else ""
    raise NotFoundError(f"{LATEST}: no run in {store / RUNS} is finished{newest}")


def _ended(store: Path, run: str) -> bool:
    """True if a run is finished, or cannot be read."""
    reader = RunReader(folder(store, run))
    try:
        return bool(reader.manifests()) and reader.finished
    except NotFoundError:  # stopped before anything was stored
        return False
    except TwinError:
        return True


def by_start(store: Path, ids: Iterable[str]) -> tuple[str, ...]:
    """Returns these runs by the time at which they were first started, then by name.

    Resuming, compacting or copying a run does not change its place. A run without a stored start (of older
    versions, or damaged) takes the modification time of its oldest file.
    """
    return tuple(sorted(ids, key=lambda run: (started_ns(store, run), run)))


def started_ns(store: Path, run: str) -> int:
    """Returns when a run was first started, ns since the epoch."""
    run_dir = folder(store, run)
    kept = _wall(run_dir).get(STARTED)
    if isinstance(kept, int):
        return kept
    changed = [run_dir.stat().st_mtime_ns]
    for path in run_dir.iterdir():
        with suppress(FileNotFoundError):  # compacted meanwhile
            changed.append(path.lstat().st_mtime_ns)
    return min(changed)


def _wall(run_dir: Path) -> dict[str, Any]:
    """Returns the wall-clock facts of the first event; none of a run that is damaged or has no event."""
    try:
        first = next(RunReader(run_dir).tables(), None)
        return {} if first is None else dict(json.loads(first["wall"][0].as_py()))
    except (TwinError, ValueError):
        return {}


def made_by(store: Path, run: str) -> str | None:
    """Returns the command that made a run as a part of something larger; None: nothing larger, or unknown."""
    found = _wall(folder(store, run)).get(MADE_BY)
    return found if isinstance(found, str) else None
