"""What people see while something runs, and how values are written."""

import io
from typing import Any

import pytest
import rich.console

from ingest.progress import SILENT
from replay.console import Console, cell


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (False, "no"), (0.123456, "0.1235"), (12345.6, "12,346"), (12345, "12,345")],
)  # fmt: skip
def test_values_are_written_for_people(value: Any, text: str) -> None:
    assert cell(value) == text


def test_a_terminal_gets_bars_and_a_pipe_gets_none() -> None:
    console = Console()
    with console.progress() as progress:
        assert progress is SILENT
    screen = io.StringIO()
    console._err = rich.console.Console(file=screen, force_terminal=True, width=100)
    with console.progress() as progress:
        progress.advance(3)  # before anything has started: nothing to move
        progress.start(10, "running")
        progress.advance(4, "0.5 h")
    assert "running" in screen.getvalue() and "4/10" in screen.getvalue() and "0.5 h" in screen.getvalue()
