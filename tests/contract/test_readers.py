"""What every registered reader must do, whatever its format."""

import gzip
import random
import shutil
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from ingest.core.errors import InputError
from ingest.lake import duckdb_views, lake
from ingest.lake.schema import TABLES
from ingest.parsing.source import HEAD_BYTES
from ingest.pipeline.ingest import ingest
from ingest.pipeline.ingest_report import IngestReport
from ingest.readers import registry
from tests.support.formats import KITS, Kit, tarred

each = pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.reader)
spoilt = pytest.mark.parametrize(
    ("kit", "bad"), [(kit, bad) for kit in KITS for bad in kit.bad], ids=lambda x: getattr(x, "what", None)
)


def read(folder: Path, kit: Kit, content: bytes, store: Path, name: str | None = None) -> IngestReport:
    """Ingest one file of this content as data set `set`."""
    path = folder / "set" / (name or kit.file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if kit.toml:
        (folder / "set" / "dataset.toml").write_text(kit.toml)
    return ingest([folder / "set"], store)


def rows(store: Path, table: str) -> list[tuple[object, ...]]:
    """Rows of a table without the file they came from, in a fixed order."""
    names = ", ".join(f'"{name}"' for name in TABLES[table].names if name != "source_file")
    return duckdb_views.connect(store).execute(f"SELECT {names} FROM {table} ORDER BY ALL").fetchall()


def counted(store: Path) -> dict[str, int]:
    connection = duckdb_views.connect(store)
    found = {t: connection.execute(f"SELECT count(*) FROM {t}").fetchone() for t in TABLES}
    return {table: row[0] for table, row in found.items() if row and row[0]}


Ingested = Callable[[Kit], tuple[Path, IngestReport]]


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """A function of a kit: the folder with its file as `set` and its `store`, which nobody changes, and the
    report. Most tests begin there."""
    made: dict[str, tuple[Path, IngestReport]] = {}

    def of(kit: Kit) -> tuple[Path, IngestReport]:
        if kit.reader not in made:
            folder = tmp_path_factory.mktemp(kit.reader)
            made[kit.reader] = folder, read(folder, kit, kit.content, folder / "store")
        return made[kit.reader]

    return of


def test_every_registered_reader_has_a_kit() -> None:
    assert {reader.name for reader in registry.READERS} == {kit.reader for kit in KITS}
    assert len({reader.name for reader in registry.READERS}) == len(registry.READERS)


@each
def test_only_its_reader_claims_a_file(kit: Kit) -> None:
    head = kit.content[:HEAD_BYTES]
    claims = [r.name for r in registry.READERS if r.can_read(PurePath(kit.file), head)]
    assert claims == [kit.reader]
    assert not registry.by_name(kit.reader).can_read(PurePath("notes.txt"), b"nothing of the kind\n1,2\n")


@each
def test_good_rows_are_stored(kit: Kit, ingested: Ingested) -> None:
    folder, report = ingested(kit)
    (result,) = report.files
    assert (result.reader, result.stored, result.rejected) == (kit.reader, kit.stored, 0)
    assert result.rows_in == sum(kit.stored.values())
    assert counted(folder / "store") == kit.stored
    assert set(kit.stored) <= set(registry.by_name(kit.reader).tables)
    assert lake.verify(folder / "store") == []


@spoilt
def test_bad_rows_are_rejected_with_the_reason(kit: Kit, bad, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (result,) = read(tmp_path, kit, bad.content, tmp_path / "store").files
    assert (sum(result.stored.values()), result.rejected) == (bad.stored, bad.rejected)
    assert result.rows_in == bad.stored + bad.rejected
    kept = (
        duckdb_views.connect(tmp_path / "store").execute("SELECT source_file, reason FROM rejects").fetchall()
    )
    assert len(kept) == bad.rejected == len(result.examples)
    assert all(file == kit.file and bad.reason in reason for file, reason in kept)


@each
def test_an_empty_file_is_named(kit: Kit, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty file"):
        read(tmp_path, kit, b"", tmp_path / "store")
    assert not (tmp_path / "store").exists()


@each
def test_a_cut_file_adds_up_wherever_it_is_cut(kit: Kit, tmp_path: Path) -> None:
    cuts = random.Random(1).sample(range(1, len(kit.content)), 12)
    for number, cut in enumerate(cuts):
        path = tmp_path / "set" / f"{number:02d}" / kit.file
        path.parent.mkdir(parents=True)
        path.write_bytes(kit.content[:cut])
    (tmp_path / "set" / "dataset.toml").write_text(kit.toml)
    try:
        report = ingest([tmp_path / "set"], tmp_path / "store")
    except InputError:  # none of them can be read
        return
    results = [result for result in report.files if result.path.endswith(kit.file)]
    assert len(results) == len(cuts)
    for result in results:
        assert result.rows_in == sum(result.stored.values()) + result.rejected
        assert sum(result.stored.values()) <= sum(kit.stored.values())
        assert result.reader or result.skipped_reason


@each
@pytest.mark.parametrize("packed", ["a.tar.gz", "a.gz"])
def test_an_archive_gives_the_same_rows(kit: Kit, packed: str, tmp_path: Path, ingested: Ingested) -> None:
    if packed == "a.gz":
        content, name = gzip.compress(kit.content), f"{kit.file}.gz"
    else:
        content, name = tarred({kit.file: kit.content}), "a.tar.gz"
    read(tmp_path, kit, content, tmp_path / "store", name)
    for table in kit.stored:
        assert rows(ingested(kit)[0] / "store", table) == rows(tmp_path / "store", table)


@each
def test_a_second_ingest_adds_nothing(kit: Kit, tmp_path: Path, ingested: Ingested) -> None:
    before = copied(ingested(kit)[0], tmp_path)
    (result,) = read(tmp_path, kit, kit.content, tmp_path / "store").files
    assert result.already and result.rows_in == 0 and not result.stored
    assert lake.digest(tmp_path / "store") == before
    assert counted(tmp_path / "store") == kit.stored


@each
def test_a_newer_reader_replaces_the_rows(
    kit: Kit, tmp_path: Path, ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copied(ingested(kit)[0], tmp_path)
    monkeypatch.setattr(type(registry.by_name(kit.reader)), "version", 1000)
    (result,) = read(tmp_path, kit, kit.content, tmp_path / "store").files
    assert result.stored == kit.stored
    assert counted(tmp_path / "store") == kit.stored
    assert lake.digest(tmp_path / "store") != before


def copied(folder: Path, to: Path) -> str:
    """Copy what was ingested; the digest of its lake."""
    shutil.copytree(folder, to, dirs_exist_ok=True)
    return lake.digest(to / "store")


@pytest.mark.parametrize("kit", [kit for kit in KITS if kit.text], ids=lambda kit: kit.reader)
def test_line_ends_and_byte_order_marks_do_not_matter(kit: Kit, tmp_path: Path, ingested: Ingested) -> None:
    plain = kit.content
    variants = {
        "crlf": plain.replace(b"\n", b"\r\n"),
        "mark": b"\xef\xbb\xbf" + plain,
        "no last line end": plain.rstrip(b"\n"),
        "blank lines": plain.replace(b"\n", b"\n\n"),
    }
    for name, content in variants.items():
        read(tmp_path / name, kit, content, tmp_path / name / "store")
        for table in kit.stored:
            assert rows(tmp_path / name / "store", table) == rows(ingested(kit)[0] / "store", table), name


@each
def test_a_reader_of_text_alone_has_no_json(kit: Kit) -> None:
    reader = registry.by_name(kit.reader)
    assert not (getattr(reader, "text_only", False) and kit.content.lstrip()[:1] in (b"{", b"["))
