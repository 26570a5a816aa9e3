"""`twin ingest --explain FILE`: look and reader of a file, five of its rows, a mapping to start from."""

import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ingest.core import config
from ingest.core.errors import InputError, TwinError, UsageError
from ingest.core.scratch import Scratch
from ingest.lake import duckdb_views
from ingest.lake.schema import TABLES
from ingest.mapping import drafting
from ingest.mapping.nearest import nearest
from ingest.mapping.sniffing import look
from ingest.parsing import archive, dataset
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import Source, from_file
from ingest.pipeline.ingest import ingest_sources
from ingest.readers import registry

ROWS = 5
SCHEMA = "twin.explain/1"


@dataclass(frozen=True, slots=True)
class FileExplanation:
    """Everything known of one file; `rows` are the first of its table as they would be stored."""

    path: str
    looks: str
    reader: str | None
    why_not: str
    nearest: str
    draft: tuple[str, ...]
    unmapped: tuple[str, ...]
    table: str
    rows: tuple[dict[str, Any], ...]
    rejected: int
    refused: str
    """Why the rows could not be made, by the reader or under the draft."""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"schema": SCHEMA, **asdict(self)}


def explain(path: Path) -> FileExplanation:
    """Returns what is known of a file; nothing is stored.

    Raises:
        UsageError: it is no file, or its dataset.toml is wrong.
        InputError: it cannot be read.
    """
    if not path.is_file():
        raise UsageError(f"{path}: not a file; --explain looks at one file")
    folder = next(
        (p for p in path.resolve().parents if (p / dataset.FILE_NAME).is_file()), path.resolve().parent
    )
    options = dataset.options(folder)
    source = _source(path, path.resolve().relative_to(folder).as_posix())
    seen = look(source.head, source.data() if source.small else None)
    reader, why_not = registry.find(source.path, source.head, options)
    made = drafting.draft(seen) if seen.names else None
    lines = (
        drafting.toml(seen, made)
        if reader is None and seen.form in ("CSV", "JSON", "NDJSON", "Parquet")
        else []
    )
    if lines:
        options = config.parse(
            DatasetOptions, tomllib.loads("\n".join(lines)) | {"name": options.name}, source="the draft"
        )
    table, rows, rejected, refused = _tried(source, options) if reader or lines else ("", [], 0, "")
    return FileExplanation(
        str(path), seen.sentence(), reader.name if reader else None, why_not, nearest(seen), tuple(lines),
        tuple(drafting.unmapped(seen, made)) if lines else (), table, tuple(rows), rejected, refused,
    )  # fmt: skip


def _source(path: Path, name: str) -> Source:
    if not archive.is_archive(path):
        return from_file(path, name)
    for source in archive.contents(path, name).sources():
        return source
    raise InputError(f"{path}: an archive without a file to read; give the file itself")


def _tried(source: Source, options: DatasetOptions) -> tuple[str, list[dict[str, Any]], int, str]:
    """Table, first rows, rejects, and what refused the file, as an ingest of it alone would have it."""
    with Scratch() as scratch:
        store = scratch.path
        if store is None:
            raise UsageError("--explain needs a folder for temporary files: free space, or set TMPDIR")
        try:
            (result,) = ingest_sources(options, [source], store)
        except TwinError as error:
            return "", [], 0, str(error)
        table = max(result.stored, key=lambda name: result.stored[name], default="")
        if not table:
            reasons = [f"row {r.row} {r.column}: {r.reason}" for r in result.examples]
            return "", [], result.rejected, result.skipped_reason or "; ".join(reasons) or "it has no rows"
        names = [name for name in TABLES[table].names if name not in ("dataset", "source_file")]
        listed = ", ".join(f'"{name}"' for name in names)
        sql = f"SELECT {listed} FROM {table} ORDER BY source_row LIMIT {ROWS}"
        found: pa.Table = duckdb_views.connect(store).sql(sql).to_arrow_table()
    rows = [
        {name: _plain(value) for name, value in row.items() if value is not None} for row in found.to_pylist()
    ]
    return table, rows, result.rejected, ""


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else str(value)
