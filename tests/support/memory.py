"""Bounds on the memory that a piece of code takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def bounded_memory(most_mib: int) -> Iterator[None]:
    """Fails if the process's memory rose by more than that inside; checks nothing without /proc."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        yield
        return
    reset.write_text("5")  # the high-water mark begins anew
    before = _mib(status, "VmRSS")
    yield
    assert _mib(status, "VmHWM") - before < most_mib


def _mib(status: Path, key: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) // 1024
