"""Every reader against malformed files: accepted or rejected with a reason, never a crash, nothing lost.

`TWIN_FUZZ=5000` sets the examples of every reader's random damage; the default keeps the suite short.
"""

import os
import re
from pathlib import Path, PurePath

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.core.errors import InputError
from ingest.lake import duckdb_views
from ingest.lake.part_writer import in_time_order
from ingest.lake.schema import TABLES
from ingest.parsing import dataset
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import identified
from ingest.parsing.source import HEAD_BYTES, from_bytes
from ingest.pipeline.ingest import ingest
from ingest.pipeline.transaction import Transaction
from ingest.readers import registry
from tests.support.formats import KITS, Kit
from tests.support.malformed import NUMBERS, TIMES, mutants
from tests.support.memory import bounded_memory
from tests.support.tally import tally

EXAMPLES = int(os.environ.get("TWIN_FUZZ", "25"))
MOST_MIB = 300
"""By how much a reader may raise the memory of the process, whatever it is given."""
each = pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.reader)


def folder_of_mutants(kit: Kit, root: Path) -> int:
    """All mutants as files of one data set whose reader is named, so that none is merely not recognised."""
    made = mutants(kit.content)
    for number, mutant in enumerate(made):
        path = root / f"{number:03d}" / f"{kit.file}{mutant.packed}"
        path.parent.mkdir(parents=True)
        path.write_bytes(mutant.content)
    stated = f'reader = "{kit.reader}"\ntimezone = "Europe/Berlin"\n{kit.toml}\n'
    (root / dataset.FILE_NAME).write_text(stated)
    return len(made)


@each
def test_every_malformed_file_is_accounted_for(kit: Kit, tmp_path: Path) -> None:
    count = folder_of_mutants(kit, tmp_path / "set")
    with bounded_memory(MOST_MIB):
        report = ingest([tmp_path / "set"], tmp_path / "store")
    assert len(report.files) >= count >= 40
    tally("malformed files", count)
    for result in report.files:
        assert result.rows_in == sum(result.stored.values()) + result.rejected, result.path
        assert result.skipped_reason != "", result.path
    connection = duckdb_views.connect(tmp_path / "store")
    stored = {t: connection.execute(f"SELECT count(*) FROM {t}").fetchone() for t in TABLES}
    rejected = stored.pop("rejects", None)
    assert {table: row[0] for table, row in stored.items() if row and row[0]} == report.rows
    assert rejected == (report.rejected,)
    assert connection.execute("SELECT count(*) FROM rejects WHERE trim(reason) = ''").fetchone() == (0,)
    for table, schema in TABLES.items():
        for column in schema:
            if pa.types.is_floating(column.type):
                wrong = f'SELECT count(*) FROM {table} WHERE NOT isfinite("{column.name}")'
                assert connection.execute(wrong).fetchone() == (0,), (table, column.name)


@each
def test_every_malformed_file_is_recognised_or_refused(kit: Kit) -> None:
    for mutant in mutants(kit.content):
        head = mutant.content[:HEAD_BYTES]
        reader, why_not = registry.find(PurePath(kit.file), head, DatasetOptions(name="set"))
        assert (reader is None) == bool(why_not), mutant.what


PIECES = [
    *(value.encode() for value in [*NUMBERS.values(), *TIMES.values()] if len(value) < 100),
    *(b'"', b"'", b",", b";", b"\n", b"\r", b"\t", b"\0", b"\xff", b"{", b"}", b"[", b"]", b":", b"\\"),
    *(b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\\ud800", b"1e308", b"-0", b"99999999999999999999", b"{}", b"[]"),
]
PLACE = st.integers(0, 2**20)
WORD, WORDS = -1, re.compile(rb'[^\s,;:="|(){}<>\[\]]+')
"""In place of a count of bytes: the whole word, so that the file keeps its form."""
DAMAGE = st.lists(
    st.one_of(
        st.tuples(PLACE, st.just(WORD), st.sampled_from(PIECES)),
        st.tuples(PLACE, st.integers(0, 6), st.sampled_from(PIECES)),
        st.tuples(PLACE, st.integers(0, 3), st.binary(max_size=4)),
        st.tuples(PLACE, st.integers(0, 200), st.just(b"")),
    ),
    min_size=1,
    max_size=5,
)


def damaged(content: bytes, damage: list[tuple[int, int, bytes]]) -> bytes:
    """At each place some bytes, or a word, replaced by others."""
    spoilt = bytearray(content)
    for place, gone, piece in damage:
        at = place % (len(spoilt) + 1)
        if gone == WORD and (words := [match.span() for match in WORDS.finditer(spoilt)]):
            at, end = words[place % len(words)]
            spoilt[at:end] = piece
        else:
            spoilt[at : at + max(gone, 0)] = piece
    return bytes(spoilt)


def check_memory_only(kit: Kit, content: bytes, store: Path) -> None:
    """What `ingest` does with one file, up to the point where it would be written."""
    reader = registry.by_name(kit.reader)
    registry.find(PurePath(kit.file), content[:HEAD_BYTES], DatasetOptions(name="set"))
    unit = Transaction(store, DatasetOptions(name="set", timezone="Europe/Berlin", gpu_model="V100-32"))
    try:
        taken = unit.take(identified(from_bytes(kit.file, kit.file, content), reader), reader)
    except InputError as error:
        assert str(error)
        return
    unit._convert()
    assert taken.rows_in == taken.rows.total() + taken.rejected
    assert len(unit._rejects.table("set", [kit.file], [taken.ingest_id])) == taken.rejected
    for table, chunks in unit._chunks.items():
        part = in_time_order(table, unit._finisher(table, chunks)())
        assert len(part) == taken.rows[table]
        for column in part.columns:
            assert not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column)).as_py() is not False
    unit.give_up()


@each
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(damage=DAMAGE)
def test_random_damage_never_escapes(kit: Kit, damage: list, tmp_path_factory) -> None:  # type: ignore[no-untyped-def,type-arg]
    check_memory_only(kit, damaged(kit.content, damage), tmp_path_factory.getbasetemp() / "never-written")
    tally("damaged files", 1)
