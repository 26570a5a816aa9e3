"""Samples of Prometheus metrics, pivoted into rows: one for each GPU or host and instant.

Known are the metrics of NVIDIA's dcgm-exporter and of the node exporter that have a canonical column; others
are passed over. DCGM's units are in its field names' documentation: per cent, MiB, W, mJ, MHz, bytes/s.
Counters of the node exporter become rates between two samples of one series; the first sample of a series,
and one after a restart of its counter, give none.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.core.units import MIB, NS_PER_S
from ingest.parsing.json_values import amount, number, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder

GPU_METRICS: dict[str, tuple[str, float]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("util", 0.01),  # per cent
    "DCGM_FI_DEV_FB_USED": ("mem_used_bytes", MIB),
    "DCGM_FI_DEV_FB_FREE": ("_free_bytes", MIB),
    "DCGM_FI_DEV_FB_TOTAL": ("mem_total_bytes", MIB),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("temp_c", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1.0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_j", 1e-3),  # mJ since the driver was loaded
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active", 1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_bytes_s", 1.0),  # a rate in spite of the name
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_bytes_s", 1.0),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_bytes_s", 1.0),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_bytes_s", 1.0),
}
"""Metric of dcgm-exporter: canonical column and factor to its unit."""
HOST_GAUGES = {"ipmi_dcmi_power_consumption_watts": "power_w"}
HOST_COUNTERS = {
    "node_network_transmit_bytes_total": "net_tx_bytes_s",
    "node_network_receive_bytes_total": "net_rx_bytes_s",
}
_LOOPBACK = "lo"
MOST_SERIES = 1_000_000
"""Series that are held in memory at a time."""
_GPU_COLUMNS = tuple(dict.fromkeys(c for c, _ in GPU_METRICS.values() if not c.startswith("_")))
_HOST_COLUMNS = ("power_w", "net_tx_bytes_s", "net_rx_bytes_s")
_BYTES = frozenset({"mem_used_bytes", "mem_total_bytes", "_free_bytes"})


@dataclass(slots=True)
class _Group:
    """Values of one GPU or host at one instant."""

    row: int
    named: tuple[Any, ...]
    values: dict[str, float] = field(default_factory=dict)


class Scrapes:
    """Samples in, rows out. `batches` yields the rows since its last call.

    tolerance_ns: a sample joins the nearest row of its GPU that lacks its metric and began at most so long
    before or after; for collectors that ask for one metric after the other.
    """

    def __init__(self, tolerance_ns: int = 0) -> None:
        self._tolerance_ns = tolerance_ns
        self._instants: dict[tuple[str, str], list[int]] = {}
        self._gpus: dict[tuple[int, str, str], _Group] = {}
        self._hosts: dict[tuple[int, str], _Group] = {}
        self._last: dict[tuple[str, str, str], tuple[int, float]] = {}
        self._gpu_rows = RowBuilder("gpu_samples", ("ts", "host", "gpu", "gpu_model", *_GPU_COLUMNS))
        self._host_rows = RowBuilder("host_samples", ("ts", "host", *_HOST_COLUMNS))

    def __len__(self) -> int:
        return len(self._gpus) + len(self._hosts)

    def add(self, row: int, ts_ns: int, metric: str, labels: Mapping[str, str], value: Any) -> None:
        """Adds one sample.

        Raises:
            ValueError: its value or its labels cannot be used.
        """
        if metric in GPU_METRICS:
            self._add_gpu(row, ts_ns, metric, labels, number(value))
        elif metric in HOST_GAUGES:
            self._host(row, ts_ns, labels).values[HOST_GAUGES[metric]] = amount(value)
        elif metric in HOST_COUNTERS and labels.get("device") != _LOOPBACK:
            self._add_counter(row, ts_ns, metric, labels, amount(value))

    def reject(self, row: int, column: str, raw: Any, reason: str | Exception) -> None:
        """Rejects a sample that cannot be used."""
        self._gpu_rows.reject(row, column, raw, reason)

    def batches(self) -> Iterator[RowBatch]:
        """Yields the rows of all groups so far, in the order in which they began."""
        for (ts_ns, _, _), group in self._gpus.items():
            values = group.values
            free = values.pop("_free_bytes", None)
            if free is not None and "mem_used_bytes" in values:
                values.setdefault("mem_total_bytes", values["mem_used_bytes"] + free)
            made = [values.get(name) for name in _GPU_COLUMNS]
            self._gpu_rows.add(group.row, ts_ns, *group.named, *made)
        for (ts_ns, _), group in self._hosts.items():
            if group.values:  # the first sample of a counter alone says nothing
                made = [group.values.get(name) for name in _HOST_COLUMNS]
                self._host_rows.add(group.row, ts_ns, *group.named, *made)
        self._gpus, self._hosts, self._instants = {}, {}, {}
        yield self._gpu_rows.batch()
        yield self._host_rows.batch()

    def _add_gpu(self, row: int, ts_ns: int, metric: str, labels: Mapping[str, str], value: float) -> None:
        gpu = labels.get("gpu") or labels.get("UUID")
        if not gpu:
            raise ValueError("no label gpu or UUID")
        if not -1e300 < value < 1e300:
            raise ValueError(f"{value} is not finite")
        host = _host_of(labels)
        model = labels.get("modelName") or None
        column, factor = GPU_METRICS[metric]
        at_ns = self._nearest(ts_ns, host, gpu, column) if self._tolerance_ns else ts_ns
        group = self._gpus.setdefault((at_ns, host, gpu), _Group(row, (host or None, gpu, model)))
        if column in group.values:
            raise ValueError(f"a second value of {metric} at one instant")
        group.values[column] = round(value * factor) if column in _BYTES else value * factor

    def _nearest(self, ts_ns: int, host: str, gpu: str, column: str) -> int:
        """Instant of the row that a sample joins; a new one begins where none is near enough."""
        instants = self._instants.setdefault((host, gpu), [])
        low = bisect_left(instants, ts_ns - self._tolerance_ns)
        high = bisect_right(instants, ts_ns + self._tolerance_ns)
        lacking = [t for t in instants[low:high] if column not in self._gpus[t, host, gpu].values]
        if lacking:
            return min(lacking, key=lambda t: (abs(t - ts_ns), t))
        if ts_ns not in instants[low:high]:
            insort(instants, ts_ns)
        return ts_ns

    def _host(self, row: int, ts_ns: int, labels: Mapping[str, str]) -> _Group:
        host = _host_of(labels)
        return self._hosts.setdefault((ts_ns, host), _Group(row, (host or None,)))

    def _add_counter(
        self, row: int, ts_ns: int, metric: str, labels: Mapping[str, str], value: float
    ) -> None:
        series = metric, _host_of(labels), labels.get("device", "")
        if len(self._last) >= MOST_SERIES and series not in self._last:
            raise ValueError(f"more than {MOST_SERIES} series of counters")
        before = self._last.get(series)
        self._last[series] = ts_ns, value
        group = self._host(row, ts_ns, labels)
        if before is not None and ts_ns > before[0] and value >= before[1]:
            rate = (value - before[1]) / ((ts_ns - before[0]) / NS_PER_S)
            column = HOST_COUNTERS[metric]
            group.values[column] = group.values.get(column, 0.0) + rate


def instant_ns(seconds: float) -> int:
    """Returns an instant in ns; a double holds today's seconds to 0.24 us, hence rounded to microseconds.

    Raises:
        ValueError, OverflowError: it is not finite, or far from today.
    """
    return whole(round(seconds * 1e6) * 1000)


def _host_of(labels: Mapping[str, str]) -> str:
    """The host a sample comes from; the instance's port is no part of it."""
    name = labels.get("Hostname") or labels.get("nodename") or labels.get("instance", "")
    before, colon, port = name.rpartition(":")
    return before if colon and port.isdigit() else name
