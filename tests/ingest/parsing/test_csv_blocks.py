"""CSV by blocks: every record is parsed or rejected, wherever blocks end and whatever cells hold."""

import csv
import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.core.errors import InputError
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.source import Source, from_bytes

NAMES = ["a", "b"]


def source(body: bytes) -> Source:
    return from_bytes("x.csv", "x.csv", b"a,b\n" + body)


def parsed(body: bytes) -> tuple[list[tuple[int, str | None, str | None]], list[tuple[int, str]]]:
    """Rows with their numbers, and rejects, in order."""
    rows, rejects = [], []
    for block in csv_blocks.blocks(source(body)):
        texts = csv_blocks.texts(block, NAMES)
        columns = (texts.rows.to_pylist(), texts.columns["a"].to_pylist(), texts.columns["b"].to_pylist())
        rows += list(zip(*columns, strict=True))
        rejects += [(reject.row, reject.reason) for reject in texts.rejects]
        assert texts.rows_in == len(texts.rows) + len(texts.rejects)
    return rows, rejects


def test_rows_are_numbered_from_one_without_blank_lines() -> None:
    rows, rejects = parsed(b"1,2\n\n3,\n4,5,6\n\n7\n8,9")
    assert rows == [(1, "1", "2"), (2, "3", None), (5, "8", "9")]
    assert [row for row, _ in rejects] == [3, 4]


def test_quotes_commas_and_line_ends_inside_quotes() -> None:
    rows, rejects = parsed(b'"x,y",2\n"two\nlines",3\n"say ""so""",4\r\n')
    assert rows == [(1, "x,y", "2"), (2, "two\nlines", "3"), (3, 'say "so"', "4")]
    assert rejects == []


def test_a_quote_that_is_never_closed_costs_one_record() -> None:
    rows, rejects = parsed(b'1,2\n"3,4\n' + b"5,6\n" * 60)
    assert len(rows) == 61
    assert rejects == [(2, "a quote is not closed")]


def test_quotes_inside_a_cell_are_characters_and_stray_ones_cost_their_record() -> None:
    rows, rejects = parsed(b'5" disk,1\nx"y,"z\n1,2\n"a"b,3\n4,"5"\n')
    assert rows == [(1, '5" disk', "1"), (3, "1", "2"), (5, "4", "5")]
    assert [row for row, _ in rejects] == [2, 4]


wild = st.text(st.sampled_from('ab12,"\n\r \x00é'), max_size=120)


@settings(max_examples=300, deadline=None)
@given(text=wild, size=st.integers(5, 60))
def test_wild_quotes_and_line_ends_add_up(text: str, size: int) -> None:
    before, csv_blocks.BLOCK_BYTES = csv_blocks.BLOCK_BYTES, size
    try:
        rows, rejects = parsed(text.encode())
    finally:
        csv_blocks.BLOCK_BYTES = before
    numbers = sorted([row for row, _, _ in rows] + [row for row, _ in rejects])
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_stray_carriage_return_ends_nothing() -> None:
    assert parsed(b"1\r,2\r\n3,4\n") == ([(1, "1 ", "2"), (2, "3", "4")], [])


def test_bytes_that_are_no_text_cost_their_row_only() -> None:
    rows, rejects = parsed("1,2\n\xe4,3\nä,4\n".encode("latin-1") + "ö,5\n".encode())
    assert rows == [(1, "1", "2"), (4, "ö", "5")]
    assert rejects == [(2, "not UTF-8 text"), (3, "not UTF-8 text")]


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_blocks, "LINE_LIMIT_BYTES", 1000)
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 100)
    with pytest.raises(InputError, match="a line longer"):
        parsed(b"x" * 5000)


def test_the_header() -> None:
    assert csv_blocks.header(b"\xef\xbb\xbf a , b\r\n1,2") == NAMES
    assert csv_blocks.header(b'"a","b"\n') == NAMES
    assert csv_blocks.header(b"\xff\xfea\n") == []
    assert csv_blocks.first_record(b"a,b\n\n1, 2\r\n3,4") == ["1", " 2"]
    assert csv_blocks.first_record(b"a,b") == []


cell = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=6)


@settings(max_examples=100, deadline=None)
@given(table=st.lists(st.tuples(cell, cell), max_size=25), size=st.integers(5, 90))
def test_blocks_of_any_size_give_what_the_standard_library_writes(
    table: list[tuple[str, str]], size: int
) -> None:
    # A record of nothing but blanks between separators is a record; a cell of one blank is not null.
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_MINIMAL).writerows(table)
    before, csv_blocks.BLOCK_BYTES = csv_blocks.BLOCK_BYTES, size
    try:
        rows, rejects = parsed(text.getvalue().encode())
    finally:
        csv_blocks.BLOCK_BYTES = before
    assert rejects == []
    assert [(a or "", b or "") for _, a, b in rows] == table
    assert [row for row, _, _ in rows] == list(range(1, len(table) + 1))


WORDS = ("1", "2.5", " 3 ", "", "  ", "x", "-4", "1e3", "nan", "inf", "1_0", "0x1", "+5", "1e999", "٣")
TIMES = (
    "2024-01-01T00:00:00Z",
    "2024-01-01 00:00:00",
    "2024-01-01T00:00:00.5+02:00",
    "",
    "now",
    "2024-13-01",
)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from(TIMES), st.sampled_from(WORDS)), min_size=1, max_size=200),
    size=st.integers(40, 4000),
)
def test_the_direct_way_and_the_patient_way_give_the_same(rows: list[tuple[str, str]], size: int) -> None:
    body = "".join(f"{a},{b}\n" for a, b in rows).encode()
    columns = [cell_conversion.instant("ts", "a"), cell_conversion.number("bandwidth_bps", "b", 2.0)]
    typed = cell_conversion.Typed("link_samples", NAMES, columns)
    before, csv_blocks.BLOCK_BYTES = csv_blocks.BLOCK_BYTES, size
    try:
        blocks = list(csv_blocks.blocks(source(body)))
    finally:
        csv_blocks.BLOCK_BYTES = before
    for block in blocks:
        direct = typed(block)
        patient = cell_conversion.from_texts("link_samples", csv_blocks.texts(block, NAMES), columns)
        assert direct.rejects == patient.rejects
        assert direct.rows_in == patient.rows_in == len(patient.rejects) + len(patient.columns["source_row"])
        for name, values in patient.columns.items():
            np.testing.assert_array_equal(np.asarray(direct.columns[name]), np.asarray(values))
        places = range(len(direct.columns["source_row"]))
        cells = [[made.raw["bandwidth_bps"][at].as_py() for at in places] for made in (direct, patient)]
        assert cells[0] == cells[1]


def test_only_wanted_columns_are_parsed_and_the_faulty_one_is_found() -> None:
    head = b"c,a,d,b\n"
    block = next(csv_blocks.blocks(from_bytes("x", "x", head + b"?,1,?,2\n?,x,?,3\n")))
    typed = cell_conversion.Typed(
        "link_samples",
        ["c", "a", "d", "b"],
        [cell_conversion.number("rtt_s", "a"), cell_conversion.whole("streams", "b")],
    )
    batch = typed(block)
    assert (batch.columns["rtt_s"].to_pylist(), batch.columns["streams"].to_pylist()) == ([1.0], [2])
    assert [(r.row, r.column, r.raw, r.reason) for r in batch.rejects] == [(2, "a", "x", "not a number")]
    # the faulty column alone is read as text from then on
    assert typed._kinds == {"a": pa.string(), "b": pa.int64()}
