"""Percentile billing: the 95th percentile of five-minute averages of outgoing traffic."""

import math
from collections import defaultdict

import numpy as np

from ingest.core.units import BITS_PER_BYTE, NS_PER_S

INTERVAL_NS = 300 * NS_PER_S


class BillingMeter:
    """Bytes by sending domain and five-minute interval; memory grows with the number of intervals."""

    def __init__(self) -> None:
        self._bytes: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, start_ns: int, end_ns: int, links: list[list[int]]) -> None:
        """Adds `links`, [source, destination, bytes] each, sent evenly over [start_ns, end_ns)."""
        length_ns = end_ns - start_ns
        for source, _, size in links:
            from_ns = start_ns
            meter = self._bytes[source]
            if length_ns <= 0:
                meter[start_ns // INTERVAL_NS] += size
            while from_ns < end_ns:
                interval = from_ns // INTERVAL_NS
                until_ns = min(end_ns, (interval + 1) * INTERVAL_NS)
                meter[interval] += size * (until_ns - from_ns) / length_ns
                from_ns = until_ns

    def p95_bps(self, end_ns: int) -> float:
        """95th percentile (nearest rank) of each domain's rate over all intervals, summed; bit/s."""
        intervals = max(1, -(-end_ns // INTERVAL_NS))
        total = 0.0
        for source in sorted(self._bytes):
            rates = np.zeros(intervals)
            for interval, size in self._bytes[source].items():
                rates[min(interval, intervals - 1)] += size * BITS_PER_BYTE * NS_PER_S / INTERVAL_NS
            rates.sort()
            total += float(rates[math.ceil(0.95 * intervals) - 1])
        return total
