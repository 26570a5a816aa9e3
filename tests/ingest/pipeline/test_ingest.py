"""The lake after ingests that repeat, change, fail or are killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ingest.core import durable
from ingest.core.errors import DamageError, InputError, LockedError, StorageError
from ingest.lake import duckdb_views, lake
from ingest.pipeline import transaction
from ingest.pipeline.ingest import ingest
from tests.support.formats import LINKS, iperf_bytes, lines, link, tarred
from tests.support.lakes import count, fill, fill_disk, tree
from tests.support.tally import EFFORT


def run(number: int) -> tuple[str, bytes]:
    name = f"host-a/target-b/time-x/baseline_host_target_direct_{number}.res"
    return name, iperf_bytes(counted=2 + number)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_report_as_json(tmp_path: Path, store: Path) -> None:
    folder = fill(tmp_path / "set", {"l.csv": lines(LINKS, link(), link("-1")), "note.txt": b"hello"})
    report = ingest([folder], store).to_json()
    assert json.loads(json.dumps(report)) == report
    assert (report["schema"], report["rows"], report["rejected"]) == ("twin.ingest/1", {"link_samples": 1}, 1)
    assert (report["rows_in"], report["skipped"], report["already"]) == (2, 1, 0)
    first, second = report["files"]
    assert (first["path"], first["reader"], first["stored"]) == (
        str(folder / "l.csv"),
        "columns",
        {"link_samples": 1},
    )
    assert first["examples"] == [{"row": 2, "column": "bandwidth_bps", "raw": "-1", "reason": "negative"}]
    assert second["skipped"].startswith("no reader knows this format")


def test_many_small_files_become_few_parts(tmp_path: Path, store: Path) -> None:
    ingest([fill(tmp_path / "set", dict(run(n) for n in range(40)))], store)
    assert len(list(store.rglob("*.parquet"))) == 1
    assert len(list((store / "lake/manifests").iterdir())) == 1
    (manifest,) = lake.live(store)
    assert len(manifest.sources) == 40
    assert [entry.rows for entry in manifest.sources[:1]] == [(("link_samples", 3),)]


def test_parts_are_sorted_compressed_and_plain(tmp_path: Path, store: Path) -> None:
    rows = [link(ts=f"2024-01-01T00:00:{s:02d}Z") for s in (5, 1, 3)]
    ingest([fill(tmp_path / "set", {"l.csv": lines(LINKS, *rows)})], store)
    (part,) = store.rglob("*.parquet")
    assert part.relative_to(store).parts[:3] == ("lake", "link_samples", "dataset=set")
    file = pq.ParquetFile(part)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    table = file.read()
    assert table["source_row"].to_pylist() == [2, 3, 1]
    assert str(table.schema.field("src").type) == "string"
    assert str(table.schema.field("ts").type) == "timestamp[ns, tz=UTC]"


def test_identical_content_is_stored_once(tmp_path: Path, store: Path) -> None:
    content = lines(LINKS, link("1"), link("2"))
    folder = fill(tmp_path / "set", {"a.tar.gz": tarred({"l.csv": content}), "l.csv": content})
    report = ingest([folder], store)
    assert [(r.already, sum(r.stored.values())) for r in report.files] == [(False, 2), (True, 0)]
    assert count(store) == 2


@pytest.mark.parametrize("older", ["link-{}.csv", "a-{}.csv"])  # read after the newest file, or before it
def test_a_rotated_log_keeps_all_its_rows(tmp_path: Path, store: Path, older: str) -> None:
    folder, written = tmp_path / "set", list[str]()
    for number in range(4):
        for age in range(number, 0, -1):  # the oldest first, as logrotate does
            (folder / (older.format(age - 1) if age > 1 else "link.csv")).rename(folder / older.format(age))
        written.append(str(5e8 + number))
        fill(folder, {"link.csv": lines(LINKS, link(written[-1]))})
        report = ingest([folder], store).to_json()
        assert report["rows"] == {"link_samples": number + 1} if number else {"link_samples": 1}
        found = (
            duckdb_views.connect(store)
            .execute("SELECT bandwidth_bps FROM link_samples ORDER BY 1")
            .fetchall()
        )
        assert [rate for (rate,) in found] == [float(rate) for rate in written]
        before = tree(store)
        second = ingest([folder], store).to_json()
        assert second["already"] == number + 1 and tree(store) == before


def test_a_copy_of_a_rotated_log_is_still_one(tmp_path: Path, store: Path) -> None:
    old, new = lines(LINKS, link("5e8")), lines(LINKS, link("6e8"))
    folder = fill(tmp_path / "set", {"link.csv": old})
    ingest([folder], store)
    fill(folder, {"a.csv": old, "link.csv": new, "z.csv": old})
    ingest([folder], store)
    assert count(store) == 2


def test_a_file_without_rows_is_named_in_the_report(tmp_path: Path, store: Path) -> None:
    report = ingest(
        [fill(tmp_path / "set", {"l.csv": lines(LINKS, link()), "none.csv": lines(LINKS)})], store
    )
    assert [Path(result.path).name for result in report.empty] == ["none.csv"]
    assert (report.to_json()["empty"], report.to_json()["skipped"]) == (1, 0)
    assert ingest([tmp_path / "set"], store).empty == ()  # nothing new to say


def test_a_set_of_rejects_alone_is_named(tmp_path: Path, store: Path) -> None:
    bad = fill(tmp_path / "bad", {"a.csv": lines(LINKS, link("-1"))})
    good = fill(tmp_path / "good", {"a.csv": lines(LINKS, link("1"), link("-1"))})
    report = ingest([bad, good], store)
    assert report.rejected_sets == ("bad",)
    assert report.first_reason("bad") == f"; the first: {bad / 'a.csv'}:1 bandwidth_bps: negative"
    second = ingest([bad, good], store)  # known now, and still nothing but rejects
    assert (second.rejected_sets, second.first_reason("bad")) == (("bad",), "")
    fill(bad, {"b.csv": lines(LINKS, link("1"))})
    assert ingest([bad, good], store).rejected_sets == ()
    fill(bad, {"c.csv": lines(LINKS, link("-2"))})  # something is there from before
    assert ingest([bad], store).rejected_sets == ()


def test_two_data_sets_may_hold_the_same_file(tmp_path: Path, store: Path) -> None:
    content = {"l.csv": lines(LINKS, link())}
    ingest([fill(tmp_path / "one", content), fill(tmp_path / "two", content)], store)
    assert count(store) == 2


def test_a_changed_file_replaces_its_rows_and_no_others(tmp_path: Path, store: Path) -> None:
    folder = fill(
        tmp_path / "set", {"a.csv": lines(LINKS, link("1")), "b.csv": lines(LINKS, link("2"), link("-2"))}
    )
    ingest([folder], store)
    fill(folder, {"a.csv": lines(LINKS, link("1"), link("3"))})
    report = ingest([folder], store)
    assert [r.already for r in report.files] == [False, True]
    found = (
        duckdb_views.connect(store)
        .execute("SELECT source_file, bandwidth_bps FROM link_samples ORDER BY ALL")
        .fetchall()
    )
    assert found == [("a.csv", 1.0), ("a.csv", 3.0), ("b.csv", 2.0)]
    assert count(store, "rejects") == 1
    assert lake.datasets(store)["set"].rows == {"link_samples": 3}
    assert lake.datasets(store)["set"].sources == 2
    # a fresh store with the same files has the same content
    ingest([folder], tmp_path / "fresh")
    assert lake.digest(store) == lake.digest(tmp_path / "fresh")


def test_left_overs_of_replaced_files_go_with_the_next_change(tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "set"
    for number in range(4):
        fill(folder, {"a.csv": lines(LINKS, *[link(str(n)) for n in range(number + 1)])})
        ingest([folder], store)
        assert count(store) == number + 1
    assert len(list(store.rglob("*.parquet"))) == 2  # the rows, and those that were replaced last
    assert lake.clean(store) == 2
    assert count(store) == 4


def test_changed_options_reread_the_files(tmp_path: Path, store: Path) -> None:
    folder = fill(tmp_path / "set", {"l.csv": lines(LINKS, link())})
    ingest([folder], store)
    fill(folder, {"dataset.toml": b"[sites]\na = 'alpha'\n"})
    assert not ingest([folder], store).files[0].already
    assert duckdb_views.connect(store).execute("SELECT src FROM link_samples").fetchall() == [("alpha",)]


def test_what_a_part_of_a_set_was_read_from_does_not_matter(tmp_path: Path, store: Path) -> None:
    folder = fill(tmp_path / "set", dict(run(n) for n in range(6)) | {"dataset.toml": b""})
    for path in sorted(folder.rglob("*.res"))[:3]:
        ingest([path], store)
    ingest([folder], store)
    ingest([folder], tmp_path / "whole")
    assert lake.digest(store) == lake.digest(tmp_path / "whole")
    assert count(store) == count(tmp_path / "whole")


@pytest.mark.parametrize(
    "files",
    [
        {"other.json": b'{"menu": {"id": "file"}}'},
        {"list.json": b"[1, 2, 3]"},
        {"empty.csv": b""},
        {"cut.tar.gz": tarred({"a": b"x" * 999})[:40]},
        {"x.bin": bytes(range(256))},
        {"model.pkl": b"\x80\x04cos\nsystem\n(S'echo'\ntR."},
        {"wide.csv": b"a" * 3000 + b"\n1\n"},
    ],
)
def test_nothing_readable_leaves_no_trace(tmp_path: Path, store: Path, files: dict[str, bytes]) -> None:
    folder = fill(tmp_path / "set", files)
    with pytest.raises(InputError, match=next(iter(files))):
        ingest([folder], store)
    assert not store.exists()
    ingest([fill(tmp_path / "good", {"l.csv": lines(LINKS, link())})], store)
    before = tree(store)
    with pytest.raises(InputError):
        ingest([folder], store)
    assert tree(store) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_named(tmp_path: Path, store: Path) -> None:
    folder = fill(tmp_path / "set", {"l.csv": lines(LINKS, link()), "m.csv": lines(LINKS, link("2"))})
    (folder / "m.csv").chmod(0)
    report = ingest([folder], store)
    assert "Permission denied" in str(report.files[1].skipped_reason)
    assert count(store) == 1


def test_a_pipe_or_a_dangling_link_does_not_hang(tmp_path: Path, store: Path) -> None:
    folder = fill(tmp_path / "set", {"l.csv": lines(LINKS, link())})
    os.mkfifo(folder / "pipe.csv")
    (folder / "gone.csv").symlink_to(tmp_path / "nowhere")
    report = ingest([folder], store)
    assert {Path(r.path).name for r in report.skipped} == {"pipe.csv", "gone.csv"}
    assert count(store) == 1


def test_two_readers_that_claim_a_file_are_named(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingest.readers import registry

    monkeypatch.setattr(registry, "READERS", (*registry.READERS, registry.by_name("columns")))
    with pytest.raises(InputError, match="several readers claim it"):
        ingest([fill(tmp_path / "set", {"l.csv": lines(LINKS, link())})], store)


def test_a_reader_by_name_is_not_asked_whether_it_can(tmp_path: Path, store: Path) -> None:
    folder = fill(tmp_path / "set", {"l.csv": lines("when,bw", "1,2"), "dataset.toml": b'reader = "columns"'})
    with pytest.raises(InputError, match="its columns fit no table"):
        ingest([folder], store)
    fill(folder, {"dataset.toml": b'reader = "colums"'})
    from ingest.core.errors import UsageError

    with pytest.raises(UsageError, match="no reader is called 'colums'"):
        ingest([folder], store)


def test_one_writer_at_a_time(tmp_path: Path, store: Path) -> None:
    folder = fill(tmp_path / "set", {"l.csv": lines(LINKS, link())})
    with durable.Lock(lake.folder(store) / "lock"), pytest.raises(LockedError):
        ingest([folder], store)
    ingest([folder], store)


def test_a_large_file_is_written_while_it_is_read(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingest.parsing import csv_blocks, source

    rows = [link(str(n), ts=f"2024-01-01T00:{n // 60 % 60:02d}:{n % 60:02d}Z") for n in range(3000)]
    rows[77], rows[2999] = link("x"), link("-1")
    folder = fill(tmp_path / "set", {"l.csv": lines(LINKS, *rows)})
    ingest([folder], tmp_path / "small")
    monkeypatch.setattr(transaction, "PART_ROWS", 500)
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(source, "SMALL_BYTES", 1000)
    (result,) = ingest([folder], store).files
    assert (result.rows_in, result.stored, result.rejected) == (3000, {"link_samples": 2998}, 2)
    assert len(lake.parts(store)["link_samples"]) > 3
    sql = "SELECT * FROM link_samples ORDER BY source_row"
    assert (
        duckdb_views.connect(store).execute(sql).fetchall()
        == duckdb_views.connect(tmp_path / "small").execute(sql).fetchall()
    )
    assert lake.digest(store) == lake.digest(tmp_path / "small")


@pytest.mark.parametrize("calls", range(4))
def test_a_disk_that_fails_leaves_a_lake_that_the_next_run_completes(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    folder = fill(tmp_path / "set", {"l.csv": lines(LINKS, link("1"), link("-1"))})
    ingest([folder], store)
    fill(folder, {"l.csv": lines(LINKS, link("2"), link("3"), link("-1")), "m.csv": lines(LINKS, link("4"))})
    fill_disk(monkeypatch, calls)
    if calls < 3:  # a part, the rejects, the manifest
        with pytest.raises(StorageError):
            ingest([folder], store)
        assert count(store) == 1  # the old rows, whole
    monkeypatch.undo()
    ingest([folder], store)
    ingest([folder], tmp_path / "fresh")
    assert lake.digest(store) == lake.digest(tmp_path / "fresh")
    assert count(store) == 3
    assert lake.verify(store) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from ingest.core import durable
from ingest.pipeline import transaction
from ingest.pipeline.ingest import ingest

transaction.UNIT_SOURCES = 5
left = int(sys.argv[3])

class Deadly(durable.Disk):
    def link(self, source, target):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        super().link(source, target)

durable.put.__kwdefaults__["disk"] = Deadly()
ingest([Path(sys.argv[1])], Path(sys.argv[2]))
"""


