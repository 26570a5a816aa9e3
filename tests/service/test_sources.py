"""Files that are followed and pages that are scraped: nothing is lost, nothing comes in twice."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import InputError, UsageError
from ingest.parsing import http_page
from replay.log.run_log import RunReader
from service.session.session import Session
from service.sources import tail
from service.sources.feeder import Feeder
from service.sources.rows import FollowedFile, items
from service.sources.scrape import ScrapedPage, observations
from service.sources.tail import FilePosition, FileTail
from tests.support.serving import links, toy_session


def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def done(feeder: Feeder, accepted: int) -> bool:
    return feeder.accepted >= accepted and feeder.refused >= 1


def everything(one: FileTail) -> list[bytes]:
    """All lines that are there now."""
    found: list[bytes] = []
    while (chunk := one.read()) is not None:
        found += chunk.lines
    return found


Reading = Callable[..., FileTail]


@pytest.fixture
def reading() -> Iterator[Reading]:
    """Begins to read files, which are closed in the end."""
    begun: list[FileTail] = []

    def one(path: Path, position: FilePosition | None = None, since_ns: int = 0) -> FileTail:
        begun.append(FileTail(path, position, since_ns))
        return begun[-1]

    yield one
    for each in begun:
        each.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "QUIET_S", 0.0)


def test_only_complete_lines_are_read_and_each_once(reading: Reading, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n2\r\n3")
    one = reading(path)
    assert everything(one) == [b"1", b"2"] and one.read() is None
    with path.open("ab") as file:
        file.write(b"3\n4\n")
    assert everything(one) == [b"33", b"4"]


@pytest.mark.parametrize("way", ["rename", "copytruncate"])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.usefixtures("at_once")
def test_a_rotation_loses_and_repeats_nothing(
    reading: Reading, tmp_path: Path, way: str, restarted: bool
) -> None:
    path, old = tmp_path / "a.jsonl", tmp_path / "a.jsonl.1"
    path.write_bytes(b"first\nsecond\n")
    one = reading(path)
    chunk = one.read()
    assert chunk is not None and chunk.lines == [b"first", b"second"]
    with path.open("ab") as file:
        file.write(b"late\nends without a newline")
    if way == "rename":
        path.rename(old)
    else:
        old.write_bytes(path.read_bytes())
        os.truncate(path, 0)
    os.utime(old, ns=(1, path.stat().st_mtime_ns - 10**9 if path.exists() else 1))
    path.write_bytes(b"new\n" + b"longer than before\n" * 3)
    if restarted:
        one = reading(path, FilePosition.parsed(chunk.position.text()))
    assert everything(one) == [b"late", b"ends without a newline", b"new", *[b"longer than before"] * 3]
    assert one.lost == ""


@pytest.mark.usefixtures("at_once")
def test_two_rotations_while_nobody_reads(reading: Reading, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\n")
    chunk = reading(path).read()
    assert chunk is not None
    for number, name in enumerate(("a.csv-20261126", "a.csv-20261127")):
        path.rename(tmp_path / name)
        os.utime(tmp_path / name, ns=(1, 10**9 * (number + 1)))
        path.write_bytes(f"{number}\n".encode())
    (tmp_path / "a.csv.bak").write_bytes(b"no part of it\n")
    assert everything(reading(path, chunk.position)) == [b"0", b"1"]
    assert everything(reading(path)) == [b"a", b"0", b"1"]  # nothing was taken before the rotations
    assert everything(reading(path, None, 2 * 10**9)) == [b"0", b"1"]


def test_a_file_that_is_gone_is_said_and_the_present_one_begun(reading: Reading, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n")
    chunk = reading(path).read()
    assert chunk is not None
    path.write_bytes(b"another\n")
    one = reading(path, chunk.position)
    assert everything(one) == [b"another"]
    assert "read to byte 2 is not there any more" in one.lost
    path.unlink()
    with pytest.raises(InputError, match="No such file"):
        reading(path).read()
    assert FilePosition.parsed("batch-17") is None


def test_rows_of_a_table_become_observations(reading: Reading, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "ts,src,dst,bandwidth_bps,rtt_s,kind\n2026-11-26T10:00:00.5Z,d0,d1,2e9,0.08,tcp\nx,d1,d0,fast,,\n"
    )
    chunk = reading(path).read()
    assert chunk is not None
    first, second = items(chunk, ".csv")
    at_ns = 1_795_687_200_500_000_000  # date -d 2026-11-26T10:00:00.5Z +%s%N
    link = {"kind": "link", "src": "d0", "dst": "d1", "bandwidth_bps": 2e9, "latency_s": 0.04}
    assert first == {**link, "epoch_ns": at_ns}
    assert second == {"kind": "link", "epoch_ns": "x", "src": "d1", "dst": "d0", "bandwidth_bps": "fast"}
    with pytest.raises(UsageError, match=r"a name in \.csv"):
        FollowedFile(tmp_path / "a.parquet")


@pytest.mark.usefixtures("at_once")
def test_a_followed_file_is_in_the_log_once_across_restarts_and_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store = tmp_path / "links.jsonl", tmp_path / "store"

    def add(seen: list[Any], *more: str) -> None:
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in (*map(json.dumps, seen), *more))

    add([{**item, "epoch_ns": 5} for item in links()])  # before the run: passed over
    for time_, (taken, old) in enumerate([(6, 6), (12, 0), (12, 0)]):
        if time_ == 2:
            path.rename(tmp_path / "links.jsonl.1")
        if time_:
            add(links())  # while no service runs
        session = toy_session(store, monkeypatch)
        add(links(3e9), "no JSON")
        feeder = Feeder(session, FollowedFile(path, 0.01))
        until(partial(done, feeder, taken))
        feeder.close()
        session.close()
        assert (feeder.accepted, feeder.refused, feeder.old, feeder.problem) == (taken, 1, old, "")
    samples = [tuple(row[:3]) for e in RunReader(session.run_dir).events() if e.type == "telemetry_received"
               for row in e.payload["links"]]  # fmt: skip
    assert len(samples) == len(set(samples)) == 30


def test_a_batch_that_the_full_disk_refused_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from service.session.inbox import StoppedError

    session = toy_session(tmp_path / "store", monkeypatch)
    observe, tries = session.observe, [0]

    def failing(batch: Any) -> Any:
        tries[0] += 1
        if tries[0] < 3:
            raise StoppedError("no space left")
        return observe(batch)

    monkeypatch.setattr(session, "observe", failing)
    monkeypatch.setattr("service.sources.feeder.AGAIN_S", 0.01)
    path = tmp_path / "links.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in links()))
    feeder = Feeder(session, FollowedFile(path, 0.01))
    until(lambda: feeder.accepted == 6)
    feeder.close()
    session.close()
    assert tries[0] == 3


PAGE = """# HELP link_bandwidth_bits_per_second of a probe
# TYPE link_bandwidth_bits_per_second gauge
link_bandwidth_bits_per_second{src="d0",dst="d1"} 2e9
link_latency_seconds{src="d0",dst="d1"} 0.04
twin_link_bandwidth_bytes_per_second{src="d1",dst="d0"} 1e8 1795687200500
twin_link_latency_seconds{src="d2",dst="d0"} 0.04
domain_gpus_alive{domain="d2"} 3
domain_slowdown_ratio{domain="d2"} NaN
process_cpu_seconds_total 12
"""


def test_a_page_of_metrics_becomes_observations() -> None:
    assert observations(PAGE, 7) == [
        (("link", "d0", "d1"),
         {"kind": "link", "src": "d0", "dst": "d1", "bandwidth_bps": 2e9, "latency_s": 0.04,
          "epoch_ns": 7}, False),
        (("link", "d1", "d0"),
         {"kind": "link", "src": "d1", "dst": "d0", "bandwidth_bps": 8e8,
          "epoch_ns": 1_795_687_200_500_000_000}, True),
        (("domain", "d2"), {"kind": "domain", "domain": "d2", "gpus": 3, "epoch_ns": 7}, False),
    ]  # fmt: skip


@pytest.fixture
def page() -> Iterator[tuple[str, list[str]]]:
    """An address, and the page there, which may be changed."""
    text = [PAGE]

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text[0].encode()
            self.send_response(200)
            self.end_headers()
            for part in (body[:50], body[50:]):
                self.wfile.write(part)
                time.sleep(0.1 if text[0].startswith("# slow") else 0)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/metrics?token=secret", text
    server.shutdown()
    server.server_close()


def test_a_page_is_scraped_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: tuple[str, list[str]]
) -> None:
    url, _ = page
    session: Session = toy_session(tmp_path, monkeypatch)
    feeder = Feeder(session, ScrapedPage(url, 0.02))
    until(lambda: feeder.accepted >= 6)
    feeder.close()
    assert (
        feeder.up and feeder.old + feeder.refused == 1
    )  # the sample with a time of its own: once, never again
    assert session.world.free_gpus[2] == 3
    session.close()


def test_a_page_that_is_no_page_of_metrics_is_said(
    page: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, text = page
    one = ScrapedPage(url, 0.0)
    assert one.fetch() is not None and "secret" not in one.name
    text[0] = "<html>"
    with pytest.raises(InputError, match="no metrics"):
        one.fetch()
    text[0] = "up 1\n"
    assert one.fetch() is None and "none of its metrics" in one.problem
    monkeypatch.setattr(http_page, "PAGE_BYTES", 2)
    with pytest.raises(InputError, match=r"/metrics.*: the page has more than"):
        one.fetch()
    monkeypatch.setattr(http_page, "PAGE_BYTES", 1 << 20)
    monkeypatch.setattr(http_page, "PATIENCE_S", 0.05)
    text[0] = "# slow" + " " * 100 + "\n" + PAGE
    with pytest.raises(InputError, match=r"not complete after 0.05 s|timed out"):
        one.fetch()
    with pytest.raises(InputError, match="refused"):
        ScrapedPage("http://127.0.0.1:9/metrics").fetch()
    with pytest.raises(UsageError, match="begins with http"):
        ScrapedPage("file:///etc/passwd")


def test_a_pipe_is_no_file_to_follow_and_holds_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "links.ndjson")
    source = FollowedFile(tmp_path / "links.ndjson")
    source.go_on(None, 0, time.time_ns)
    with pytest.raises(InputError, match="no regular file; only such a file can be followed"):
        source.fetch()


def test_lines_from_the_border_are_refused_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "links.ndjson"
    session = toy_session(tmp_path / "store", monkeypatch)
    bad = [
        b"[" * 50_000, b'{"kind":"link","epoch_ns":1e999}', b"\xff\xfe\x00", b"1" * 6_000,
        b'{"kind":["link"]}',
        json.dumps({**links()[1], "bandwidth_bps": 5e-324}).encode(), b'{"kind":"plan","state":"Running"}',
    ]  # fmt: skip
    path.write_bytes(b"\n".join([*bad, json.dumps(links()[0]).encode(), b""]))
    feeder = Feeder(session, FollowedFile(path, every_s=0.01))
    end = time.monotonic() + 20
    while (feeder.accepted, feeder.refused) != (1, len(bad)) and time.monotonic() < end:
        time.sleep(0.01)
    assert (feeder.accepted, feeder.refused, session.failure) == (1, len(bad), None)
    feeder.close()
    session.close()


def test_a_source_that_fails_in_any_way_is_said_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = toy_session(tmp_path / "store", monkeypatch)
    source = FollowedFile(tmp_path / "links.ndjson", every_s=0.01)
    calls: list[int] = []

    def fetch() -> None:
        calls.append(1)
        raise RecursionError("too deep")

    monkeypatch.setattr(source, "fetch", fetch)
    feeder = Feeder(session, source)
    end = time.monotonic() + 20
    while len(calls) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(calls) >= 3 and "RecursionError: too deep" in feeder.problem
    feeder.close()
    session.close()
