"""Section of the traffic between domains: heat maps of bytes."""

from collections.abc import Mapping

from ingest.core.units import GB
from replay.report.drawing.section import Section, section
from replay.report.run_data import RunData
from twin.core.domain import Pair


def traffic(run: RunData) -> Section | None:
    """Bytes between domains: a heat map of training and one of moves."""
    maps = [
        (name, _heat_map(sums, len(run.domains)))
        for name, sums in (("Training", run.training_bytes), ("Moves", run.moved_bytes))
        if any(sums.values())
    ]
    return section("traffic", "Traffic between domains", maps=maps, domains=run.domains) if maps else None


def _heat_map(sums: Mapping[Pair, int], domains: int) -> list[list[tuple[str, float]]]:
    """(GB, shade) of every cell, from row to column; shade 0 without traffic."""
    highest, count = max(sums.values()), range(domains)
    cells = {pair: (f"{sent / GB:,.1f}", 0.08 + 0.36 * sent / highest) for pair, sent in sums.items() if sent}
    return [[cells.get((i, j), ("" if i == j else "0", 0.0)) for j in count] for i in count]
