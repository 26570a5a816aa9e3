"""One segment: manifest and data, and what is refused. Damage in all its forms is in tests/crash."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.core.errors import DamageError, ExistsError
from replay.log import segment
from replay.log.events import MAX_INTEGER
from replay.log.running_digests import Streams
from replay.log.segment import COMMITTED, GENESIS, Piece, SegmentManifest

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


@pytest.mark.parametrize("rows", [31, 32])
def test_many_events_are_compressed_few_are_not_and_both_read_back(tmp_path: Path, rows: int) -> None:
    many = [(n, n, "link_failed", 1, "", '{"dst":1,"src":0}', "{}") for n in range(rows)]
    manifest = segment.commit(tmp_path, many, GENESIS, THROUGH, final=False)
    assert list(segment.rows_of(segment.read_rows(tmp_path, manifest.piece))) == many
    column = pq.ParquetFile(tmp_path / manifest.data_name).metadata.row_group(0).column(5)
    assert column.compression == ("ZSTD" if rows >= 32 else "UNCOMPRESSED")


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
    manifest = SegmentManifest(5, 6, 2, 10, "a" * 64, "b" * 64, "c" * 64, False, "d" * 64)
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
        ({"rows": True}, False),
        ({"walls": "0" * 63}, False),
        ({"walls": None}, False),
        ({"walls": None, "schema": segment.OLDER_SCHEMA}, False),  # the older form has no such field
        ({"schema": segment.OLDER_SCHEMA}, False),
        ({"schema": "twin.segment/3"}, False),
    ],
)
def test_a_manifest_is_one_up_to_the_very_bounds(changes: dict[str, Any], sound: bool) -> None:
    digests = dict.fromkeys(("sha256", "previous", "stream", "walls"), "0" * 64)
    counts = {"first_seq": 0, "last_seq": 0, "rows": 1, "size_bytes": 9}
    fields = {**digests, **counts, "final": False, "schema": segment.SCHEMA_NAME, **changes}
    assert (SegmentManifest.of_fields(fields) is not None) == sound


def test_a_manifest_of_the_older_form_is_read(tmp_path: Path) -> None:
    older = SegmentManifest(
        0, 1, 2, 10, "a" * 64, GENESIS, "c" * 64, False, walls=None, schema=segment.OLDER_SCHEMA
    )
    (tmp_path / older.name).write_bytes(older.text())
    assert segment.read_manifest(tmp_path / older.name) == older and b"walls" not in older.text()


def test_no_column_of_a_segment_may_lack_a_value(tmp_path: Path) -> None:
    manifest = segment.commit(tmp_path, ROWS, GENESIS, THROUGH, final=False)
    stored = pq.read_schema(tmp_path / manifest.data_name)
    assert [(field.name, field.nullable) for field in stored] == [
        (name, False) for name in ("seq", "sim_ns", "type", "version", "job", "payload", "wall")
    ]


def of_other_columns(table: pa.Table) -> pa.Table:
    return table.rename_columns([*table.column_names[:-1], "walls"])


def with_an_event_less(table: pa.Table) -> pa.Table:
    return table.slice(0, 1)


def in_another_order(table: pa.Table) -> pa.Table:
    return table.take([1, 0])


@pytest.mark.parametrize("other", [of_other_columns, with_an_event_less, in_another_order])
def test_data_that_are_not_the_events_promised_are_damage(
    tmp_path: Path, other: Callable[[pa.Table], pa.Table]
) -> None:
    data = segment.encode_table(other(pq.read_table(pa.BufferReader(segment.encode(ROWS)))))
    (tmp_path / "x.parquet").write_bytes(data)
    piece = Piece("x.parquet", 0, 1, len(data), hashlib.sha256(data).hexdigest(), "x.json")
    with pytest.raises(DamageError, match="does not hold the events 0 to 1"):
        segment.read_rows(tmp_path, piece)


def test_a_data_file_is_the_one_of_its_manifest_or_damage(tmp_path: Path) -> None:
    manifest = segment.commit(tmp_path, ROWS, GENESIS, THROUGH, final=False)
    path = tmp_path / manifest.data_name
    whole = path.read_bytes()
    path.write_bytes(whole + b"x")
    with pytest.raises(DamageError, match=f"{len(whole) + 1} bytes, its manifest says {len(whole)}"):
        segment.checked(tmp_path, manifest.piece)
    path.write_bytes(bytes(len(whole)))
    with pytest.raises(DamageError, match="its SHA-256 is not the one in"):
        segment.checked(tmp_path, manifest.piece)
    path.unlink()
    with pytest.raises(DamageError, match=f"missing, though its manifest {manifest.name} is there"):
        segment.checked(tmp_path, manifest.piece)
    path.mkdir()
    with pytest.raises(DamageError, match="not a regular file"):
        segment.checked(tmp_path, manifest.piece)
