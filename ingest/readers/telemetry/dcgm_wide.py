"""Wide CSV of DCGM at 10 Hz, one row for each GPU and tick, and the InfiniBand and BMC files beside it.

`<host>_telemetry.csv` goes to `gpu_samples`, `<host>_ib.csv` and `<host>_bmc.csv` to `host_samples`; the host
stands in the file name. Time is in seconds since 1970. `fp16_active`, phases, throttle reasons, port-wise
counters and BMC temperatures are not kept.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.core.units import MIB
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.cell_conversion import ColumnMapping
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_GPU_COLUMNS = (
    cell_conversion.epoch("ts", "timestamp"),
    cell_conversion.text("gpu", "gpu"),
    cell_conversion.text("gpu_model", "gpu_model"),
    cell_conversion.number("power_w", "power_w"),
    cell_conversion.number("temp_c", "temp_c"),
    cell_conversion.whole("mem_used_bytes", "mem_used_mib", MIB),
    cell_conversion.whole("mem_total_bytes", "mem_total_mib", MIB),
    cell_conversion.number("util", "gpu_util_pct", 0.01),  # per cent
    cell_conversion.number("sm_active", "sm_active"),
    cell_conversion.number("tensor_active", "tensor_active"),
    cell_conversion.number("dram_active", "dram_active"),
    cell_conversion.number("pcie_tx_bytes_s", "pcie_tx_bytes_s"),
    cell_conversion.number("pcie_rx_bytes_s", "pcie_rx_bytes_s"),
    cell_conversion.number("nvlink_tx_bytes_s", "nvlink_tx_bytes_s"),
    cell_conversion.number("nvlink_rx_bytes_s", "nvlink_rx_bytes_s"),
    cell_conversion.number("energy_j", "energy_mj", 1e-3),  # mJ since the driver was loaded
)
_NETWORK_COLUMNS = (
    cell_conversion.epoch("ts", "timestamp"),
    cell_conversion.number("net_tx_bytes_s", "total_tx_bytes_s"),
    cell_conversion.number("net_rx_bytes_s", "total_rx_bytes_s"),
)
_POWER_COLUMNS = (cell_conversion.epoch("ts", "timestamp"), cell_conversion.number("power_w", "sys_power_w"))
_KINDS: tuple[tuple[str, frozenset[str], tuple[ColumnMapping, ...]], ...] = (
    ("gpu_samples", frozenset({"timestamp", "gpu", "power_w", "gpu_util_pct", "sm_active"}), _GPU_COLUMNS),
    ("host_samples", frozenset({"timestamp", "total_tx_bytes_s", "total_rx_bytes_s"}), _NETWORK_COLUMNS),
    ("host_samples", frozenset({"timestamp", "sys_power_w"}), _POWER_COLUMNS),
)
"""Table, columns that identify the kind of file, and the mapping to its table."""


class DcgmWide:
    """DCGM, InfiniBand and BMC samples of one host."""

    name = "dcgm-wide"
    version = 1
    text_only = True
    by_name = True
    tables = ("gpu_samples", "host_samples")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header is that of one of the three kinds."""
        return _kind(csv_blocks.header(head)) is not None

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each row."""
        names = csv_blocks.header(source.head)
        kind = _kind(names)
        if kind is None or len(set(names)) != len(names):
            raise InputError(f"{source.shown}: not the header of a DCGM, InfiniBand or BMC file")
        table, made = kind
        columns = [column for column in made if column.source in names]
        constants = {"host": re.sub(r"_(telemetry|ib|bmc)$", "", source.path.stem)}
        yield from csv_blocks.side_by_side(source, cell_conversion.Typed(table, names, columns, constants))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("dcgm-wide: the host is the file's name without _telemetry, _ib or _bmc",)


def _kind(names: list[str]) -> tuple[str, tuple[ColumnMapping, ...]] | None:
    given = set(names)
    return next(((table, columns) for table, needed, columns in _KINDS if needed <= given), None)
