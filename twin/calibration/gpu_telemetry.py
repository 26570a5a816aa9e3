"""Samples of the GPUs of this machine, as nvidia-smi reports them while something runs."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from ingest.core.errors import InputError
from ingest.core.units import MIB

QUERY = "timestamp,index,name,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu,clocks.sm"


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One row of `gpu_samples`; field names are its columns."""

    ts: str
    host: str
    gpu: str
    gpu_model: str
    util: float | None
    mem_used_bytes: int | None
    mem_total_bytes: int | None
    power_w: float | None
    temp_c: float | None
    sm_clock_mhz: float | None


def _number(cell: str, scale: float = 1.0) -> float | None:
    """A cell of nvidia-smi, or nothing where the driver has no value."""
    try:
        return float(cell) * scale
    except ValueError:
        return None


def parse_sample(line: str, host: str) -> GpuSample:
    """One line of `nvidia-smi --query-gpu` (QUERY, noheader, nounits), stamped in UTC by this process.

    Percent become fractions and MiB bytes.

    Raises:
        InputError: the line does not have the nine fields of the query.
    """
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(QUERY.split(",")):
        raise InputError(f"nvidia-smi answered {line!r}: {len(cells)} fields of 9; check the driver")
    used, total = _number(cells[4], MIB), _number(cells[5], MIB)
    return GpuSample(
        ts=datetime.now(UTC).isoformat(),
        host=host,
        gpu=cells[1],
        gpu_model=cells[2],
        util=_number(cells[3], 0.01),
        mem_used_bytes=None if used is None else int(used),
        mem_total_bytes=None if total is None else int(total),
        power_w=_number(cells[6]),
        temp_c=_number(cells[7]),
        sm_clock_mhz=_number(cells[8]),
    )


@contextmanager
def telemetry(enabled: bool, interval_ms: int = 200, host: str = "localhost") -> Iterator[list[GpuSample]]:
    """Collect GPU samples in the background while the block runs."""
    samples: list[GpuSample] = []
    if not enabled:
        yield samples
        return
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", f"-lms={interval_ms}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = process.stdout
    thread = threading.Thread(target=lambda: samples.extend(parse_sample(line, host) for line in lines))
    thread.start()
    try:
        yield samples
    finally:
        process.terminate()
        thread.join()
