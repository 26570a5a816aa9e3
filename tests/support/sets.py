"""Public data sets in a lake of their own, for tests that look at the rows."""

from pathlib import Path
from typing import Any

from ingest.lake import duckdb_views
from ingest.pipeline.ingest import ingest
from ingest.pipeline.ingest_report import FileResult

PROFILE_SETS = (
    "profiles-sailor",
    "profiles-aceso-v100",
    "profiles-galvatron",
    "profiles-vidur",
    "profiles-perseus",
    "profiles-bytedance-training-trace",
    "profiles-megatron-golden",
)
"""Folders of the sets with profiles of layers, operators and collectives."""


class Sets:
    """Some folders in one lake: what became of each file, and SQL over the rows."""

    def __init__(self, folder: Path, store: Path, *names: str):
        self.folder, self.store = folder, store
        self.report = ingest([folder / name for name in names], store)
        self._sql = duckdb_views.connect(store)

    def files(self, dataset: str) -> list[FileResult]:
        return [file for file in self.report.files if file.dataset == dataset]

    def one(self, sql: str) -> Any:
        """The one row, or its only value."""
        (row,) = self.all(sql)
        return row if len(row) > 1 else row[0]

    def all(self, sql: str) -> list[Any]:
        return self._sql.execute(sql).fetchall()


def data_lines(path: Path) -> int:
    """Lines after the first that are not blank."""
    return sum(1 for line in path.read_text().splitlines()[1:] if line.strip())