# A part and a manifest for each of 4 units are 8 points, of 16 units more than the 30 of every change.
FILES = 17 if EFFORT == 1 else 80
POINTS = [0, 1, 2, 5, 6] if EFFORT == 1 else list(range(30))


@pytest.mark.parametrize("point", POINTS)
def test_killed_and_rerun_gives_the_same_lake(
    tmp_path: Path, store: Path, point: int, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    monkeypatch.setattr(transaction, "UNIT_SOURCES", 5)
    folder = fill(tmp_path / "set", dict(run(n) for n in range(FILES)))
    command = [sys.executable, "-c", KILLED, str(folder), str(store), str(point)]
    done = subprocess.run(command, cwd=repository, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    partial = count(store)
    ingest([folder], store)
    ingest([folder], tmp_path / "whole")
    assert count(store) == count(tmp_path / "whole") > partial
    assert lake.digest(store) == lake.digest(tmp_path / "whole")
    assert lake.verify(store) == []
    names = {p.name for p in store.rglob("*") if p.is_file()}
    assert names == {p.name for p in (tmp_path / "whole").rglob("*") if p.is_file()}  # no left-overs


def test_damage_is_named(tmp_path: Path, store: Path) -> None:
    ingest([fill(tmp_path / "set", {"l.csv": lines(LINKS, link())})], store)
    (part,) = store.rglob("*.parquet")
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + b"!")
    assert [part.name in finding for finding in lake.verify(store)] == [True]
    part.write_bytes(whole[:-1])
    with pytest.raises(DamageError, match=f"{part.name}: .* bytes, not"):
        duckdb_views.connect(store)
    part.unlink()
    with pytest.raises(DamageError, match=f"{part.name}: missing"):
        duckdb_views.connect(store)
    part.write_bytes(whole)
    (manifest,) = (store / "lake/manifests").iterdir()
    manifest.write_bytes(manifest.read_bytes().replace(b'"set"', b'"sat"'))
    with pytest.raises(DamageError, match="not those that were written"):
        duckdb_views.connect(store)


def test_views_of_an_empty_store_are_empty(store: Path) -> None:
    from ingest.lake.schema import TABLES

    connection = duckdb_views.connect(store)
    for table, schema in TABLES.items():
        found = connection.execute(f"SELECT * FROM {table}")
        assert [column[0] for column in found.description] == schema.names
        assert found.fetchall() == []
    assert lake.datasets(store) == {}


def test_empty_and_filled_views_have_the_same_types(tmp_path: Path, store: Path) -> None:
    ingest([fill(tmp_path / "set", {"l.csv": lines(LINKS, link())})], store)
    types = [
        duckdb_views.connect(place).execute("SELECT column_type FROM (DESCRIBE link_samples)").fetchall()
        for place in (store, tmp_path / "none")
    ]
    assert types[0] == types[1]


def test_metadata_is_kept_with_its_assumptions(tmp_path: Path, store: Path) -> None:
    toml = b"licence = 'MIT'\nsynthetic = true\nassumptions = ['made up']\n"
    ingest([fill(tmp_path / "set", {"l.csv": lines(LINKS, link()), "dataset.toml": toml})], store)
    info = lake.datasets(store)["set"]
    assert (info.meta["licence"], info.meta["synthetic"], info.meta["assumptions"]) == (
        "MIT",
        True,
        ["made up"],
    )
    assert (info.rows, info.sources, info.rejected) == ({"link_samples": 1}, 1, 0)
