"""Record of where the log of each run ended, kept beside the runs: a log that lost its end is noticed.

`<store>/heads/<run>.json` holds the number of events and the chain head of a run when its writer was closed.
It is replaced after the last commit, so the chain of the run holds that head for ever. A run whose writer was
killed has the record of an earlier close, or none. Runs outside a store have none.
"""

from dataclasses import dataclass
from pathlib import Path

from ingest.core import integrity
from ingest.core.durable import DISK, Disk, remove, replace
from ingest.core.errors import DamageError
from replay.log.segment_index import SegmentIndex

FOLDER, RUNS = "heads", "runs"
SCHEMA = "twin.head/1"
TYPES = {"events": int, "head": str}


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Number of events of a run and its chain head when its writer was closed; `file` is the record."""

    file: Path
    events: int
    head: str

    def fault(self, found: SegmentIndex) -> str | None:
        """Returns how the chain contradicts this record; None: it holds the head."""
        if any(one.last_seq + 1 == self.events and one.hash == self.head for one in found.chain):
            return None
        what = "missing" if found.end < self.events else "another history"
        return (
            f"{what}: {self.file} says that the run had {self.events} events; restore the rest, or move that"
            " file away to go on with what is left"
        )


def path_of(run_dir: Path) -> Path | None:
    """Returns the file of the record of a run; None for a run outside a store."""
    store = run_dir.absolute().parent
    return store.parent / FOLDER / f"{run_dir.name}.json" if store.name == RUNS else None


def read(run_dir: Path) -> ChainHead | None:
    """Returns the record of a run; None: there is none.

    Raises:
        DamageError: it is not what was written.
    """
    path = path_of(run_dir)
    data = None if path is None else integrity.read_optional(path)
    if path is None or data is None:
        return None
    fields = integrity.unsealed(data, SCHEMA, TYPES)
    if fields is None:
        raise DamageError(f"{path}: its bytes are not those that were written; delete it and audit the run")
    return ChainHead(path, fields["events"], fields["head"])


def forget(run_dir: Path, *, disk: Disk = DISK) -> None:
    """Removes the record of a run that is gone, before another one takes its name."""
    if (path := path_of(run_dir)) is not None and path.is_file():
        remove(path, disk=disk)


def write(run_dir: Path, events: int, head: str, *, disk: Disk = DISK) -> None:
    """Records the end of a run's log, which is durable already."""
    if (path := path_of(run_dir)) is not None:
        replace(path, record(run_dir.name, events, head), disk=disk)


def record(run: str, events: int, head: str) -> bytes:
    """Returns the bytes of the record."""
    return integrity.sealed({"schema": SCHEMA, "run": run, "events": events, "head": head})
