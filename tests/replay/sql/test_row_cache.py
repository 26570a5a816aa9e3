"""Cached rows and the log beside them: what rotted is found, whatever an earlier process has checked."""

import json
import os
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.core import integrity
from ingest.core.errors import DamageError
from replay.sql import views
from replay.sql.query import query
from replay.sql.row_cache import Cache
from tests.support.histories import write


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store in which the finished runs count as large."""
    monkeypatch.setattr("replay.sql.row_cache.LEAST_EVENTS", 100)
    write(tmp_path / "store" / "runs" / "a", policy="mpc")
    write(tmp_path / "store" / "runs" / "b", policy="static", flush_events=50)
    return tmp_path / "store"


def rows(store: Path, text: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query(store, text).to_pylist()]


def test_what_two_processes_wrote_is_known_to_both(large: Path) -> None:
    one, two = Cache(large, print), Cache(large, print)
    for name, cache in (("a", one), ("b", two)):
        rows_of_run = partial(pa.RecordBatchReader.from_batches, pa.schema([]), [])
        assert cache.kept(name, "head", views.LINKS, rows_of_run)
    one.save()
    two.save()
    files = json.loads((large / "cache" / "verified.json").read_bytes())["files"]
    assert {key.split("/")[0] for key in files} == {"a", "b"}
    assert Cache(large, print).faults() == {}


@pytest.mark.parametrize("rotten", ["runs", "cache"])
def test_bits_that_rot_without_a_change_of_status_are_found(
    large: Path, monkeypatch: pytest.MonkeyPatch, rotten: str
) -> None:
    """What an earlier process has checked is not trusted by the next one, whatever size and times say."""
    text = "SELECT count(*), max(bandwidth_bps), min(seq) FROM links"
    expected = rows(large, text)
    lstat, seen = Path.lstat, dict[Path, os.stat_result]()
    monkeypatch.setattr(Path, "lstat", lambda path: seen.setdefault(path, lstat(path)))
    pattern = "a/links-*.parquet" if rotten == "cache" else "a/*.parquet"
    for path in (large / rotten).glob(pattern):
        monkeypatch.setattr(integrity, "_checked", {})  # another process
        assert rows(large, text) == expected
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
        monkeypatch.setattr(integrity, "_checked", {})
        if rotten == "cache":
            assert rows(large, text) == expected
        else:
            with pytest.raises(DamageError, match=path.name):
                query(large, text)
            data[100] ^= 1
            path.write_bytes(data)


@pytest.mark.parametrize("place", ["directory", "link"])
def test_a_cached_file_that_is_no_file_is_passed_over(large: Path, tmp_path: Path, place: str) -> None:
    text = "SELECT count(*), max(bandwidth_bps), min(seq) FROM links"
    expected = rows(large, text)
    for path in [*(large / "cache").rglob("*links-*.parquet"), large / "cache" / "verified.json"]:
        path.unlink()
        if place == "directory":
            path.mkdir()
        else:
            path.symlink_to(tmp_path / "nowhere")
        assert rows(large, text) == expected
