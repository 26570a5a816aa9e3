"""Rot and lost files in the lake: found before a row of them is read, and never written again."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ingest.core import durable, integrity
from ingest.core.errors import DamageError
from ingest.lake import duckdb_views, lake, manifest_index
from ingest.pipeline.ingest import ingest
from tests.support.formats import LINKS, lines, link


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two data sets, one of two files."""
    for name, count in (("one", 2), ("two", 1)):
        for number in range(count):
            path = tmp_path / name / f"{number}.csv"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(lines(LINKS, *[link(str(number + row)) for row in range(1, 400)]))
        ingest([tmp_path / name], tmp_path / "store")
    return tmp_path / "store"


def flip(path: Path, byte: int) -> None:
    """Turn one bit; size and times of the file stay."""
    before, data = path.stat(), bytearray(path.read_bytes())
    data[byte] ^= 4
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def part_of(store: Path, name: str) -> Path:
    (part,) = (store / "lake/link_samples" / f"dataset={name}").iterdir()
    return part


def manifest_of(store: Path, name: str) -> Path:
    (identity,) = (m.id for m in lake.live(store) if m.dataset == name)
    return store / "lake/manifests" / f"{identity}.json"


def rows(store: Path) -> int:
    with duckdb_views.connect(store) as connection:
        (count,) = connection.execute("SELECT count(*) FROM link_samples").fetchone() or (0,)
    return int(count)


def test_a_flipped_bit_in_a_part_is_found_before_it_is_read(store: Path) -> None:
    part = part_of(store, "one")
    rows(store)
    for byte in range(10, part.stat().st_size, 501):
        flip(part, byte)
        with pytest.raises(DamageError, match=rf"{part.name}: its bytes .*twin traces one --drop"):
            duckdb_views.connect(store)
        flip(part, byte)
    assert rows(store) == 3 * 399


def test_an_ingest_does_not_write_damaged_rows_again(store: Path, tmp_path: Path) -> None:
    part = part_of(store, "one")
    flip(part, 300)
    before = sorted(path for path in store.rglob("*.parquet"))
    (tmp_path / "one/0.csv").write_bytes(lines(LINKS, link("7")))
    with pytest.raises(DamageError, match=f"{part.name}: its bytes"):
        ingest([tmp_path / "one"], store)
    live = {store / "lake" / p.file for m in lake.live(store) for p in m.parts}
    assert live == set(before)
    lake.drop(store, "one")  # the way out that the message names
    ingest([tmp_path / "one"], store)
    assert rows(store) == 2 * 399 + 1


def test_pages_have_checksums_that_are_verified(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(part_of(store, "two").read_bytes())
    group = pq.ParquetFile(copy).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    (rate,) = (column for column in columns if column.path_in_schema == "bandwidth_bps")
    flip(copy, rate.data_page_offset + rate.total_compressed_size - 9)
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(copy, page_checksum_verification=True).read()


@pytest.mark.parametrize("act", ["read", "ingest", "drop"])
def test_a_manifest_that_went_away_is_named_and_its_parts_stay(store: Path, tmp_path: Path, act: str) -> None:
    gone = manifest_of(store, "one")
    part = part_of(store, "one")
    gone.unlink()
    (tmp_path / "two/9.csv").write_bytes(lines(LINKS, link("5")))
    with pytest.raises(DamageError, match=f"{gone.name}: missing, though .* ingest one again"):
        if act == "read":
            rows(store)
        elif act == "ingest":
            ingest([tmp_path / "two"], store)
        else:
            lake.drop(store, "two")
    assert part.exists()
    manifest_index.path_of(lake.folder(store)).unlink()  # the way out that the message names
    ingest([tmp_path / "one", tmp_path / "two"], store)
    assert rows(store) == 3 * 399 + 1
    assert (store / "quarantine/lake-1" / part.relative_to(store / "lake")).is_file()


def test_the_index_is_made_again(store: Path, tmp_path: Path) -> None:
    index = manifest_index.path_of(lake.folder(store))
    whole = index.read_bytes()
    index.unlink()
    assert rows(store) == 3 * 399
    (tmp_path / "two/9.csv").write_bytes(lines(LINKS, link("5")))
    ingest([tmp_path / "two"], store)
    assert manifest_index.read(lake.folder(store)) == {m.id: m.dataset for m in lake.live(store)}
    assert not (store / "quarantine").exists()
    for place in range(0, 8 * len(whole), 31):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        index.write_bytes(flipped)
        with pytest.raises(DamageError, match=f"{index.name}: its bytes .* delete it"):
            lake.live(store)


def test_a_part_of_a_killed_ingest_goes_and_one_of_unknown_origin_is_kept(store: Path) -> None:
    stray = store / "lake/link_samples/dataset=one" / f"{'0' * 64}.parquet"
    durable.put(stray, b"not committed")
    assert lake.unnamed(store) == [stray]
    assert lake.clean(store) == 1 and not stray.exists()
    durable.put(stray, b"committed?")
    manifest_index.path_of(lake.folder(store)).unlink()
    assert lake.clean(store) == 0 and not stray.exists()
    assert (store / "quarantine/lake-1" / stray.relative_to(store / "lake")).read_bytes() == b"committed?"
    assert lake.unnamed(store) == []


def test_a_lake_that_changes_between_listing_and_index_is_listed_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests, real = store / "lake/manifests", manifest_index.read
    (late,) = (m for m in lake.live(store) if m.dataset == "two")
    path = manifests / f"{late.id}.json"
    data, calls = path.read_bytes(), []
    path.unlink()  # not linked yet at the first listing

    def read(folder: Path) -> dict[str, str] | None:
        if not calls:
            path.write_bytes(data)
        calls.append(folder)
        return real(folder)

    monkeypatch.setattr(manifest_index, "read", read)
    assert {m.dataset for m in lake.live(store)} == {"one", "two"}
    assert len(calls) >= 2

    def dropped(folder: Path) -> dict[str, str] | None:
        calls.append(folder)
        found = real(folder) or {}
        if len(calls) == 1:  # after the first look at the index
            manifest_index.write(folder, {i: name for i, name in found.items() if name != "two"})
        return found

    calls.clear()
    path.unlink()
    monkeypatch.setattr(manifest_index, "read", dropped)
    assert {m.dataset for m in lake.live(store)} == {"one"}


@pytest.mark.parametrize("kind", ["part", "manifest", "index"])
def test_what_is_no_regular_file_is_damage(store: Path, tmp_path: Path, kind: str) -> None:
    paths = {"part": part_of, "manifest": manifest_of}
    path = paths[kind](store, "one") if kind in paths else store / "lake" / manifest_index.NAME
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamageError, match=f"{path.name}: not a regular file"):
        rows(store)
    path.unlink()
    path.mkdir()
    with pytest.raises(DamageError, match=f"{path.name}: not a regular file"):
        rows(store)


def test_a_file_is_hashed_once_then_trusted_for_a_while(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, hashed, now = part_of(store, "one"), [], [0.0]
    real = integrity.content_fault
    monkeypatch.setattr(integrity, "content_fault", lambda path, *a: hashed.append(path) or real(path, *a))
    monkeypatch.setattr(integrity.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(integrity, "_checked", {})
    rows(store), rows(store)
    assert hashed.count(part) == 1
    now[0] = integrity.TRUSTED_S
    rows(store)
    assert hashed.count(part) == 2
    os.utime(part)
    rows(store)
    assert hashed.count(part) == 3
