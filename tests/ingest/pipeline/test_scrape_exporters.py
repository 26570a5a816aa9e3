"""Pages of real programs: the client library serves its own process, and what exporters said is kept here.

`recorded/node_exporter.prom` and `recorded/prometheus_query.json` are ours: recorded by
`tests/real/exporters.sh` on a machine of ours.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.lake import duckdb_views, lake
from ingest.pipeline import scrape
from ingest.pipeline.metrics_page import ScrapedTarget

client = pytest.importorskip("prometheus_client")

T0_NS = 1_795_687_200_000_000_000


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
    rows = duckdb_views.connect(tmp_path).execute(
        "SELECT epoch_ns(ts), host, net_tx_bytes_s, power_w FROM host_samples ORDER BY ts"
    )
    assert rows.fetchall() == [
        (T0_NS + n * 10**10, "127.0.0.1", 5e7 if n else None, cpu_s + 1) for n in range(3)
    ]
    assert (done.rejected, done.unread, list(lake.datasets(tmp_path))) == (0, {}, ["scraped"])


def test_process_metrics_alone_are_said_to_have_no_column(registry: tuple[object, str]) -> None:
    with pytest.raises(Exception, match="none of its metrics has a column in the lake"):
        ScrapedTarget(registry[1]).source(T0_NS)
