"""One segment: manifest and data, and what is refused. Damage in all its forms is in tests/crash."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ingest.errors import DamageError, ExistsError
from replay import segment
from replay.events import MAX_INTEGER
from replay.segment import COMMITTED, GENESIS, Manifest
from replay.streams import Streams

THROUGH = Streams()
ROWS = [
    (0, 0, "link_failed", 1, "", '{"dst":1,"src":0}', "{}"),
    (1, 5, "link_restored", 1, "job é", '{"dst":1,"src":0}', '{"latency_s":0.5}'),
]


def test_a_segment_reads_back_as_it_was_written(tmp_path: Path) -> None:
    manifest = segment.commit(tmp_path, ROWS, GENESIS, THROUGH, final=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020d}.json", f"{0:020d}.parquet"]
    assert segment.read_manifest(tmp_path / manifest.name) == manifest
    table = segment.read_rows(tmp_path, manifest.piece)
    assert table.schema == segment.SCHEMA
    assert list(segment.rows_of(table)) == ROWS
    assert segment.checked(tmp_path, manifest.piece) == tmp_path / manifest.data_name


def test_the_manifest_says_what_is_in_the_data(tmp_path: Path) -> None:
    manifest = segment.commit(tmp_path, ROWS, GENESIS, THROUGH, final=True)
    data = (tmp_path / manifest.data_name).read_bytes()
    assert manifest.sha256 == hashlib.sha256(data).hexdigest()
    assert (manifest.size_bytes, manifest.rows, manifest.last_seq, manifest.final) == (len(data), 2, 1, True)
    assert manifest.hash == hashlib.sha256((tmp_path / manifest.name).read_bytes()).hexdigest()


def test_equal_rows_give_equal_bytes() -> None:
    assert segment.encode(ROWS) == segment.encode(list(ROWS))


@pytest.mark.parametrize("rows", [segment.WORTH_COMPRESSING - 1, segment.WORTH_COMPRESSING])
def test_many_events_are_compressed_few_are_not_and_both_read_back(tmp_path: Path, rows: int) -> None:
    many = [(n, n, "link_failed", 1, "", '{"dst":1,"src":0}', "{}") for n in range(rows)]
    manifest = segment.commit(tmp_path, many, GENESIS, THROUGH, final=False)
    assert list(segment.rows_of(segment.read_rows(tmp_path, manifest.piece))) == many
    column = pq.ParquetFile(tmp_path / manifest.data_name).metadata.row_group(0).column(5)
    assert column.compression == ("ZSTD" if rows >= segment.WORTH_COMPRESSING else "UNCOMPRESSED")


def test_a_segment_is_never_written_twice(tmp_path: Path) -> None:
    segment.commit(tmp_path, ROWS, GENESIS, THROUGH, final=False)
    with pytest.raises(ExistsError):
        segment.commit(tmp_path, ROWS, GENESIS, THROUGH, final=False)


@pytest.mark.parametrize(
    "name", ["00000000000000000000.json", "00000000000000000000.parquet", "99999999999999999999.json"]
)
def test_committed_names(name: str) -> None:
    assert COMMITTED.fullmatch(name)


@pytest.mark.parametrize(
    "name",
    [
        ".00000000000000000000.json.1-0.tmp",
        ".tmp-00000000000000000000.json",
        "00000000000000000000.json.tmp",
        "0000000000000000000.json",
        "000000000000000000000.json",
        "00000000000000000000.json\n",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.json",
        "00000000000000000000.JSON",
    ],
)
def test_every_other_name_is_not(name: str) -> None:
    assert not COMMITTED.fullmatch(name)


def test_a_manifest_under_another_name_is_damage(tmp_path: Path) -> None:
    manifest = Manifest(5, 6, 2, 10, "a" * 64, "b" * 64, "c" * 64, False, "d" * 64)
    (tmp_path / f"{4:020d}.json").write_bytes(manifest.text())
    with pytest.raises(DamageError, match="not a manifest that was written under this name"):
        segment.read_manifest(tmp_path / f"{4:020d}.json")
    with pytest.raises(FileNotFoundError):
        segment.read_manifest(tmp_path / f"{5:020d}.json")


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"null", b"[]", b"7", b'{"check":1}', b"\xff", b"[" * 100_000, b'{"final":1,"check":2}'],
)
def test_anything_else_is_no_manifest(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / f"{0:020d}.json"
    path.write_bytes(text)
    with pytest.raises(DamageError, match="not a manifest"):
        segment.read_manifest(path)


@pytest.mark.parametrize(
    ("changes", "sound"),
    [
        ({}, True),
        ({"size_bytes": 1}, True),
        ({"size_bytes": 0}, False),
        ({"first_seq": -1, "last_seq": 0, "rows": 2}, False),
        ({"first_seq": 1, "last_seq": 0, "rows": 0}, False),
        ({"first_seq": MAX_INTEGER, "last_seq": MAX_INTEGER, "rows": 1}, True),
        ({"first_seq": MAX_INTEGER + 1, "last_seq": MAX_INTEGER + 1, "rows": 1}, False),
        ({"rows": 2}, False),
        ({"final": 1}, False),
        ({"stream": "0" * 63}, False),
    ],
)
def test_a_manifest_is_one_up_to_the_very_bounds(changes: dict[str, Any], sound: bool) -> None:
    digests = dict.fromkeys(("sha256", "previous", "stream", "walls"), "0" * 64)
    counts = {"first_seq": 0, "last_seq": 0, "rows": 1, "size_bytes": 9}
    fields = {**digests, **counts, "final": False, "schema": segment.SCHEMA_NAME, **changes}
    assert (Manifest.of_fields(fields) is not None) == sound
