"""Prints the learning curve during training: `twin train --live`."""

from collections.abc import Mapping
from typing import Protocol

from commands.show.console import Console

BLOCKS = " ▁▂▃▄▅▆▇█"
WIDTH = 24
"""Latest points in the sparkline of each line."""
SHOWN = ("loss", "reward", "moves", "entropy", "approx_kl", "epochs", "validation_score", "validation_moves")


class CurvePoint(Protocol):
    """One update, see `policy.hippo.training.state.LearningCurvePoint`."""

    stage: str
    update: int
    steps: int
    metrics: dict[str, float]


class Live:
    """Prints a line for each update: its figures, and a sparkline of the reward or the loss so far."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._curves: dict[str, list[float]] = {}

    def tell(self, point: CurvePoint) -> None:
        """Prints an update."""
        name = "loss" if "loss" in point.metrics else "reward"
        curve = self._curves.setdefault(point.stage, [])
        if name in point.metrics:
            curve.append(point.metrics[name])
        self._console.note(line(point.stage, point.update, point.steps, point.metrics, curve))


def line(stage: str, update: int, steps: int, metrics: Mapping[str, float], curve: list[float]) -> str:
    """Returns one update as text."""
    figures = "  ".join(f"{name} {metrics[name]:.4g}" for name in SHOWN if name in metrics)
    return f"{stage:9} {update:>5} {steps:>9,} steps  {sparkline(curve):{WIDTH}}  {figures}"


def sparkline(values: list[float]) -> str:
    """Returns the latest values as blocks, from the lowest to the highest."""
    latest = values[-WIDTH:]
    if not latest:
        return ""
    low, high = min(latest), max(latest)
    span = high - low or 1.0
    return "".join(BLOCKS[1 + round((value - low) / span * (len(BLOCKS) - 2))] for value in latest)
