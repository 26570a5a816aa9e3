"""A store in a bucket whose server lies: what is sound is listed, what is not is named, memory is bounded."""

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.core import integrity
from ingest.core.errors import StorageError
from ingest.objects import bucket_prefix, transfer
from ingest.objects.bucket_prefix import ObjectPrefix
from replay.log import bucket_log
from tests.support import fake_s3
from tests.support.commands import Call, caller
from tests.support.fake_s3 import FakeS3
from tests.support.histories import write

pytest.importorskip("obstore", reason="extra `s3`")
SEGMENT = f"{0:020d}.batch"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    with fake_s3.serving() as running:
        for name, value in {**fake_s3.ENVIRONMENT, "AWS_ENDPOINT_URL": running.address}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(bucket_log, "FRESH_S", 0.0)
        yield running


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsysbinary, monkeypatch)


@pytest.fixture
def two(server: FakeS3, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeS3:
    """A store with two runs in the bucket, and no working copy of it."""
    for run in ("good", "bad"):
        write(tmp_path / "store" / "runs" / run)
    assert call(None, "sync", str(tmp_path / "store"), server.url()).code == 0
    assert {key.split("/")[2] for key in server.objects if key.startswith("twin/runs")} == {"good", "bad"}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    return server


def every_command_names(call: Call, server: FakeS3, problem: str) -> None:
    """Checks that each command tells of the sound run, and names the damage of the other."""
    at = ("--store", server.url())
    listed = {row["run"]: row for row in call(None, *at, "runs", "--json").json["runs"]}
    assert listed["good"]["problem"] is None and listed["good"]["events"] == 284
    assert problem in listed["bad"]["problem"]
    status = call(None, *at, "status")
    assert status.code == 0 and b"good" in status.out and b"bad" in status.out
    answer = call(None, *at, "sql", "select run, count(*) n from events group by run", "--format", "csv")
    assert answer.code == 0 and b"good,284" in answer.out and b"bad,2" not in answer.out
    assert "bad is left out" in answer.err and problem in " ".join(answer.err.split())
    verified = call(None, *at, "verify")
    assert verified.code == 3 and b"bad" in verified.out
    assert call(None, *at, "audit", "good", "--since", "10").code == 0
    assert call(None, *at, "audit", "bad").code == 3


def test_one_damaged_batch_hides_no_other_run(two: FakeS3, call: Call) -> None:
    key = f"twin/runs/bad/{SEGMENT}"
    whole = two.objects[key]
    two.objects[key] = whole[:500] + bytes([whole[500] ^ 1]) + whole[501:]
    every_command_names(call, two, "the content was changed")
    two.objects[key] = b""
    every_command_names(call, two, "is no batch of events")


def test_a_batch_of_200_gib_is_a_message(two: FakeS3, call: Call) -> None:
    two.lengths[f"twin/runs/bad/{SEGMENT}"] = 200 << 30
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    every_command_names(call, two, "214,748,364,800 bytes")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 << 10


@pytest.mark.parametrize("fields", [
    {}, {"events": 3}, {"events": "3", "head": "x"}, {"events": True, "head": "x"},
    {"events": 1.5, "head": "x"},
    {"events": None, "head": None}, {"events": [1], "head": {}}, {"head": "0" * 64},
])  # fmt: skip
def test_a_sealed_record_without_its_fields_is_damage_of_its_run(
    two: FakeS3, call: Call, fields: dict[str, Any]
) -> None:
    two.objects["twin/runs/bad/head.json"] = integrity.sealed(
        {"schema": "twin.head/1", "run": "bad", **fields}
    )
    every_command_names(call, two, "head.json")


@pytest.mark.parametrize("fields", [{}, {"commits": []}, {"commits": {"a": 1}}, {"commits": None}])
def test_a_pointer_without_its_fields_is_a_message(two: FakeS3, call: Call, fields: dict[str, Any]) -> None:
    two.objects["twin/lake/committed.json"] = integrity.sealed({"schema": "twin.lake.bucket/1", **fields})
    done = call(None, "--store", two.url(), "traces")
    assert done.code == 3 and "committed.json: its bytes are not those" in done.err


@pytest.mark.parametrize("body", [
    b"{}", b"[]", b"[" * 100_000, b'{"dataset":"a"}',
    b'{"dataset":1,"meta":{},"parts":[],"sources":[],"replaces":[]}',
    b'{"dataset":"a","meta":{},"parts":[["links"]],"sources":[],"replaces":[]}',
    b'{"dataset":"a","meta":{},"parts":[["links","../../x",1,1,"a"]],"sources":[],"replaces":[]}',
    b'{"dataset":"a","meta":{},"parts":[],"sources":[[1]],"replaces":[]}',
], ids=range(8))  # fmt: skip
def test_a_manifest_of_the_lake_that_no_ingest_wrote_is_a_message(
    two: FakeS3, call: Call, body: bytes
) -> None:
    import hashlib

    identity, commit = hashlib.sha256(body).hexdigest(), "c" * 32
    two.objects[f"twin/lake/commits/{commit}/manifest.json"] = body
    pointer = {"schema": "twin.lake.bucket/1", "commits": {identity: commit}}
    two.objects["twin/lake/committed.json"] = integrity.sealed(pointer)
    done = call(None, "--store", two.url(), "traces")
    assert done.code == 3 and "no ingest wrote it" in done.err


ODD = ("runs//x", "runs/../x", "runs/./x/y", "/x", "runs/a\nb/c", "runs/a\x01b/c", "runs/\u202ea/b",
       "runs/" + "a" * 250 + "/x", "runs/bad//x", "runs/bad/../x", "runs/single", "lake/commits//x",
       "lake/commits/../x", "checkpoints//x", "..", "//")  # fmt: skip


@pytest.mark.parametrize("key", ODD)
def test_one_odd_key_stops_no_command(two: FakeS3, call: Call, key: str) -> None:
    two.objects[f"twin/{key}"] = b"x"
    at = ("--store", two.url())
    rows = call(None, *at, "runs", "--json").json["runs"]
    assert {"good", "bad"} == {row["run"] for row in rows if row["problem"] is None}
    assert call(None, *at, "sql", "select count(*) from events", "--format", "csv").out.endswith(b"568\n")
    assert call(None, *at, "status").code == 0 and call(None, *at, "traces").code == 0
    if key.startswith("runs/"):
        verified = call(None, *at, "verify")
        assert verified.code == 3
        assert b"take the object out" in verified.out or b"move it out" in verified.out


PAGES = {
    "one page for ever": lambda prefix, after: ([f"{prefix}a/{number}" for number in range(1000)], "t"),
    "new names for ever": lambda prefix, after: (
        [f"{prefix}a/{int(after or 0)}-{number}" for number in range(1000)], str(int(after or 0) + 1),
    ),
    "empty pages": lambda prefix, after: ([], f"{int(after or 0) + 1}"),
    "a name of a million letters": lambda prefix, after: ([f"{prefix}{'x' * 1_000_000}"], ""),
    "odd names for ever": lambda at, after: ([f"{at}//{after}{n}" for n in range(9)], f"{after}1"[:200]),
}  # fmt: skip


@pytest.mark.parametrize("kind", PAGES)
def test_a_listing_without_end_is_a_message(
    server: FakeS3, kind: str, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setattr(transfer, "LISTING_S", 2.0)
    monkeypatch.setattr(transfer, "MAX_OBJECTS", 20_000)
    server.page = PAGES[kind]
    with pytest.raises(StorageError, match="cannot be listed"):
        ObjectPrefix.at(server.url()).listed("runs")
    done = call(None, "--store", server.url(), "runs")
    assert done.code == 1 and "cannot be listed" in done.err


def test_a_copy_in_such_a_bucket_is_refused(two: FakeS3, call: Call, tmp_path: Path) -> None:
    source, at = str(tmp_path / "store"), two.url("copy")
    assert call(None, "--store", source, "backup", at).code == 0
    manifest = two.objects["copy/backup.json"]
    name = next(key for key in two.objects if key.startswith("copy/") and key.endswith(".parquet"))

    def refused(words: str) -> None:
        done = call(None, "--store", str(tmp_path / "new"), "restore", at)
        assert done.code == 3 and words in done.err and not (tmp_path / "new").exists()

    two.objects["copy/runs//odd"] = b"x"
    refused("does not list it")
    del two.objects["copy/runs//odd"]
    two.lengths[name] = 200 << 30
    refused("214,748,364,800 bytes")
    fields = json.loads(manifest)
    fields["files"][name.removeprefix("copy/")][0] = 200 << 30
    two.objects["copy/backup.json"] = json.dumps(fields).encode()
    done = call(None, "--store", str(tmp_path / "new"), "restore", at)
    assert done.code in (1, 3) and not list((tmp_path / "new").rglob("*.parquet"))
    two.lengths["copy/backup.json"] = 200 << 30
    refused("214,748,364,800 bytes") if not (tmp_path / "new").exists() else None


SECRET, KEY = "wJalr/XUtnFEMI", "AKIAEXAMPLEKEY"
ADDRESSES = (
    f"s3://{KEY}:{SECRET}@bucket/x",
    f"s3://{KEY}:{SECRET}@/x",
    f"s3://{KEY}@bucket",
    f"gs://{KEY}:q@bucket",
)
ENDPOINTS = (
    f"http://{KEY}:{SECRET}@127.0.0.1:9", f"{KEY}:{SECRET}@127.0.0.1:9", f"http://127.0.0.1:9/?X-Amz-Credential={KEY}",
    f"https://{KEY}@[::1", f"http://{KEY}:{SECRET}@", f"ftp://{KEY}@host",
)  # fmt: skip


@pytest.mark.parametrize("command", ["runs", "status", "traces", "config", "sql", "verify", "doctor"])
def test_keys_in_the_address_of_a_store_are_never_shown(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    log, words = tmp_path / "log.jsonl", (["select 1"] if command == "sql" else [])
    for address in ADDRESSES[:3]:
        for place in ("option", "variable"):
            monkeypatch.setenv("TWIN_STORE", address if place == "variable" else "s3://none")
            given = ("--store", address) if place == "option" else ()
            more = ("--json", "--verbose", "--log", str(log))
            done = call(None, *given, command, *words, *more)
            assert done.code == 2
            shown = done.out.decode() + done.err + log.read_text()
            assert KEY not in shown and SECRET not in shown, shown


@pytest.mark.parametrize("command", ["backup", "restore", "sync"])
def test_keys_in_the_address_of_a_copy_are_never_shown(call: Call, tmp_path: Path, command: str) -> None:
    write(tmp_path / "store" / "runs" / "a")
    log, store = tmp_path / "log.jsonl", tmp_path / ("new" if command == "restore" else "store")
    for address in ADDRESSES:
        more = ("--json", "--verbose", "--log", str(log))
        done = call(None, "--store", str(store), command, address, *more)
        shown = done.out.decode() + done.err + log.read_text()
        assert done.code in (1, 2) and KEY not in shown and SECRET not in shown, shown


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_keys_in_the_address_of_the_server_are_never_shown(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setattr(bucket_prefix, "_open", {})
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"):
        for other in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.delenv(other, raising=False)
        monkeypatch.setenv(name, endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        log = tmp_path / "log.jsonl"
        done = call(None, "--store", "s3://bucket/x", "runs", "--json", "--log", str(log))
        shown = done.out.decode() + done.err + log.read_text()
        assert done.code == 2 and KEY not in shown and SECRET not in shown, shown
