"""The workers of a lab as ranks of `forked_ranks`, over loopback; its argument is the folder of plans."""

import sys
from pathlib import Path

from lab import stage_worker


def main() -> None:
    if "--whole" not in sys.argv:
        stage_worker.main(Path(sys.argv[1]))
