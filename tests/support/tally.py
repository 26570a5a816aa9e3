"""Counts what tests tried, for the table of benchmarks/replay/reliability.py."""

import os
from pathlib import Path

EFFORT = int(os.environ.get("TWIN_CRASH_EFFORT", "1"))
"""Times the default number of kills, cuts and flips: 5 for every change, 100 for a night."""


def tally(test: str, tried: int) -> None:
    """Note that `test` tried so many things; without TWIN_TALLY this does nothing."""
    if path := os.environ.get("TWIN_TALLY"):
        with Path(path).open("a") as out:
            out.write(f"{test} {tried}\n")
