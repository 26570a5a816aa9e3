"""Tables and lines on stdout, notes and progress bars on stderr."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import rich.console
import rich.live
import rich.progress
import rich.table
import rich.text
from rich.cells import cell_len
from rich.filesize import decimal

from ingest.core.progress import SILENT, Progress
from ingest.core.terminal import in_line, visible
from replay.metrics.formatting import parts

PIPE_WIDTH = 400
READABLE = 32
"""Least width of a text column in a table that has to be narrow."""


class Bars:
    """Implements `ingest.core.progress.Progress` by rich bars, one for each task."""

    def __init__(self, bars: rich.progress.Progress) -> None:
        self._bars = bars
        self._task: rich.progress.TaskID | None = None

    def start(self, total: int | None, what: str, unit: str = "") -> None:
        """Opens a new bar; the one before it is complete."""
        self._task = self._bars.add_task(in_line(what), total=total, note="", unit=unit)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advances the newest bar."""
        if self._task is not None:
            self._bars.update(self._task, advance=steps, note=in_line(note))


class PaceColumn(rich.progress.ProgressColumn):
    """Amount, rate, time that it took and time that is left."""

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        """Returns such as `120/400 files  31 files/s  0:00:04, 0:00:09 left`."""
        took = timedelta(seconds=int(task.elapsed or 0))
        left = task.time_remaining
        rest = "" if left is None or task.finished else f", {timedelta(seconds=int(left))} left"
        return rich.text.Text("  ".join(part for part in (*amount(task), f"{took}{rest}") if part))


def amount(task: rich.progress.Task) -> tuple[str, str]:
    """Returns what is done of a task and its rate, in its unit; in per cent where it has none."""
    unit, speed, total = task.fields["unit"], task.speed or 0.0, task.total
    if not unit:
        share = "" if total is None else f"{100 * task.completed / (total or 1):.0f} %"
        return share, f"{100 * speed / total:.2g} %/s" if speed and total else ""
    if unit == "B":
        done = f"{decimal(int(task.completed))} of {decimal(int(total or 0))}"
        return done, f"{decimal(int(speed))}/s" if speed else ""
    of = "" if total is None else f"/{total:,.0f}"
    return f"{task.completed:,.0f}{of} {unit}", f"{speed:,.3g} {unit}/s" if speed else ""


class Console:
    """Output for people; with `quiet`, stdout is for a JSON object; with `silent`, stderr is for errors.

    `notes` collects what `note` is called with. Colours and styles go to terminals only, and to none where
    NO_COLOR is set (https://no-color.org).
    """

    def __init__(self, quiet: bool = False, silent: bool = False, notes: list[str] | None = None) -> None:
        self.quiet, self.silent = quiet, silent
        self._notes = [] if notes is None else notes
        # A pipe has no width: a table in it is never folded.
        width = None if sys.stdout and sys.stdout.isatty() else PIPE_WIDTH
        # Text is shown as it is: no [markup], no :emoji:.
        plain: Any = {"highlight": False, "markup": False, "emoji": False}
        self._out = rich.console.Console(file=sys.stdout, width=width, **plain)
        self._err = rich.console.Console(stderr=True, **plain)

    def line(self, text: str = "") -> None:
        """Prints a line of the result."""
        self._out.print(visible(text), soft_wrap=True)

    def note(self, text: str) -> None:
        """Prints a remark on stderr."""
        self._notes.append(text)
        if not self.silent:
            self._err.print(visible(text), style="dim")

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, keys: int = 1
    ) -> None:
        """Prints rows under headings; columns of numbers are aligned right.

        A table wider than the terminal is split into several below each other, each with the first `keys`
        columns; only texts are folded, to no less than `READABLE` letters.
        """
        if title:
            self._out.print(visible(title), style="italic", soft_wrap=True)
        if not rows:
            self.line("none")
            return
        columns = [in_line(column) for column in columns]
        cells = [[in_line(cell(value)) for value in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
        narrow = [min(width, READABLE) for width in widths]
        for number, part in enumerate(parts(narrow, keys, self._out.width)):
            if number:
                self.line()
            table = rich.table.Table(box=None, pad_edge=False)
            for index in part:
                kinds = {type(row[index]) for row in rows} - {type(None)}
                numbers = bool(kinds) and kinds <= {int, float}
                table.add_column(columns[index], justify="right" if numbers else "left", overflow="fold")
            for row in cells:
                table.add_row(*(row[index] for index in part))
            self._out.print(table)

    def fields(self, title: str, values: Mapping[str, Any]) -> None:
        """Prints names and values, one a line."""
        self.table(title, ("figure", "value"), [(k.replace("_", " "), v) for k, v in values.items()])

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Shows progress bars on stderr in the body; none where stderr is not a terminal."""
        if self.silent or not self._err.is_terminal or self._err.is_dumb_terminal:
            yield SILENT
            return
        columns = (
            rich.progress.TextColumn("{task.description}", markup=False),
            rich.progress.BarColumn(bar_width=24),
            PaceColumn(),
            rich.progress.TextColumn("{task.fields[note]}", style="dim", markup=False),
        )
        with rich.progress.Progress(*columns, console=self._err, transient=True) as bars:
            yield Bars(bars)

    @property
    def draws(self) -> bool:
        """True if standard error is a terminal on which something may be drawn."""
        return not self.silent and self._err.is_terminal

    @contextmanager
    def screen(self, draw: Callable[[int, int], rich.console.RenderableType]) -> Iterator[None]:
        """Shows on stderr, in the body, what `draw(width, height)` returns, every second."""
        live = rich.live.Live(
            get_renderable=lambda: draw(*self._err.size), console=self._err, refresh_per_second=1,
            transient=True, vertical_overflow="crop",
        )  # fmt: skip
        with live:
            yield

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Shows that work of unknown length goes on in the body, and for how long by now."""
        with self.progress() as progress:
            progress.start(None, what)
            yield


def cell(value: Any) -> str:
    """Returns a value as text: four significant digits, a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return str(value)
