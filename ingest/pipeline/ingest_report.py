"""Results of an ingest, file by file."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from ingest.parsing.reader import Reject

SCHEMA = "twin.ingest/1"


@dataclass(frozen=True, slots=True)
class FileResult:
    """Result of one file (or archive member).

    rows_in = rows stored + rejected, always; a file that was stored before, or is a copy, is `already`, with
    no rows of its own; one that could not be read has a `skipped_reason`.
    """

    path: str
    dataset: str
    reader: str | None = None
    rows_in: int = 0
    stored: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    skipped_reason: str | None = None
    already: bool = False
    examples: tuple[Reject, ...] = ()
    """The first rejects, for the eye; all are in the table `rejects`."""
    undated: bool = False
    """Whether its rows were laid at an arbitrary day, because neither it nor dataset.toml has a date."""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "path": self.path,
            "dataset": self.dataset,
            "reader": self.reader,
            "rows_in": self.rows_in,
            "stored": self.stored,
            "rejected": self.rejected,
            "skipped": self.skipped_reason,
            "already": self.already,
            "undated": self.undated,
            "examples": [asdict(reject) for reject in self.examples],
        }


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Results of an ingest, file by file."""

    files: tuple[FileResult, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    """Assumptions of derived data sets, and sets without dates, one sentence each."""
    plugin_problems: tuple[str, ...] = ()
    """Plugins that are left out, one sentence each; among the notes of the JSON form."""
    rejected_sets: tuple[str, ...] = ()
    """Data sets of which the lake holds nothing but rejects."""

    @property
    def rows(self) -> dict[str, int]:
        """Rows added to each table."""
        total: Counter[str] = Counter()
        for result in self.files:
            total.update(result.stored)
        return dict(sorted(total.items()))

    @property
    def rejected(self) -> int:
        """Rows rejected."""
        return sum(result.rejected for result in self.files)

    @property
    def empty(self) -> tuple[FileResult, ...]:
        """Files that were read and held no row at all."""
        return tuple(r for r in self.files if not (r.rows_in or r.already or r.skipped_reason))

    @property
    def skipped(self) -> tuple[FileResult, ...]:
        """Files that were not read."""
        return tuple(result for result in self.files if result.skipped_reason)

    def first_reason(self, dataset: str) -> str:
        """Returns place and reason of the first rejected row of a data set, if this ingest read it."""
        for result in self.files:
            if result.dataset == dataset and result.examples:
                first = result.examples[0]
                return f"; the first: {result.path}:{first.row} {first.column}: {first.reason}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values, schema `twin.ingest/1`."""
        return {
            "schema": SCHEMA,
            "files": [result.to_json() for result in self.files],
            "rows": self.rows,
            "rejected": self.rejected,
            "rows_in": sum(result.rows_in for result in self.files),
            "already": sum(result.already for result in self.files),
            "skipped": len(self.skipped),
            "empty": len(self.empty),
            "seconds": round(self.seconds, 3),
            "notes": [*self.notes, *self.plugin_problems],
            "rejected_sets": list(self.rejected_sets),
        }
