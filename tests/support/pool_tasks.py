"""Work for the processes of a pool: each imports this module anew, which imports next to nothing."""

import os
from pathlib import Path

from ingest.core.errors import UsageError


def echo(store: Path, item: int) -> int:
    return item


def echo_from(store: Path, item: int) -> tuple[int, int]:
    """The item, and the process that did it."""
    return item, os.getpid()


def refused(store: Path, item: int) -> int:
    raise UsageError(f"item {item} is wrong")
