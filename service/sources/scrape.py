"""Link and domain observations from a page of metrics in Prometheus' text format.

| metric, labels | observation |
|---|---|
| `link_bandwidth_bps`, `link_bandwidth_bits_per_second` {src, dst} | bandwidth of a link |
| `link_bandwidth_bytes_per_second` {src, dst} | the same in bytes, as `twin replay --metrics-port` has it |
| `link_latency_seconds`, `link_latency_s` {src, dst} | its latency one way, beside a bandwidth |
| `domain_gpus_alive` {domain}, `domain_slowdown_ratio` {domain} | GPUs alive, computing time over nominal |

A prefix `twin_` is allowed; other metrics are passed over. A sample counts as made when its time stamp says,
or when it is read. Definition of the format: Prometheus, Exposition formats.
"""

import math
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from prometheus_client.parser import text_string_to_metric_families

from ingest.core.errors import InputError
from ingest.parsing.http_page import HttpAddress
from service.sources.feeder import SourceBatch

EVERY_S = 15.0
_LINK = {
    "link_bandwidth_bps": ("bandwidth_bps", 1), "link_bandwidth_bits_per_second": ("bandwidth_bps", 1),
    "link_bandwidth_bytes_per_second": ("bandwidth_bps", 8),
    "link_latency_seconds": ("latency_s", 1), "link_latency_s": ("latency_s", 1),
}  # fmt: skip
"""Field of the observation, and how many of its units one of the metric's is."""
_DOMAIN = {"domain_gpus_alive": "gpus", "domain_slowdown_ratio": "slowdown"}
Json = dict[str, Any]
Place = tuple[str, ...]


class ScrapedPage:
    """A page of metrics as a source of the service, read every `every_s`.

    Raises:
        UsageError: the address is none of HTTP, or holds a password.
    """

    def __init__(self, url: str, every_s: float = EVERY_S, *, wall: Callable[[], int] = time.time_ns) -> None:
        self._address = HttpAddress(url, "--scrape")
        self.name = f"scrape/{self._address.name}"
        self.every_s, self.problem = every_s, ""
        self._wall, self._shown = wall, self._address.shown
        self._next_s = 0.0
        self._stamps: dict[
            Place, int
        ] = {}  # time stamps of a page, by link or domain: a stale one is no news

    def go_on(self, key: str | None, since_ns: int, now_ns: Callable[[], int]) -> None:
        """Takes the clock of the run: a page tells of now, what was missed is gone."""
        self._wall = now_ns

    def fetch(self) -> SourceBatch | None:
        """Returns the observations of a page, when its time has come.

        Raises:
            InputError: it does not answer in time, or with something else than metrics.
        """
        if time.monotonic() < self._next_s:
            return None
        self._next_s = time.monotonic() + 0.9 * self.every_s  # who calls waits `every_s`
        text, now_ns = self._page(), self._wall()
        try:
            found = observations(text, now_ns)
        except ValueError as error:
            raise InputError(f"{self._shown}: no metrics in Prometheus' text format ({error})") from error
        fresh = [item for place, item, stamped in found if self._is_news(place, item["epoch_ns"], stamped)]
        self.problem = (
            "" if found else f"{self._shown}: none of its metrics is an observation of a link or domain"
        )
        own_clock = all(item["epoch_ns"] != now_ns for item in fresh)
        return SourceBatch(f"scrape:{uuid4().hex}", fresh, own_clock) if fresh else None

    def close(self) -> None:
        """Does nothing: a connection ends with its page."""

    def _is_news(self, place: Place, at_ns: int, stamped: bool) -> bool:
        if not stamped:
            return True
        before, self._stamps[place] = self._stamps.get(place), at_ns
        return before != at_ns

    def _page(self) -> str:
        return self._address.page("text/plain;version=0.0.4").decode("utf-8", "replace")


def observations(text: str, now_ns: int) -> list[tuple[Place, Json, bool]]:
    """Returns (link or domain, observation, whether the page said its time) of a page read at `now_ns`.

    Raises:
        ValueError: the text is none of metrics.
    """
    seen: dict[Place, Json] = {}
    times: dict[Place, int] = {}
    place: Place
    samples = (one for family in text_string_to_metric_families(text) for one in family.samples)
    for sample in samples:
        name, labels, scale = sample.name.removeprefix("twin_"), sample.labels, 1
        if name in _LINK and "src" in labels and "dst" in labels:
            place, (field, scale) = ("link", labels["src"], labels["dst"]), _LINK[name]
            item = seen.setdefault(place, {"kind": "link", "src": labels["src"], "dst": labels["dst"]})
        elif name in _DOMAIN and "domain" in labels:
            place, field = ("domain", labels["domain"]), _DOMAIN[name]
            item = seen.setdefault(place, {"kind": "domain", "domain": labels["domain"]})
        else:
            continue
        if math.isnan(sample.value):  # Prometheus' mark of a series that has ended
            continue
        whole = field == "gpus" and math.isfinite(sample.value)
        item[field] = int(sample.value) if whole else scale * sample.value
        if sample.timestamp is not None:
            times[place] = max(times.get(place, 0), round(float(sample.timestamp) * 1e3) * 1_000_000)
    return [
        (place, {**item, "epoch_ns": times.get(place, now_ns)}, place in times)
        for place, item in seen.items()
        if {"bandwidth_bps", "gpus", "slowdown"} & item.keys()
    ]
