"""`--live` on a terminal: the screens of a training and of a run are drawn at the size that it has."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import pytest
import rich.console

from commands import live
from commands.output import Output
from commands.show.console import Console
from policy.hippo.training.state import LearningCurvePoint


class Terminal(Output):
    """An output whose stderr is a terminal of 100 columns and 12 lines."""

    @cached_property
    def console(self) -> Console:
        console = Console()
        console._err = rich.console.Console(
            file=io.StringIO(), force_terminal=True, width=100, height=12, color_system=None, highlight=False
        )
        return console

    @property
    def drawn(self) -> str:
        file = self.console._err.file
        assert isinstance(file, io.StringIO)
        return file.getvalue()


@contextmanager
def trained(updates: int, stages: int = 1) -> Iterator[Terminal]:
    terminal = Terminal()
    with live.training(terminal, True, None) as (progress, tell):
        progress.start(updates, "PPO")
        for stage in range(stages):
            for update in range(updates):
                metrics = {"loss": 1.0 / (update + 1), "reward": float(update)}
                tell(LearningCurvePoint(f"stage-{stage}", update, 64 * update, metrics))
                progress.advance(1)
        yield terminal


def test_a_training_is_drawn() -> None:
    with trained(updates=5) as terminal:
        pass
    assert "PPO: step 5 of 5" in terminal.drawn
    assert "stage-0: 5 updates" in terminal.drawn


def test_what_fits_the_screen_are_the_latest_stages() -> None:
    with trained(updates=2, stages=6) as terminal:
        pass
    last = terminal.drawn.rpartition("PPO: ")[2]
    assert "stage-5" in last and "stage-2" not in last


@pytest.mark.parametrize("shown", [True, False])
def test_a_run_is_drawn_where_somebody_looks(shown: bool) -> None:
    terminal = Terminal()
    with live.run(terminal, shown, None) as (progress, fold):
        progress.start(3, "links")
    assert (fold is not None) is shown
    assert ("preparing links" in terminal.drawn) is shown
