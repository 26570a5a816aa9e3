"""What tests of readers share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.lake import duckdb_views
from ingest.pipeline.ingest import ingest

Rows = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def put(tmp_path: Path) -> Callable[[dict[str, bytes]], Rows]:
    """Ingest files as data set `set`; gives a function from SQL to rows."""

    def ingested(files: dict[str, bytes]) -> Rows:
        for name, content in files.items():
            path = tmp_path / "set" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        ingest([tmp_path / "set"], tmp_path / "store")
        return lambda sql: duckdb_views.connect(tmp_path / "store").execute(sql).fetchall()

    return ingested
