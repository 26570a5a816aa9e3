"""Pages of exporters on loopback become rows of the lake, within bounds; what fails is counted and said."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.core.errors import InputError, LockedError, UsageError
from ingest.lake import duckdb_views, lake
from ingest.parsing import http_page
from ingest.pipeline import scrape
from ingest.pipeline.metrics_page import ScrapedTarget
from tests.support.commands import Call, caller
from tests.support.kits_gpu import POWER, USED, answer, sample, series

GPU = "SELECT epoch_ns(ts), host, gpu, power_w, mem_used_bytes FROM gpu_samples ORDER BY ts, gpu"
HOST = "SELECT epoch_ns(ts), host, net_tx_bytes_s, power_w FROM host_samples ORDER BY ts"
T0_NS = 1_795_687_200_000_000_000
SENT = "node_network_transmit_bytes_total"


class Pages:
    """Pages by path; a list gives its next one each time, the last one for ever."""

    def __init__(self, url: str) -> None:
        self.url, self.by_path, self.asked = url, dict[str, Any](), list[str]()

    def page(self, path: str) -> tuple[int, str]:
        held = self.by_path[path]
        found = held.pop(0) if isinstance(held, list) and len(held) > 1 else held
        found = found[0] if isinstance(found, list) else found
        return found if isinstance(found, tuple) else (200, found)


@pytest.fixture
def pages() -> Iterator[Pages]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            status, text = served.page(self.path.partition("?")[0])
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            with suppress(OSError):  # who asked has hung up
                for part in text.split("\f"):  # a form feed: a pause
                    self.wfile.write(part.encode())
                    time.sleep(0.04 if "\f" in text else 0)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.block_on_close = False
    served = Pages(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield served
    server.shutdown()
    server.server_close()


@pytest.fixture
def twin(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsysbinary, monkeypatch)


def queried(store: Path, sql: str) -> list[tuple[Any, ...]]:
    return duckdb_views.connect(store).execute(sql).fetchall()


def scraped(pages: Pages, store: Path, rounds: int = 1, *paths: str) -> scrape.ScrapeTotals:
    """Reads some rounds; the clock of each is 10 s later."""
    clock = iter(range(T0_NS, T0_NS + 10**12, 10**10))
    targets = [ScrapedTarget(f"{pages.url}{path}") for path in paths or ("/metrics",)]
    return scrape.scrape(targets, store, every_s=0.002, rounds=rounds, wall=lambda: next(clock))


def test_samples_bear_the_instant_of_the_read_and_counters_become_rates(pages: Pages, tmp_path: Path) -> None:
    rest = f'{SENT}{{device="lo"}} 7\nipmi_dcmi_power_consumption_watts 500\nprocess_cpu_seconds_total 3'
    count = f'{SENT}{{device="eth0"}} '
    pages.by_path["/metrics"] = [
        "\n".join((sample(USED, 1024), count + sent, rest, sample(POWER, 397.5)))
        for sent in ("1e9", "1.5e9", "1e3")
    ]
    done = scraped(pages, tmp_path, 3)
    assert queried(tmp_path, GPU) == [(T0_NS + n * 10**10, "n31", "0", 397.5, 1 << 30) for n in range(3)]
    # 5e8 bytes in 10 s; then the exporter began again; the host is the address, as Prometheus has it
    rates = [(T0_NS, None), (T0_NS + 10**10, 5e7), (T0_NS + 2 * 10**10, None)]
    assert queried(tmp_path, HOST) == [(at, "127.0.0.1", rate, 500) for at, rate in rates]
    assert done.to_json()["rows"] == {"gpu_samples": 3, "host_samples": 3}
    # two commits of the rows: the first round, and the rest in the end
    assert done.commits == 2 and not done.rejected and not done.unread
    # every sample bears its instant: no spacing is assumed
    assert not any("apart" in text for text in lake.datasets(tmp_path)["scraped"].meta["assumptions"])


def test_a_sample_with_a_stamp_of_its_own_is_taken_once(pages: Pages, tmp_path: Path) -> None:
    pages.by_path["/metrics"] = f"{sample(POWER, 5)} {T0_NS // 10**6 - 250}\n"
    done = scraped(pages, tmp_path, 3)
    assert queried(tmp_path, GPU) == [(T0_NS - 250_000_000, "n31", "0", 5, None)]
    assert [one.pages for one in done.targets.values()] == [3]


def test_a_prometheus_server_is_asked_for_now_each_round_and_for_a_range_once(
    pages: Pages, tmp_path: Path
) -> None:
    one = {"metric": {"__name__": SENT, "device": "eth0", "instance": "n31:9100"}}
    pages.by_path = {
        "/api/v1/query": [
            answer(one | {"value": [T0_NS / 1e9 + at, str(sent)]}, kind="vector").decode()
            for at, sent in ((0, 100), (5, 600))
        ],
        "/api/v1/query_range": answer(series(POWER, [T0_NS / 1e9, "7"], [T0_NS / 1e9 + 15, "8"])).decode(),
    }
    done = scraped(pages, tmp_path, 2, "/api/v1/query?query=x", "/api/v1/query_range?query=x")
    assert queried(tmp_path, HOST) == [(T0_NS + 5 * 10**9, "n31", 100, None)]
    assert [row[3] for row in queried(tmp_path, GPU)] == [7, 8]
    assert sorted(one.pages for one in done.targets.values()) == [1, 2]
    again = scraped(pages, tmp_path, 9, "/api/v1/query_range?query=x")
    assert again.rounds == 1 and again.rows == {}  # it is in the lake, and ends by itself


def test_a_target_that_is_down_is_counted_and_said_once_and_the_others_go_on(
    pages: Pages, tmp_path: Path
) -> None:
    pages.by_path = {"/down": [(503, "")] * 2 + [sample(POWER, 1)], "/up": sample(POWER, 2, "1")}
    said: list[str] = []
    targets = [ScrapedTarget(f"{pages.url}/{name}") for name in ("down", "up")]
    done = scrape.scrape(targets, tmp_path, every_s=0.002, rounds=3, notify=said.append)
    down = f"{pages.url}/down"
    assert [line.partition(";")[0] for line in said] == [
        f"{down}: answers 503 Service Unavailable", f"{down}: answers again"
    ]  # fmt: skip
    assert done.targets[down].to_json() == {"pages": 1, "failed": 2, "problem": ""}
    assert done.rows == {"gpu_samples": 4}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<html>metrics</html>", "line 1 is not a sample of a metric"),
        ("up 1\n", "none of its metrics has a column in the lake; these do: DCGM_FI_"),
        (f"{POWER}{{gpu=0}} 1", "line 1: not a label"),
        ((302, ""), "answers 302, a redirect, which is not followed"),
        (sample(POWER, 1) + "\n# " + "x" * 3000, "the page has more than"),
        ("up 1\f" * 9, "the page was not complete after 0.1 s"),
        ('{"status": "success", "data": {"resultType": "vector", "result": 7}}', "not an answer of a Prom"),
        ('{"status": "success", "data": {"resultType": "vector", "result": [', "not an answer of a Prom"),
    ],
)
def test_what_is_no_page_of_metrics_within_bounds_is_refused(
    pages: Pages, text: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_page, "PAGE_BYTES", 2000)
    monkeypatch.setattr(http_page, "PATIENCE_S", 0.1)
    pages.by_path["/m"] = text
    with pytest.raises(InputError) as caught:
        ScrapedTarget(f"{pages.url}/m?token=secret").source(T0_NS)
    assert why in str(caught.value) and "secret" not in str(caught.value)
    assert len(pages.asked) == 1  # a redirect asks nobody else


@pytest.mark.parametrize(
    "url", ["ftp://n31/metrics", "n31:9100", "http://n31:port/", "http://n31/a b", "http://me:secret@n31/"]
)
def test_an_address_that_cannot_be_asked_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--scrape") as caught:
        ScrapedTarget(url)
    assert "secret" not in str(caught.value)


def test_an_interrupt_keeps_what_was_read(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.by_path["/metrics"] = sample(POWER, 1)

    def interrupted(seconds: float) -> None:
        if len(pages.asked) == 3:
            raise KeyboardInterrupt
        original(seconds)

    original = time.sleep
    monkeypatch.setattr(scrape, "time", SimpleNamespace(
        sleep=interrupted, monotonic=time.monotonic, time_ns=time.time_ns))  # fmt: skip
    done = scrape.ScrapeTotals("kept")
    with pytest.raises(KeyboardInterrupt):
        scrape.scrape([ScrapedTarget(f"{pages.url}/metrics")], tmp_path, every_s=0.002, into=done)
    assert done.rows == {"gpu_samples": 3} and {m.dataset for m in lake.live(tmp_path)} == {"kept"}


def test_another_writer_is_waited_for(pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.by_path["/metrics"] = sample(POWER, 1)
    calls: list[int] = []
    real = scrape.ingest_sources

    def locked(options: Any, sources: Any, store: Path) -> Any:
        calls.append(len(sources))
        if len(calls) in refused:
            raise LockedError("another process (pid 7) is writing here")
        return real(options, sources, store)

    monkeypatch.setattr(scrape, "ingest_sources", locked)
    monkeypatch.setattr(scrape, "COMMIT_S", 0.0)
    said: list[str] = []
    refused = {2}
    done = scrape.scrape(
        [ScrapedTarget(f"{pages.url}/metrics")], tmp_path, every_s=0.002, rounds=3, notify=said.append
    )
    assert calls == [1, 1, 2] and done.rows == {"gpu_samples": 3} and done.commits == 2
    assert said == ["another process (pid 7) is writing here; what came is kept for the next commit"]
    refused = {4, 5}
    with pytest.raises(LockedError):  # the first commit shows whether the lake can be written
        scraped(pages, tmp_path)


def test_commits_of_a_scrape_are_joined(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.by_path["/metrics"] = sample(POWER, 1)
    monkeypatch.setattr(scrape, "COMMIT_S", 0.0)
    done = scraped(pages, tmp_path, 9)
    assert (done.commits, done.merged, len(lake.live(tmp_path))) == (9, 8, 2)
    assert len(queried(tmp_path, GPU)) == 9


def test_the_command_reads_once_and_says_what_came(pages: Pages, tmp_path: Path, twin: Call) -> None:
    pages.by_path["/metrics"] = sample(POWER, 1)
    words = "ingest", "--scrape", f"{pages.url}/metrics", "--name", "n31", "--for-s", "0", "--json"
    assert twin(tmp_path, *words, "--dry-run").json["changes"] and not pages.asked
    done = twin(tmp_path, *words).json
    assert (done["schema"], done["dataset"], done["rows"]) == ("twin.scrape/1", "n31", {"gpu_samples": 1})
    down = twin(tmp_path, "ingest", "--scrape", "http://127.0.0.1:9/metrics", "--for-s", "0")
    assert down.code == InputError.exit_code and "no page could be read" in down.err
    for wrong in (["a.csv", "--scrape", "http://n31/"], ["--for-s", "1"], ["a.csv", "--every-s", "1"]):
        refused = twin(tmp_path, "ingest", *wrong)
        assert refused.code == UsageError.exit_code and "--scrape URL" in refused.err
