"""Lakes of small files: what goes in, what lies there, and a disk that fills up meanwhile."""

from pathlib import Path

import pytest

from ingest.core import durable
from ingest.lake import duckdb_views


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files into a folder, by their names in it; the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def count(store: Path, table: str = "link_samples") -> int:
    """Rows of a table of the lake."""
    row = duckdb_views.connect(store).execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


def tree(store: Path) -> dict[str, bytes]:
    """Every file of a store, by its name in it."""
    return {str(p.relative_to(store)): p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()}


class FullDisk(durable.Disk):
    """A disk that takes so many links and no more."""

    def __init__(self, links: int):
        self.left = links

    def link(self, source: Path, target: Path) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(28, "No space left on device")
        super().link(source, target)


def fill_disk(monkeypatch: pytest.MonkeyPatch, links: int) -> None:
    """From now on the disk takes so many links and no more."""
    monkeypatch.setattr(durable.put_file, "__kwdefaults__", {"disk": FullDisk(links)})
    monkeypatch.setattr(durable.put, "__kwdefaults__", {"disk": FullDisk(links), "idempotent": False})
