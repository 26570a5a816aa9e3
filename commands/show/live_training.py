"""Draws a training that goes on: `twin train --live`; a line for each update where there is no terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from commands.show.console import Console, cell
from commands.show.live_run import clock
from ingest.core.terminal import in_line
from replay.live.pace import Pace
from replay.live.training_curves import CurvePoint, StageNow, TrainingCurves

BLOCKS = " ▁▂▃▄▅▆▇█"
WIDTH = 24
"""Latest points in the sparkline of each line, and the least of those on a screen."""
STAGE_LINES = 3
"""Lines of a stage on the screen: title, headings, figures."""
SHOWN = ("loss", "reward", "moves", "entropy", "approx_kl", "epochs", "validation_score", "validation_moves")


class UpdateLines:
    """Prints a line for each update: its figures, and a sparkline of the reward or the loss so far."""

    def __init__(self, console: Console, state: TrainingCurves) -> None:
        self._console, self._state = console, state

    def tell(self, point: CurvePoint) -> None:
        """Prints an update, after the state has taken it."""
        self._state.tell(point)
        stage = next(stage for stage in self._state.latest if stage.name == point.stage)
        figures = "  ".join(f"{name} {point.metrics[name]:.4g}" for name in SHOWN if name in point.metrics)
        curve = sparkline(stage.curve)
        self._console.note(
            f"{point.stage:9} {point.update:>5} {point.steps:>9,} steps  {curve:{WIDTH}}  {figures}"
        )


def screen(state: TrainingCurves, pace: Pace, width: int, height: int) -> RenderableType:
    """Returns the state as text for a terminal of this size, of the latest stages as many as fit."""
    left = "" if pace.left_s is None else f", {clock(pace.left_s)} left"
    of = "" if pace.total is None else f" of {pace.total:,}"
    task = f"{in_line(pace.what)}: step {pace.done:,}{of}, {clock(pace.elapsed_s)}{left}"
    stages = state.latest[-max(1, (height - 1) // STAGE_LINES) :]
    return Group(Text(task, style="bold"), *(_stage(stage, max(WIDTH, width // 3)) for stage in stages))


def _stage(stage: StageNow, points: int) -> RenderableType:
    title = f"{stage.name}: {stage.updates} updates, {stage.steps:,} steps of the environment"
    table = Table(box=None, pad_edge=False)
    shown = [name for name in SHOWN if name in stage.metrics]
    for name in (f"{stage.figure} so far", *shown):
        table.add_column(name)
    table.add_row(sparkline(stage.curve, points), *(cell(stage.metrics[name]) for name in shown))
    return Group(Text(title, style="italic"), table)


def sparkline(values: Sequence[float], points: int = WIDTH) -> str:
    """Returns the latest values as blocks, from the lowest to the highest."""
    latest = values[-points:]
    if not latest:
        return ""
    low, high = min(latest), max(latest)
    span = high - low or 1.0
    return "".join(BLOCKS[1 + round((value - low) / span * (len(BLOCKS) - 2))] for value in latest)
