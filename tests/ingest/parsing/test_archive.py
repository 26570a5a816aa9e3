"""Archives are read in place, whole or not at all, and never trusted."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from ingest.core.errors import InputError
from ingest.lake import duckdb_views
from ingest.parsing import archive
from ingest.pipeline.ingest import ingest
from tests.support.formats import LINKS, RUN, iperf_bytes, lines, link, tarred, zipped
from tests.support.memory import bounded_memory

CSV = lines(LINKS, link(), link())


def held(path: Path) -> dict[str, bytes]:
    return {source.name: source.data() for source in archive.contents(path, path.name).sources()}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tar.gz", tarred({"x/l.csv": CSV})),
        ("a.tgz", tarred({"x/l.csv": CSV})),
        ("a.tar", tarred({"x/l.csv": CSV}, "w:")),
        ("a.tar.xz", tarred({"x/l.csv": CSV}, "w:xz")),
        ("a.tar.bz2", tarred({"x/l.csv": CSV}, "w:bz2")),
        ("a.zip", zipped({"x/l.csv": CSV})),
    ],
)
def test_every_kind_of_archive_is_read(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert held(tmp_path / name) == {f"{name}/x/l.csv": CSV}


def test_members_that_are_no_data_are_left_out(tmp_path: Path) -> None:
    content = tarred({"._l.csv": b"fork", ".hidden/a.csv": b"x", "__MACOSX/b.csv": b"y", "l.csv": CSV})
    (tmp_path / "a.tar.gz").write_bytes(content)
    assert list(held(tmp_path / "a.tar.gz")) == ["a.tar.gz/l.csv"]


def test_a_name_that_occurs_twice_is_two_files(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for content in (b"first", b"second"):
            info = tarfile.TarInfo("l.csv")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    (tmp_path / "a.tar").write_bytes(buffer.getvalue())
    assert held(tmp_path / "a.tar") == {"a.tar/l.csv": b"first", "a.tar/l.csv#2": b"second"}


@pytest.mark.parametrize("member", ["../out.csv", "/etc/x.csv", "a/../../x.csv", "C:/x.csv", "..\\x.csv"])
@pytest.mark.parametrize("pack", [tarred, zipped])
def test_a_member_that_escapes_condemns_the_archive(tmp_path: Path, member: str, pack) -> None:  # type: ignore[no-untyped-def]
    name = "a.zip" if pack is zipped else "a.tar.gz"
    (tmp_path / name).write_bytes(pack({"good.csv": CSV, member: CSV}))
    with pytest.raises(InputError, match="points outside the archive"):
        archive.contents(tmp_path / name, name)


def test_links_and_devices_are_left_out_and_named(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, kind in (("link", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("pipe", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    (tmp_path / "a.tar.gz").write_bytes(buffer.getvalue())
    found = archive.contents(tmp_path / "a.tar.gz", "a.tar.gz")
    assert [name for name, _ in found.skipped] == ["link", "hard", "pipe"]
    assert list(found.sources()) == []


@pytest.mark.parametrize("kind", ["w:gz", "w:xz", "w:bz2", "w:"])
def test_a_cut_archive_is_found_wherever_it_is_cut(tmp_path: Path, kind: str) -> None:
    content = tarred({f"{n}.csv": CSV * 50 for n in range(3)}, kind)
    whole = len(content) if kind != "w:" else 3 * 512 + 3 * (len(CSV * 50) + 511) // 512 * 512
    for cut in {1, 100, whole // 2, whole - 600 if kind == "w:" else whole - 1}:
        (tmp_path / "a.tar").write_bytes(content[:cut])
        with pytest.raises(InputError, match="cut or damaged"):
            archive.contents(tmp_path / "a.tar", "a.tar")


def test_a_flipped_bit_is_found_by_the_checksum(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(CSV * 1000))
    content[-6] ^= 1
    (tmp_path / "l.csv.gz").write_bytes(bytes(content))
    with pytest.raises(InputError, match="cut or damaged"):
        archive.contents(tmp_path / "l.csv.gz", "l.csv.gz")


@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.zip", "bomb.tar.gz"])
def test_a_bomb_is_refused_without_filling_memory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "RATIO_FLOOR_BYTES", 1 << 20)
    monkeypatch.setattr(archive, "MAX_RATIO", 100)
    zeros = bytes(8 << 20)
    pack = {
        "bomb.csv.gz": gzip.compress,
        "bomb.zip": lambda b: zipped({"b": b}),
        "bomb.tar.gz": lambda b: tarred({"b": b}),
    }
    (tmp_path / name).write_bytes(pack[name](zeros))
    with pytest.raises(InputError, match="refused as a bomb"):
        archive.contents(tmp_path / name, name)


def test_large_members_are_streamed_and_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "KEPT_BYTES", 10)
    monkeypatch.setattr(archive, "SMALL_BYTES", 50)
    content = {"small.csv": b"a,b\n", "large.csv": CSV * 10}
    (tmp_path / "a.tar.gz").write_bytes(tarred(content))
    sources = list(archive.contents(tmp_path / "a.tar.gz", "a.tar.gz").sources())
    for source, (name, expected) in zip(sources, content.items(), strict=True):
        assert source.name == f"a.tar.gz/{name}"
        with source.open() as stream:
            assert stream.read() == expected
    monkeypatch.undo()
    plain = list(archive.contents(tmp_path / "a.tar.gz", "a.tar.gz").sources())
    assert [s.sha256 for s in plain] == [s.sha256 for s in sources]


def test_a_cut_archive_leaves_good_files_and_the_store_alone(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "cut.tar.gz").write_bytes(
        tarred({RUN: iperf_bytes(), "b/" + RUN: iperf_bytes(counted=3)})[:-30]
    )
    with pytest.raises(InputError, match=r"cut\.tar\.gz: the archive is cut"):
        ingest([folder], tmp_path / "store")
    assert not (tmp_path / "store").exists()
    (folder / "links.csv").write_bytes(CSV)
    report = ingest([folder], tmp_path / "store")
    assert [bool(result.skipped_reason) for result in report.files] == [True, False]
    assert duckdb_views.connect(tmp_path / "store").execute(
        "SELECT count(*) FROM link_samples"
    ).fetchone() == (2,)


def test_an_archive_inside_an_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(tarred({"b.tar.gz": tarred({"l.csv": CSV}), "l.csv": CSV}))
    report = ingest([tmp_path / "a.tar.gz"], tmp_path / "store")
    assert [(r.path.rsplit("/", 1)[1], bool(r.skipped_reason)) for r in report.files] == [
        ("b.tar.gz", True),
        ("l.csv", False),
    ]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_announces_gigabytes_is_refused(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 33
    with gzip.open(tmp_path / "a.tar.gz", "wb", 9) as packed:
        packed.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(600):
            packed.write(bytes(1 << 20))
    with pytest.raises(InputError, match="a header of 8,589,934,592 bytes"), bounded_memory(100):
        archive.contents(tmp_path / "a.tar.gz", "a.tar.gz")
