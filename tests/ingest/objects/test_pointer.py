"""Pointers: of two writers one is told, and a lost answer is none."""

from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from ingest.core.errors import LockedError, UsageError
from ingest.objects import pointer
from ingest.objects.bucket_prefix import ObjectPrefix


@pytest.fixture
def objects() -> ObjectPrefix:
    return ObjectPrefix("s3://memory/x", MemoryStore())


def test_of_two_writers_that_read_the_same_one_is_told(objects: ObjectPrefix) -> None:
    assert pointer.read(objects, "p") is None
    first = pointer.swap(objects, "p", b"one", None)
    with pytest.raises(LockedError, match=r"s3://memory/x/p: another process has replaced it meanwhile"):
        pointer.swap(objects, "p", b"two", None)
    assert pointer.read(objects, "p") == (b"one", first)
    second = pointer.swap(objects, "p", b"two", first)
    with pytest.raises(LockedError):
        pointer.swap(objects, "p", b"three", first)
    assert pointer.read(objects, "p") == (b"two", second)


def test_a_write_whose_answer_was_lost_counts(objects: ObjectPrefix) -> None:
    first = pointer.swap(objects, "p", b"one", None)
    second = pointer.swap(objects, "p", b"two", first)
    assert pointer.swap(objects, "p", b"two", first) == second


def test_conditions_are_tried_once(objects: ObjectPrefix) -> None:
    pointer.swap(objects, "p", b"one", None)
    assert objects.requests.put == 4
    pointer.swap(objects, "q", b"one", None)
    assert objects.requests.to_json() == {"put": 5, "get": 0, "list": 0, "delete": 0}


def test_a_server_that_knows_one_condition_only_is_refused(
    objects: ObjectPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = obstore.put

    def put(at: Any, name: str, data: bytes, mode: Any = "overwrite", **more: Any) -> Any:
        return real(at, name, data, mode="overwrite" if isinstance(mode, dict) else mode, **more)

    monkeypatch.setattr(obstore, "put", put)
    with pytest.raises(UsageError, match=r"no conditional writes \(If-Match\)"):
        pointer.swap(objects, "p", b"one", None)
    assert pointer.read(objects, "p") is None
