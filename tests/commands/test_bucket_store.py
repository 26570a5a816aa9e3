"""Commands on a store in a bucket: `--store s3://...`, and `twin sync`; the bucket is one in memory."""

from pathlib import Path

import obstore
import pytest

from replay.log.run_log import RunWriter
from tests.support.buckets import URL, InMemory
from tests.support.commands import ROOT, Call, Done, caller
from tests.support.histories import history, write

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_EC2_METADATA_DISABLED")


@pytest.fixture
def plain(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsysbinary, monkeypatch)


@pytest.fixture
def call(plain: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Calls a command with the store in the bucket."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    InMemory(tmp_path, monkeypatch)

    def called(_: Path | None, *words: str) -> Done:
        return plain(None, "--store", URL, *words)

    return called


def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From here on commands run on another machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


def test_a_replay_is_read_and_audited_on_another_machine(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(None, "ingest", str(ROOT / "traces")).code == 0
    made = call(None, "replay", "-p", "static", "--json").json
    elsewhere(monkeypatch, tmp_path / "other")
    assert [run["run"] for run in call(None, "runs", "--json").json["runs"]] == [made["run"]]
    counted = call(None, "sql", "select count(*) n from events", "--json").json
    assert counted["rows"][0] in ([532], {"n": 532})
    assert b"synthetic-tri" in call(None, "traces", "--json").out
    assert "synthetic-tri" in call(None, "status", "--json").json["datasets"]
    audited = call(None, "audit", "latest")
    assert audited.code == 0 and made["digest"].encode() in audited.out
    assert call(None, "replay", "-p", "static", "--dry-run").code == 0
    assert len(call(None, "runs", "--json").json["runs"]) == 1, "a dry run stores nothing"


def test_sync_goes_both_ways(
    call: Call, plain: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "store" / "runs" / "a")
    foretold = plain(tmp_path / "store", "sync", str(tmp_path / "store"), URL, "--dry-run")
    assert b"2 of 2 segments" in foretold.out
    assert call(None, "runs", "--json").json["runs"] == []
    sent = plain(None, "sync", str(tmp_path / "store"), URL, "--json").json
    assert sent["ok"] and sent["runs"][0]["copied"] == 2
    elsewhere(monkeypatch, tmp_path / "other")
    back = plain(None, "sync", URL, str(tmp_path / "back"))
    assert back.code == 0 and b"1 runs, 2 segments copied" in back.out
    write(tmp_path / "store" / "runs" / "b")
    write(tmp_path / "back" / "runs" / "b", policy="static")
    differs = plain(None, "sync", str(tmp_path / "store"), str(tmp_path / "back"))
    assert differs.code == 3 and b"b: left as it is" in differs.out and b"another history" in differs.out


def test_events_in_no_segment_are_said(plain: Call, tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "store" / "runs" / "a", flush_s=1e9)
    for sim_ns, kind, payload, _ in list(history())[:20]:
        writer.append(sim_ns, kind, payload)
    writer.flush()
    said = plain(None, "sync", str(tmp_path / "store"), str(tmp_path / "target"))
    writer.close()
    assert b"19 events are in no segment yet" in said.out


def test_a_damaged_object_is_named(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = InMemory(tmp_path, monkeypatch)
    write(bucket.machine() / "runs" / "a")
    obstore.put(bucket.client, "runs/a/00000000000000000001.batch", b"rot")
    found = call(None, "audit", "a")
    assert found.code == 3 and "00000000000000000001.batch" in found.err + found.out.decode()


def test_work_on_a_disk_only_is_refused(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = InMemory(tmp_path, monkeypatch)
    write(bucket.machine() / "runs" / "a")
    for words in (("compact", "a"), ("rm", "a", "--yes"), ("audit", "a", "--quarantine")):
        done = call(None, *words)
        assert done.code == 2 and f"twin sync {URL} DIR" in " ".join(done.err.split()), words


def test_missing_credentials_are_one_message(plain: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TWIN_STORE", "s3://bucket/prefix")
    done = plain(None, "runs")
    assert done.code == 2 and done.out == b""
    assert done.err.startswith(
        "twin: s3://bucket/prefix: no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS"
    )
    assert plain(None, "--store", "s3:///prefix", "runs").err.startswith(
        "twin: s3:///prefix: write s3://BUCKET"
    )
