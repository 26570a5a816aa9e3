"""Predicted against observed, from the events of a run: next telemetry per link, iteration time per domain.

Errors are relative to what was observed, predicted / observed - 1: a positive bias promises more bandwidth,
or longer iterations, than there was. MAPE is the mean of their absolute values.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ingest.units import NS_PER_S
from replay.events import Event
from twin.domain import LinkState
from twin.kalman import LinkFilter


@dataclass(slots=True)
class Errors:
    """Sums over `count` predictions."""

    count: int = 0
    signed: float = 0.0
    absolute: float = 0.0

    def add(self, predicted: float, observed: float, count: int = 1) -> None:
        """`count` equal predictions and observations; `observed` > 0."""
        error = predicted / observed - 1
        self.count += count
        self.signed += error * count
        self.absolute += abs(error) * count

    @property
    def bias(self) -> float | None:
        """Mean relative error; None without any prediction."""
        return self.signed / self.count if self.count else None

    @property
    def mape(self) -> float | None:
        """Mean absolute relative error; None without any prediction."""
        return self.absolute / self.count if self.count else None


def of_links(events: Iterable[Event], filter_: LinkFilter) -> dict[tuple[int, int], Errors]:
    """Take all telemetry of a log into `filter_`; errors of the bandwidth it forecast for each sample before.

    A link that is dead, or was dead at the sample before, has no forecast to judge.
    """
    size = filter_.size
    links = list(zip(filter_.rows.tolist(), filter_.columns.tolist(), strict=True))
    found = {link: Errors() for link in links}
    for event in events:
        if event.type != "link_observed":
            continue
        now_ns = event.payload["sampled_ns"]
        seen = LinkState(np.full((size, size), np.inf), np.zeros((size, size)))
        for i, j, bandwidth_bps, latency_s in event.payload["samples"]:
            seen.bandwidth_bps[int(i), int(j)] = bandwidth_bps
            seen.latency_s[int(i), int(j)] = latency_s
        expected = filter_.present_bps(now_ns)[filter_.rows, filter_.columns]
        for link, dead, bandwidth_bps in zip(links, filter_.dead.tolist(), expected.tolist(), strict=True):
            if not dead and 0 < seen.bandwidth_bps[link] < np.inf:
                found[link].add(bandwidth_bps, float(seen.bandwidth_bps[link]))
        filter_.observe(now_ns, seen)
    return found


def of_domains(events: Iterable[Event], size: int) -> list[Errors]:
    """Errors of the iteration times that decisions predicted, over the iterations until the job's next one,
    for each of `size` domains while it was in the plan."""
    found = [Errors() for _ in range(size)]
    predicted: dict[str, float | None] = {}
    for event in events:
        if event.type == "decided":
            predicted[event.job] = event.payload["predicted_iter_s"]
        elif event.type == "iteration_done":
            expected = predicted.get(event.job)
            if expected is None:
                continue
            for domain, active_ns in enumerate(event.payload["active_ns"]):
                if active_ns > 0:
                    for count, ns in event.payload["durations"]:
                        found[domain].add(expected, ns / NS_PER_S, count)
    return found
