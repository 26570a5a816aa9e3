"""Wide CSV of DCGM at 10 Hz, one row for each GPU and tick, and the InfiniBand and BMC files beside it.

`<host>_telemetry.csv` goes to `gpu_samples`, `<host>_ib.csv` and `<host>_bmc.csv` to `host_samples`; the host
stands in the file name. Time is in seconds since 1970. `fp16_active`, phases, throttle reasons, port-wise
counters and BMC temperatures are not kept.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from ingest.parsing import cell_conversion as cells, csv_blocks as csvfile
from ingest.parsing.cell_conversion import Column
from ingest.parsing.dataset import DatasetOptions
from ingest.core.errors import InputError
from ingest.parsing.reader import Batch
from ingest.parsing.source import Source
from ingest.core.units import MIB

_GPU_COLUMNS = (
    cells.epoch("ts", "timestamp"),
    cells.text("gpu", "gpu"),
    cells.text("gpu_model", "gpu_model"),
    cells.number("power_w", "power_w"),
    cells.number("temp_c", "temp_c"),
    cells.whole("mem_used_bytes", "mem_used_mib", MIB),
    cells.whole("mem_total_bytes", "mem_total_mib", MIB),
    cells.number("util", "gpu_util_pct", 0.01),  # per cent
    cells.number("sm_active", "sm_active"),
    cells.number("tensor_active", "tensor_active"),
    cells.number("dram_active", "dram_active"),
    cells.number("pcie_tx_bytes_s", "pcie_tx_bytes_s"),
    cells.number("pcie_rx_bytes_s", "pcie_rx_bytes_s"),
    cells.number("nvlink_tx_bytes_s", "nvlink_tx_bytes_s"),
    cells.number("nvlink_rx_bytes_s", "nvlink_rx_bytes_s"),
    cells.number("energy_j", "energy_mj", 1e-3),  # mJ since the driver was loaded
)
_NETWORK_COLUMNS = (
    cells.epoch("ts", "timestamp"),
    cells.number("net_tx_bytes_s", "total_tx_bytes_s"),
    cells.number("net_rx_bytes_s", "total_rx_bytes_s"),
)
_POWER_COLUMNS = (cells.epoch("ts", "timestamp"), cells.number("power_w", "sys_power_w"))
_KINDS: tuple[tuple[str, frozenset[str], tuple[Column, ...]], ...] = (
    ("gpu_samples", frozenset({"timestamp", "gpu", "power_w", "gpu_util_pct", "sm_active"}), _GPU_COLUMNS),
    ("host_samples", frozenset({"timestamp", "total_tx_bytes_s", "total_rx_bytes_s"}), _NETWORK_COLUMNS),
    ("host_samples", frozenset({"timestamp", "sys_power_w"}), _POWER_COLUMNS),
)
"""Table, columns that tell the kind of file, and what is made of it."""


class DcgmWide:
    """DCGM, InfiniBand and BMC samples of one host."""

    name = "dcgm-wide"
    version = 1
    by_name = True
    tables = ("gpu_samples", "host_samples")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """The header is that of one of the three kinds."""
        return _kind(csvfile.header(head)) is not None

    def read(self, source: Source, options: DatasetOptions) -> Iterator[Batch]:
        """A row for each row."""
        names = csvfile.header(source.head)
        kind = _kind(names)
        if kind is None or len(set(names)) != len(names):
            raise InputError(f"{source.shown}: not the header of a DCGM, InfiniBand or BMC file")
        table, made = kind
        columns = [column for column in made if column.source in names]
        constants = {"host": re.sub(r"_(telemetry|ib|bmc)$", "", source.path.stem)}
        yield from csvfile.side_by_side(source, cells.Typed(table, names, columns, constants))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Where the host's name comes from."""
        return ("dcgm-wide: the host is the file's name without _telemetry, _ib or _bmc",)


def _kind(names: list[str]) -> tuple[str, tuple[Column, ...]] | None:
    given = set(names)
    return next(((table, columns) for table, needed, columns in _KINDS if needed <= given), None)
