"""The command line of the pages about queues: measurements in, a page on standard output or in a file."""

import argparse
from collections.abc import Callable
from pathlib import Path

from ingest.core.durable import replace


def write_or_print(page: Callable[[Path], str], about: str | None) -> None:
    """Makes a page from the folder of measurements that the command names; `about` is its help."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("shared", type=Path, help="folder of measurements")
    parser.add_argument("--page", type=Path, help="file to write [standard output]")
    said = parser.parse_args()
    text = page(said.shared)
    if said.page:
        replace(said.page, text.encode())
    else:
        print(text)
