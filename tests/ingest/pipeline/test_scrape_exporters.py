"""Pages of real programs: the client library serves its own process, and what exporters said is kept here.

The pages in `recorded` are of node exporter 1.5.0 and of Prometheus 2.42.0, which scraped it; recorded by
ourselves with `tests/real/exporters.sh`, two each with some traffic in between.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.core.errors import InputError
from ingest.lake import duckdb_views, lake
from ingest.parsing.http_page import HttpAddress
from ingest.pipeline import scrape
from ingest.pipeline.metrics_page import ScrapedTarget

client = pytest.importorskip("prometheus_client")

RECORDED = Path(__file__).with_name("recorded")
T0_NS = 1_795_687_200_000_000_000


def host_samples(store: Path, columns: str = "net_tx_bytes_s, net_rx_bytes_s") -> list[tuple[object, ...]]:
    select = f"SELECT epoch_ns(ts), host, {columns} FROM host_samples ORDER BY ts"
    return duckdb_views.connect(store).execute(select).fetchall()


@pytest.fixture
def registry() -> Iterator[tuple[object, str]]:
    """A registry with the metrics of this process, and the address of its page."""
    held = client.CollectorRegistry()
    client.ProcessCollector(registry=held)
    client.PlatformCollector(registry=held)
    server, thread = client.start_http_server(0, "127.0.0.1", held)
    yield held, f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join()


def test_pages_of_the_client_library_are_read(registry: tuple[object, str], tmp_path: Path) -> None:
    held, url = registry
    sent = client.Counter(
        "node_network_transmit_bytes", 'Bytes "sent" \\ by device.\nAll of them.', ["device"], registry=held
    )
    watts = client.Gauge("ipmi_dcmi_power_consumption_watts", "Power.", registry=held)
    cpu_s = os.times().user
    clock = iter((T0_NS, T0_NS + 10**10, T0_NS + 2 * 10**10))
    target = ScrapedTarget(url)

    def read() -> int:
        # what the process really used is on the page beside ours
        watts.set(cpu_s + 1)
        sent.labels('e"th\\0').inc(5e8)
        sent.labels("lo").inc(7)
        return next(clock)

    done = scrape.scrape([target], tmp_path, every_s=0.002, rounds=3, wall=read)
    assert host_samples(tmp_path, "net_tx_bytes_s, power_w") == [
        (T0_NS + n * 10**10, "127.0.0.1", 5e7 if n else None, cpu_s + 1) for n in range(3)
    ]
    assert (done.rejected, done.unread, list(lake.datasets(tmp_path))) == (0, {}, ["scraped"])


def recorded(names: Iterator[str], monkeypatch: pytest.MonkeyPatch) -> ScrapedTarget:
    """A target that gives kept pages, one after the other."""
    monkeypatch.setattr(HttpAddress, "page", lambda *_: (RECORDED / next(names)).read_bytes())
    return ScrapedTarget("http://127.0.0.1:19100/metrics")


def test_recorded_pages_of_a_node_exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = recorded(iter(("node_exporter_1.prom", "node_exporter_2.prom")), monkeypatch)
    clock = iter((T0_NS, T0_NS + 10**10))
    done = scrape.scrape([target], tmp_path, every_s=0.002, rounds=2, wall=lambda: next(clock))
    # 371,046,232 bytes came, then 371,057,559; 560,520 bytes went, then 561,404
    assert host_samples(tmp_path) == [(T0_NS + 10**10, "127.0.0.1", 88.4, 1132.7)]
    assert (done.rejected, done.unread) == (0, {})


def test_recorded_answers_of_a_prometheus_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = recorded(iter(("prometheus_query_1.json", "prometheus_query_2.json")), monkeypatch)
    scrape.scrape([target], tmp_path, every_s=0.002, rounds=2)
    at_ns, span_s = 1795743725_226_000_000, 1795743725.226 - 1795743717.038
    rates = (pytest.approx(884 / span_s), pytest.approx(11327 / span_s))
    assert host_samples(tmp_path) == [(at_ns, "127.0.0.1", *rates)]


def test_process_metrics_alone_are_said_to_have_no_column(registry: tuple[object, str]) -> None:
    with pytest.raises(InputError, match="none of its metrics has a column in the lake"):
        ScrapedTarget(registry[1]).source(T0_NS)
