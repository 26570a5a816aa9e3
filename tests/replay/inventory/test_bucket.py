"""Copies in buckets: in the memory store of `obstore`, and on a real SeaweedFS where that is installed."""

from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from ingest.core.errors import DamageError, LockedError, StorageError, UsageError
from replay.api import store_check
from replay.inventory import places
from replay.inventory.backup import back_up, restore
from replay.inventory.bucket import Bucket
from tests.support.buckets import needs_server, serving
from tests.support.toys import toy_run, without_lake


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_lake(monkeypatch)
    toy_run(tmp_path / "store", "greedy")
    return tmp_path / "store"


def goes_and_comes(store: Path, again: Callable[[], Bucket]) -> None:
    first = back_up(store, again())
    assert first.copied > 0 and first.unchanged == 0
    toy_run(store, "static")
    second = back_up(store, again())
    assert second.runs == 2 and second.unchanged == first.copied
    restored = store.parent / "restored"
    assert restore(again(), restored) == first.copied + second.copied
    assert store_check.check(restored).ok
    for path in places.files(store / "runs"):
        assert (restored / path.relative_to(store)).read_bytes() == path.read_bytes()


def test_a_store_goes_into_a_bucket_and_comes_back(store: Path) -> None:
    client = MemoryStore()
    goes_and_comes(store, lambda: Bucket("s3://memory", client))


def test_an_object_that_changed_is_found_by_a_restoration_and_written_again(store: Path) -> None:
    client = MemoryStore()
    back_up(store, Bucket("s3://memory", client))
    name = next(row["path"] for row in obstore.list(client).collect() if row["path"].endswith(".parquet"))
    whole = bytes(obstore.get(client, name).bytes())
    obstore.put(client, name, b"rot" + whole[3:])
    with pytest.raises(DamageError, match="not what was written"):
        restore(Bucket("s3://memory", client), store.parent / "restored")
    assert back_up(store, Bucket("s3://memory", client)).copied == 1
    restore(Bucket("s3://memory", client), store.parent / "other")


def test_of_two_backups_at_once_one_is_told(store: Path) -> None:
    client = MemoryStore()
    for _ in range(2):  # of a new copy, of one that is there
        ours, theirs = Bucket("s3://memory", client), Bucket("s3://memory", client)
        ours.begin(), theirs.begin()
        theirs.replace_manifest(b"{}")
        with pytest.raises(LockedError, match="another backup"):
            ours.replace_manifest(b"{}")


def test_a_prefix_with_other_objects_is_refused(store: Path) -> None:
    client = MemoryStore()
    obstore.put(client, "thesis.tex", b"mine")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        back_up(store, Bucket("s3://memory", client))


def test_a_server_without_conditional_writes_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, real = MemoryStore(), obstore.put
    monkeypatch.setattr(
        obstore, "put", lambda at, name, data, mode="overwrite", **more: real(at, name, data, **more)
    )
    back_up(store, Bucket("s3://memory", client))
    with pytest.raises(UsageError, match="no conditional writes"):
        back_up(store, Bucket("s3://memory", client))


def test_names_of_places() -> None:
    with pytest.raises(UsageError, match="s3://BUCKET/PREFIX"):
        places.place_of("s3:///prefix")
    with pytest.raises(UsageError, match="a folder or at s3://"):
        places.place_of("gs://bucket/x")


@needs_server
def test_a_real_server_keeps_a_copy(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path / "weed") as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        goes_and_comes(store, lambda: Bucket.at("s3://backups/twin"))
        ours, theirs = Bucket.at("s3://backups/twin"), Bucket.at("s3://backups/twin")
        ours.begin(), theirs.begin()
        theirs.replace_manifest(b"{}")
        with pytest.raises(LockedError):
            ours.replace_manifest(b"{}")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(UsageError, match="access is refused"):
            back_up(store, Bucket.at("s3://backups/twin"))
    with pytest.raises((StorageError, UsageError), match=r"AWS_ENDPOINT_URL|refused"):
        back_up(store, Bucket.at("s3://backups/twin"))
