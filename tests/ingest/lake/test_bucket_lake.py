"""The lake of a store in a bucket: what one machine commits all others read."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest

from ingest.core import integrity
from ingest.core.errors import DamageError, LockedError, UsageError
from ingest.lake import bucket_lake, lake, merging
from ingest.lake.bucket_lake import COMMITS, POINTER
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import from_bytes
from ingest.pipeline.ingest import ingest, ingest_sources
from tests.support.buckets import InMemory
from tests.support.formats import LINKS, lines, link
from tests.support.lakes import count, fill

SET = DatasetOptions(name="set", reader="columns", table="link_samples")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    return InMemory(tmp_path, monkeypatch)


def commit(store: Path, number: int, dataset: str = "set") -> None:
    source = from_bytes(f"page@{number}-{number + 1}", "page", lines(LINKS, link(str(number))))
    ingest_sources(SET.model_copy(update={"name": dataset}), [source], store)


def opened(store: Path) -> Path:
    """The working copy as a new command has it."""
    bucket_lake.forget(store)
    return store


def test_what_one_machine_ingests_another_one_reads(bucket: InMemory, tmp_path: Path) -> None:
    here, there = bucket.machine(), bucket.machine("there")
    folder = fill(tmp_path / "set", {"a.csv": lines(LINKS, link("1"), link("2"), "x")})
    assert lake.live(there) == []
    ingest([folder], here)
    assert lake.live(there) == [], "as it was read when the command began"
    assert (count(opened(there)), lake.digest(there)) == (2, lake.digest(here))
    assert lake.datasets(there)["set"].rejected == 1 and lake.verify(there) == []
    fill(tmp_path / "set", {"a.csv": lines(LINKS, link("3"))})
    ingest([folder], there)
    assert count(opened(here)) == 1 and lake.digest(here) == lake.digest(there)
    assert len(bucket.names(COMMITS)) == 2, "what was replaced is gone"
    lake.drop(here, "set")
    assert bucket.names("lake") == [POINTER] and count(opened(there)) == 0


def test_requests_of_an_ingest_and_of_a_reader(bucket: InMemory) -> None:
    here, there, requests = bucket.machine(), bucket.machine("there"), bucket.objects.requests

    def asked(act: Callable[[], object]) -> dict[str, int]:
        before = requests.to_json()
        act()
        return {name: n - before[name] for name, n in requests.to_json().items() if n != before[name]}

    assert asked(lambda: commit(here, 1)) == {"put": 6, "get": 2, "list": 1}  # three try the server
    assert asked(lambda: commit(opened(here), 2)) == {"put": 3, "get": 2, "list": 1}
    assert asked(lambda: commit(here, 2)) == {}, "it is there"
    assert asked(lambda: count(there)) == {"get": 5}
    assert asked(lambda: count(opened(there))) == {"get": 1}


def test_of_two_machines_that_write_one_set_the_second_to_commit_is_told(bucket: InMemory) -> None:
    here, there = bucket.machine(), bucket.machine("there")
    told = pytest.raises(LockedError, match=r"lake/committed\.json: another process has replaced it")
    with told, lake.writing(here):
        commit(there, 1)
        lake.commit(here, "set", {}, [], lake.live(there)[0].sources, [])
    assert list(lake.datasets(opened(here))) == ["set"] and count(here) == 1
    assert len(bucket.names(COMMITS)) == 2, "nothing of the second is left"
    commit(here, 2)
    assert count(opened(there)) == 2


def test_two_machines_write_two_sets_at_once(bucket: InMemory) -> None:
    here, there = bucket.machine(), bucket.machine("there")
    commit(here, 1)
    old = lake.live(opened(here))
    with lake.writing(here):
        commit(there, 2, "other")
        lake.commit(here, "set", {}, [], old[0].sources, [old[0].id])
        commit(there, 3, "other")
        lake.commit(here, "more", {}, [], old[0].sources, [])
    assert lake.digest(opened(there)) == lake.digest(here)
    assert {name: info.sources for name, info in lake.datasets(here).items()} == {
        "set": 1, "other": 2, "more": 1
    }  # fmt: skip


def test_a_writer_that_is_told_takes_nothing_of_what_is_there(bucket: InMemory) -> None:
    here, there = bucket.machine(), bucket.machine("there")
    commit(here, 1)
    (same,) = lake.live(here)
    with pytest.raises(LockedError), lake.writing(here):
        commit(there, 2)
        lake.commit(here, "set", same.meta, same.parts, same.sources, [])
    assert count(opened(bucket.machine("third"))) == 2


def test_a_part_that_was_replaced_meanwhile_is_looked_for_anew(
    bucket: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = bucket.machine(), bucket.machine("there")
    monkeypatch.setattr(merging, "FAN_IN", 2)
    commit(here, 1)
    commit(here, 2)
    assert len(lake.live(there)) == 2
    assert merging.merge_small(here, "set") == 2
    assert count(there) == 2 and len(lake.live(there)) == 1


def test_what_the_working_copy_lost_comes_back(bucket: InMemory) -> None:
    here = bucket.machine()
    commit(here, 1)
    (part,) = lake.parts(here)["link_samples"]
    (manifest,) = (here / "lake" / "manifests").iterdir()
    for path in (part, manifest):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + b"?")
        assert count(here) == 1 and path.read_bytes() == data


@pytest.mark.parametrize("kind", [".parquet", "manifest.json", POINTER])
def test_a_changed_object_is_named(bucket: InMemory, kind: str) -> None:
    commit(bucket.machine(), 1)
    (name,) = (name for name in bucket.names("lake") if name.endswith(kind))
    obstore.put(bucket.client, name, b"rot")
    there = bucket.machine("there")
    with pytest.raises(DamageError, match=rf"{name}: .* th(ose|e \d+) that were written"):
        count(there)
    if kind == ".parquet":
        assert [name in problem for problem in lake.verify(there)] == [True]
        obstore.delete(bucket.client, name)
        assert [f"{name}: missing" in problem for problem in lake.verify(there)] == [True]
        with pytest.raises(DamageError, match=f"{name}: missing"):
            count(there)
        lake.drop(there, "set")  # as the message says
        assert count(there) == 0


def test_names_in_a_received_bucket_do_not_lead_out_of_the_working_copy(bucket: InMemory) -> None:
    commit(bucket.machine(), 1)
    there = bucket.machine("there")
    place = bucket_lake.of(there)
    assert place is not None
    (identity,) = place.commits
    with pytest.raises(DamageError, match="is no name of a part"):
        place.fetch([(identity, "../../x")])
    for commits in ({"../x": "0" * 32}, {identity: "../x"}):
        record = integrity.sealed({"schema": bucket_lake.SCHEMA, "commits": commits})
        obstore.put(bucket.client, POINTER, record)
        with pytest.raises(DamageError, match="not those that were written"):
            place.refresh()


def test_what_a_killed_writer_left_goes_after_a_day(
    bucket: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = bucket.machine()

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(bucket_lake.pointer, "swap", killed)
        commit(here, 1)
    left = bucket.names(COMMITS)
    assert len(left) == 2 and lake.live(opened(here)) == []
    commit(here, 2)
    assert set(left) < set(bucket.names(COMMITS)), "its writer may be at work"
    monkeypatch.setattr(bucket_lake, "LEFT_S", -timedelta(minutes=1).total_seconds())
    with lake.writing(opened(here)):
        lake.clean(here)
    assert len(bucket.names(COMMITS)) == 2 and not set(left) & set(bucket.names(COMMITS))
    assert count(here) == 1


def test_a_lake_that_an_older_version_kept_in_the_working_copy_goes_to_quarantine(
    bucket: InMemory, tmp_path: Path
) -> None:
    here = bucket.machine()
    commit(tmp_path / "plain", 1)
    (tmp_path / "plain" / "lake").rename(here / "lake")
    assert lake.live(here) == []
    commit(here, 2)
    assert count(here) == 1 and (here / "quarantine" / "lake-1" / "committed.json").exists()


def test_a_server_without_conditional_writes_is_refused_before_a_row_is_read(
    bucket: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = obstore.put
    monkeypatch.setattr(obstore, "put", lambda at, name, data, mode="", **more: real(at, name, data, **more))
    with pytest.raises(UsageError, match="no conditional writes"):
        commit(bucket.machine(), 1)
    assert bucket.names("lake") == []
