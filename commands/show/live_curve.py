"""The curve of a training while it grows: `twin train --live`."""

from collections.abc import Mapping
from typing import Protocol

from commands.show.console import Console

BLOCKS = " ▁▂▃▄▅▆▇█"
WIDTH = 24
"""Points of the small curve beside each line, the latest."""
SHOWN = ("loss", "reward", "moves", "entropy", "approx_kl", "epochs", "validation_score", "validation_moves")


class Point(Protocol):
    """One update, see `policy.hippo.standing.Update`."""

    stage: str
    update: int
    steps: int
    metrics: dict[str, float]


class Live:
    """Prints a line for each update: its figures, and the course of the reward or the loss so far."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._course: dict[str, list[float]] = {}

    def tell(self, point: Point) -> None:
        """An update was made."""
        name = "loss" if "loss" in point.metrics else "reward"
        course = self._course.setdefault(point.stage, [])
        if name in point.metrics:
            course.append(point.metrics[name])
        self._console.note(line(point.stage, point.update, point.steps, point.metrics, course))


def line(stage: str, update: int, steps: int, metrics: Mapping[str, float], course: list[float]) -> str:
    """One update as text."""
    figures = "  ".join(f"{name} {metrics[name]:.4g}" for name in SHOWN if name in metrics)
    return f"{stage:9} {update:>5} {steps:>9,} steps  {sparkline(course):{WIDTH}}  {figures}"


def sparkline(values: list[float]) -> str:
    """The latest values as blocks, from the lowest to the highest."""
    latest = values[-WIDTH:]
    if not latest:
        return ""
    low, high = min(latest), max(latest)
    span = high - low or 1.0
    return "".join(BLOCKS[1 + round((value - low) / span * (len(BLOCKS) - 2))] for value in latest)
