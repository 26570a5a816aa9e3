"""Text as other systems write it: UTF-16, byte order marks, carriage returns; read, or named."""

from pathlib import Path, PurePath
from typing import Any

import pytest

from ingest.core.errors import UsageError
from ingest.parsing import dataset
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import SMALL_BYTES, Source, from_bytes, from_file
from ingest.pipeline.follow import follow
from ingest.readers import registry
from tests.support.formats import KITS, Kit
from tests.support.hostile import KINDS, DocumentKind, outcome
from twin.scenario import prepare

ENCODED = {
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 big-endian": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "CR": lambda text: text.replace("\n", "\r").encode(),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
}
each = pytest.mark.parametrize("encoded", ENCODED.values(), ids=ENCODED)


def as_text(content: bytes) -> str | None:
    """The text of a file that has more than one line and no carriage returns."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if "\n" in text.strip() and "\r" not in text and "\0" not in text else None


TEXTS = [kit for kit in KITS if as_text(kit.content)]


def rows(kit: Kit, source: Source) -> list[Any]:
    reader = registry.by_name(kit.reader)
    options = DatasetOptions(name="set", timezone="Europe/Berlin", gpu_model="V100-32", gpus_per_node=8)
    assert reader.can_read(PurePath(kit.file), source.head) or kit.toml
    found = []
    for batch in reader.read(source, options):
        columns = {name: getattr(c, "to_pylist", lambda c=c: list(c))() for name, c in batch.columns.items()}
        found.append((batch.table, columns, batch.rows_in, len(batch.rejects)))
    return found


@each
@pytest.mark.parametrize("kit", TEXTS, ids=lambda kit: kit.reader)
def test_a_reader_sees_the_same_rows(kit: Kit, encoded: Any) -> None:
    if kit.reader == "columns":
        pytest.skip("what it reads is said in dataset.toml")
    text = as_text(kit.content) or ""
    plain = rows(kit, from_bytes(kit.file, kit.file, kit.content))
    assert rows(kit, from_bytes(kit.file, kit.file, encoded(text))) == plain


def test_enough_formats_are_text() -> None:
    assert len(TEXTS) >= 25


@each
def test_a_file_too_large_for_memory_is_translated_while_it_is_read(encoded: Any, tmp_path: Path) -> None:
    line = "2024-01-01T00:00:00Z,Zürich,b,1e8,0.1\n"
    text = "ts,src,dst,bandwidth_bps,rtt_s\n" + line * (SMALL_BYTES // len(line) + 1000)
    path = tmp_path / "large.csv"
    path.write_bytes(encoded(text))
    source = from_file(path, "large.csv")
    assert not source.small
    with source.open() as stream:
        found = stream.read().removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    assert found == text.encode() and source.head.decode("utf-8-sig", "ignore").startswith("ts,src")


@pytest.mark.parametrize("content", [b"\x80\x04\r\r.", b"a\x00\rb", b"PAR1\r\x01", b"a\r\nb\r", b"\xff\r"])
def test_what_is_no_text_stays_as_it_is(content: bytes) -> None:
    assert from_bytes("x", "x", content).data() == content


@each
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.name != "plan.json"], ids=lambda kind: kind.name
)
def test_settings_and_cases_are_read(kind: DocumentKind, encoded: Any, tmp_path: Path) -> None:
    for good in kind.good:
        found = outcome(kind, encoded(good.decode()), tmp_path)
        assert found.what == "accepted", found


def test_what_cannot_be_decoded_says_what_to_do(tmp_path: Path) -> None:
    for content, says in (
        ("name: é\n".encode("latin-1"), "save it as UTF-8"),
        ("name: a\n".encode("utf-16-le"), "save it as UTF-8"),  # without a mark
        (b"name: a\0\n", "control character"),
        (b"\xff\xfen", "save it as UTF-8"),
        (b"#" * (1024**2 + 1), "larger than 1 MiB"),
    ):
        for name, read in (
            ("own.yaml", lambda path: prepare.load(str(path))),
            (dataset.FILE_NAME, lambda path: dataset.options(path.parent)),
        ):
            path = tmp_path / name
            path.write_bytes(content)
            with pytest.raises(UsageError, match=says) as caught:
                read(path)  # type: ignore[no-untyped-call]
            assert str(path) in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_utf_16_is_not_followed_and_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "dataset.toml").write_text('reader = "columns"\ntable = "link_samples"\n')
    text = "ts,src,dst,bandwidth_bps\n2024-01-01T00:00:00Z,a,b,1e8\n"
    (folder / "a.csv").write_bytes(text.encode("utf-16"))
    done = follow([folder], tmp_path / "store", polls=1)
    assert any("UTF-16 cannot be followed" in why for why in done.skipped.values())
    assert done.rows == 0
