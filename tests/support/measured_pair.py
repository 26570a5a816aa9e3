"""A measured link that grows, in a lake."""

from pathlib import Path

import numpy as np

from ingest.pipeline.ingest import ingest
from twin.settings.disturbances import LinkChange

DESCRIBED = """name = "own"
table = "link_samples"
accept = ["rtt_s.constant"]
[columns]
ts = "time"
src = "from"
dst = "to"
bandwidth_bps = "mbps"
rtt_s = "rtt"
[units]
bandwidth_bps = "Mb/s"
rtt_s = "ms"
"""


SAME = LinkChange(src="d0", dst="d1", both_ways=True)


def measured(minutes: int, first: int = 0) -> str:
    """A sample of every link a minute; those of minute n are the same whatever else is asked for."""
    lines = ["time,from,to,mbps,rtt"]
    for minute in range(first, minutes):
        rates = np.random.default_rng(minute).uniform(1_000, 20_000, 6)
        pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
        stamp = f"2026-03-{1 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:00Z"
        lines += [f"{stamp},d{i},d{j},{r:.1f},20" for (i, j), r in zip(pairs, rates, strict=True)]
    return "\n".join(lines) + "\n"


def put(folder: Path, text: str, name: str = "links.csv") -> None:
    """Write a file of the set and ingest the set."""
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "dataset.toml").write_text(DESCRIBED)
    (folder / "own" / name).write_text(text)
    ingest([folder / "own"], folder / "store")
