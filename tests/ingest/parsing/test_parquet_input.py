"""Parquet files that decode to far more than they are: refused before a row is taken, with bounded memory."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.core.errors import InputError
from ingest.mapping import text_rows
from ingest.parsing import archive, parquet_input
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import Source, from_file
from tests.support.memory import bounded_memory

LONG = "x" * (1 << 20)


def written(path: Path, columns: dict[str, pa.Array], groups: int = 1, **options: object) -> Source:
    table = pa.table(columns)
    with pq.ParquetWriter(path, table.schema, compression="zstd", **options) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return from_file(path, path.name)


def texts(count: int, kind: pa.DataType) -> dict[str, pa.Array]:
    return {"src": pa.array([LONG] * count, kind), "bandwidth_bps": pa.array([1.0] * count)}


BOMBS = {
    "one text, repeated by a dictionary": (texts(100, pa.string()), 4, {}),
    "large strings": (texts(100, pa.large_string()), 4, {}),
    "texts without a dictionary": (texts(280, pa.string()), 1, {"use_dictionary": False}),
    "texts that share a prefix": (
        texts(400, pa.string()), 1,
        {"use_dictionary": False, "column_encoding": {"src": "DELTA_BYTE_ARRAY"}},
    ),
    "values of a fixed length": (texts(100, pa.binary(1 << 20)), 4, {}),
    "rows of one number": ({"ts": pa.array([0], pa.int64()).take(pa.array([0] * 1_000_000))}, 20, {}),
    "rows without a value": ({"ts": pa.nulls(1_000_000)}, 20, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_a_row_is_read(tmp_path: Path, name: str) -> None:
    columns, groups, options = BOMBS[name]
    source = written(tmp_path / "bomb.parquet", columns, groups, **options)
    assert source.size_bytes < 300_000
    refused = pytest.raises(InputError, match=r"after decoding, more than 1,000 times .* refused as a bomb")
    with refused, bounded_memory(700):
        next(parquet_input.batches(source))


def test_a_bomb_inside_an_archive_is_measured_by_the_archive(tmp_path: Path) -> None:
    table = pa.table({"ts": pa.array(range(1000))}).take(pa.array([0] * 1_000_000))
    plain = tmp_path / "rows.parquet"
    with pq.ParquetWriter(plain, table.schema, compression="none", write_statistics=False) as writer:
        for _ in range(40):
            writer.write_table(table, row_group_size=1000)
    with gzip.open(tmp_path / "rows.parquet.gz", "wb") as packed:
        packed.write(plain.read_bytes())
    (member,) = archive.contents(tmp_path / "rows.parquet.gz", "rows.parquet.gz").sources()
    assert sum(len(batch) for batch in parquet_input.batches(from_file(plain, plain.name))) == 40_000_000
    with pytest.raises(InputError, match="refused as a bomb"):
        next(parquet_input.batches(member))


def test_no_batch_holds_more_text_than_it_may(tmp_path: Path) -> None:
    source = written(tmp_path / "long.parquet", texts(100, pa.string()))
    sizes = [len(batch) for batch in parquet_input.batches(source)]
    assert sum(sizes) == 100 and max(sizes) == parquet_input.BATCH_BYTES // len(LONG)
    decoded = text_rows.frame(source, DatasetOptions(name="x"))
    assert sum(len(block.columns["src"]) for block in decoded.blocks) == 100


def test_a_row_is_no_longer_than_a_line_of_a_csv(tmp_path: Path) -> None:
    source = written(tmp_path / "row.parquet", {"src": pa.array(["x" * (9 << 20)])})
    with pytest.raises(InputError, match="a row longer than 8 MiB"):
        next(parquet_input.batches(source))


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", None])
def test_every_encoding_of_texts_gives_the_same_rows(tmp_path: Path, encoding: str | None) -> None:
    values = [None if i % 7 == 0 else f"a-{i % 13}" for i in range(1000)]
    source = written(
        tmp_path / "rows.parquet", {"src": pa.array(values), "a.b": pa.array(range(1000))}, 2,
        use_dictionary=encoding is None,
        column_encoding=None if encoding is None else {"src": encoding, "a.b": "PLAIN"},
    )  # fmt: skip
    blocks = list(text_rows.frame(source, DatasetOptions(name="x")).blocks)
    assert [value for block in blocks for value in block.columns["src"].to_pylist()] == values * 2
    assert [row for block in blocks for row in block.rows.to_pylist()] == list(range(1, 2001))


def test_ten_thousand_columns_are_read_in_short_batches(tmp_path: Path) -> None:
    source = written(tmp_path / "wide.parquet", {f"c{i}": pa.array([1] * 3000) for i in range(2000)})
    assert max(len(batch) for batch in parquet_input.batches(source)) * 2000 <= parquet_input.BATCH_CELLS


@pytest.mark.shared
def test_no_measured_file_comes_near_the_limit(shared: Path) -> None:
    files = sorted(shared.rglob("*.parquet"))
    assert files
    for path in files:
        source = from_file(path, path.name)
        rows = sum(len(batch) for batch in parquet_input.batches(source))
        assert rows == pq.ParquetFile(path).metadata.num_rows
