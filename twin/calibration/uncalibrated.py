"""Profiles in the lake that `twin calibrate` fitted nothing to, and why: nothing is left out in silence."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twin.calibration.calibrate import LEAST_ROWS, Profiles, levels, model_of, profiles
from twin.calibration.calibration import Calibration


@dataclass(frozen=True, slots=True)
class Unfitted:
    """Rows of one GPU model that no constant came of."""

    gpu: str
    what: str
    rows: int
    why: str

    def to_json(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)


def unfitted(store: Path, found: Calibration) -> tuple[Unfitted, ...]:
    """What the lake has beside the rows that `found` is fitted to."""
    lake = profiles(store)
    return (*_layers(lake, found), *_collectives(lake, found))


def _layers(lake: Profiles, found: Calibration) -> Iterator[Unfitted]:
    for name, count in sorted(Counter(row["gpu_model"] for row in lake.layers).items()):
        kind = model_of(name)
        if kind is None:
            yield Unfitted(name, "layers", count, "the twin knows no GPU of this name")
        elif not any("all-reduce" not in fit and fit != "power" for fit in found.gpus.get(kind, {})):
            yield Unfitted(
                name, "layers", count, f"no {LEAST_ROWS} products, attentions or blocks whose work is known"
            )


def _collectives(lake: Profiles, found: Calibration) -> Iterator[Unfitted]:
    for name in sorted({row["gpu_model"] for row in lake.collectives}):
        rows, kind = [row for row in lake.collectives if row["gpu_model"] == name], model_of(name)
        if kind is None:
            yield Unfitted(name, "all-reduces", len(rows), "the twin knows no GPU of this name")
            continue
        for fit, _, chosen in levels(kind, rows):
            if fit not in found.gpus.get(kind, {}):
                few = len(chosen) < LEAST_ROWS
                why = (
                    f"fewer than {LEAST_ROWS} sizes"
                    if few
                    else "no latency and bandwidth above 0 explain them"
                )
                yield Unfitted(name, fit, len(chosen), why)
