"""Profiles in the lake to which `twin calibrate` fitted no constant, with the reason."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twin.calibration.calibrate import LEAST_ROWS, Profiles, levels, model_of, profiles
from twin.calibration.calibration import Calibration


@dataclass(frozen=True, slots=True)
class UncalibratedRows:
    """Rows of one GPU model to which no constant was fitted."""

    gpu: str
    what: str
    rows: int
    why: str

    def to_json(self) -> dict[str, Any]:
        """Field by field."""
        return asdict(self)


def uncalibrated(store: Path, found: Calibration) -> tuple[UncalibratedRows, ...]:
    """Rows of the lake to which `found` has no fit."""
    lake = profiles(store)
    return (*_layers(lake, found), *_collectives(lake, found))


def _layers(lake: Profiles, found: Calibration) -> Iterator[UncalibratedRows]:
    for name, count in sorted(Counter(row["gpu_model"] for row in lake.layers).items()):
        kind = model_of(name)
        if kind is None:
            yield UncalibratedRows(name, "layers", count, "the twin knows no GPU of this name")
        elif not any("all-reduce" not in fit and fit != "power" for fit in found.gpus.get(kind, {})):
            yield UncalibratedRows(
                name, "layers", count, f"no {LEAST_ROWS} products, attentions or blocks whose work is known"
            )


def _collectives(lake: Profiles, found: Calibration) -> Iterator[UncalibratedRows]:
    for name in sorted({row["gpu_model"] for row in lake.collectives}):
        rows, kind = [row for row in lake.collectives if row["gpu_model"] == name], model_of(name)
        if kind is None:
            yield UncalibratedRows(name, "all-reduces", len(rows), "the twin knows no GPU of this name")
            continue
        for fit, _, chosen in levels(kind, rows):
            if fit not in found.gpus.get(kind, {}):
                few = len(chosen) < LEAST_ROWS
                why = (
                    f"fewer than {LEAST_ROWS} sizes"
                    if few
                    else "no latency and bandwidth above 0 explain them"
                )
                yield UncalibratedRows(name, fit, len(chosen), why)
