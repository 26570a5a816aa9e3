"""What `--live` and `--metrics-port` do: a screen and a server that show a state while a command works."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from commands.output import Output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ingest.core.progress import Progress
    from replay.live.metrics_server import Collect
    from replay.live.pace import Pace
    from replay.live.training_curves import CurvePoint
    from replay.log.fold import Fold

NO_TERMINAL = "--live needs a terminal as stderr; --metrics-port N serves the same figures"


class Both:
    """A `Progress` that passes steps on to two others."""

    def __init__(self, first: "Progress", second: "Progress") -> None:
        self._both = first, second

    def start(self, total: int | None, what: str, unit: str = "") -> None:
        """Begins a task."""
        for one in self._both:
            one.start(total, what, unit)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advances the task."""
        for one in self._both:
            one.advance(steps, note)


@contextmanager
def watching(
    out: Output,
    pace: "Pace",
    *,
    draw: Callable[[int, int], "RenderableType"] | None,
    port: int | None,
    collect: "Collect",
) -> Iterator["Progress"]:
    """Shows a state in the body, and yields the progress to report to, which `pace` sees.

    With `draw` it has the screen, where there is one; with `port` it is served. The screen takes the place of
    the progress bars.

    Raises:
        UsageError: the port is taken.
    """
    console = out.console
    with ExitStack() as stack:
        if port is not None:
            from replay.live.metrics_server import serving

            console.note(f"metrics: {stack.enter_context(serving(port, collect))}")
        if draw is not None and console.draws:
            stack.enter_context(console.screen(draw))
            yield pace
            return
        if draw is not None:
            console.note(NO_TERMINAL)
        yield Both(pace, stack.enter_context(console.progress()))


@contextmanager
def run(out: Output, live: bool, port: int | None) -> Iterator[tuple["Progress", "Fold | None"]]:
    """Yields the progress of a run and the fold that is to see its events; None where nobody looks."""
    if not live and port is None:
        with out.console.progress() as progress:
            yield progress, None
        return
    from commands.show import live_run
    from replay.live.pace import Pace
    from replay.live.run_metrics import run_metrics
    from replay.live.run_state import RunState

    state, pace = RunState(), Pace()
    draw = partial(live_run.screen, state, pace) if live else None
    with watching(
        out, pace, draw=draw, port=port, collect=lambda: run_metrics(state.latest, pace)
    ) as progress:
        yield progress, state


@contextmanager
def training(
    out: Output, live: bool, port: int | None
) -> Iterator[tuple["Progress", Callable[["CurvePoint"], None]]]:
    """Yields the progress of a training and the function that is to take its updates."""
    from commands.show import live_training
    from replay.live.pace import Pace
    from replay.live.run_metrics import training_metrics
    from replay.live.training_curves import TrainingCurves

    state, pace = TrainingCurves(), Pace()
    lines = live and not out.console.draws
    tell = live_training.UpdateLines(out.console, state).tell if lines else state.tell
    draw = partial(live_training.screen, state, pace) if live and not lines else None
    with watching(
        out, pace, draw=draw, port=port, collect=lambda: training_metrics(state.latest, pace)
    ) as progress:
        yield progress, tell
