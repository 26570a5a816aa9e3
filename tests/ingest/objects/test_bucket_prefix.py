"""Objects that are written once."""

from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError, NotSupportedError
from obstore.store import MemoryStore

from ingest.core.errors import ExistsError, StorageError, UsageError
from ingest.objects.bucket_prefix import PROBE, ObjectPrefix, tag_of


@pytest.fixture
def objects() -> ObjectPrefix:
    return ObjectPrefix("s3://memory/x", MemoryStore())


def test_an_object_is_written_once(objects: ObjectPrefix) -> None:
    objects.create("a/b", b"one")
    objects.create("a/b", b"one")  # the answer to the first request was lost
    with pytest.raises(ExistsError, match="s3://memory/x/a/b: is there already"):
        objects.create("a/b", b"two")
    assert objects.read("a/b") == b"one"
    assert objects.requests.to_json() == {"put": 3, "get": 3, "list": 0, "delete": 0}
    objects.replace("a/b", b"two")
    assert objects.read("a/b") == b"two"


def test_listings_and_reading_many(objects: ObjectPrefix) -> None:
    for number in range(40):
        objects.create(f"a/{number:02}", b"%d" % number)
    objects.create("b/0", b"other")
    found = objects.listed("a/")
    assert sorted(found) == [f"a/{number:02}" for number in range(40)]
    sizes = {name: found[name].size_bytes for name in sorted(found)}
    assert list(objects.read_all(sizes)) == [b"%d" % number for number in range(40)]
    assert len(objects.listed()) == 41


def test_a_server_with_conditional_writes_is_asked_twice_once(objects: ObjectPrefix) -> None:
    objects.check_conditional()
    assert objects.requests.put == 2
    objects.check_conditional()
    assert objects.requests.put == 3
    assert PROBE in objects.listed()


def refusing(at: Any, name: str, data: bytes, **_: Any) -> Any:
    raise NotSupportedError("no such condition")


def overwriting(real: Any) -> Any:
    return lambda at, name, data, mode="overwrite", **more: real(at, name, data, **more)


@pytest.mark.parametrize("kind", ["overwrites", "refuses"])
def test_a_server_without_conditional_writes_is_refused(
    objects: ObjectPrefix, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(obstore, "put", refusing if kind == "refuses" else overwriting(obstore.put))
    with pytest.raises(UsageError, match="no conditional writes"):
        objects.check_conditional()


def test_other_bytes_on_the_server_are_noticed(
    objects: ObjectPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore, "put", lambda *_, **__: {"e_tag": f'"{tag_of(b"others")}"'})
    with pytest.raises(StorageError, match="other bytes than were sent"):
        objects.create("a", b"ours")
    monkeypatch.setattr(obstore, "put", lambda *_, **__: {"e_tag": '"no-md5"'})
    objects.create("a", b"ours")


def test_what_cannot_be_read_is_named(objects: ObjectPrefix, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise GenericError("broken")

    with pytest.raises(StorageError, match="s3://memory/x/absent cannot be read"):
        objects.read("absent")
    monkeypatch.setattr(obstore, "list", fails)
    with pytest.raises(StorageError, match="cannot be listed: broken"):
        objects.listed("runs")
