"""What people see: tables on stdout, progress bars on stderr."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import rich.console
import rich.markup
import rich.progress
import rich.table

from ingest.progress import SILENT, Progress

PIPE_WIDTH = 400


class Bars:
    """Draws `ingest.progress.Progress` as rich bars, one for each task that starts."""

    def __init__(self, bars: rich.progress.Progress) -> None:
        self._bars = bars
        self._task: rich.progress.TaskID | None = None

    def start(self, total: int | None, what: str) -> None:
        """Open a new bar; the one before it is complete."""
        self._task = self._bars.add_task(what, total=total, note="")

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Move the newest bar."""
        if self._task is not None:
            self._bars.update(self._task, advance=steps, note=note)


class Console:
    """Rich output for people; `quiet` leaves stdout to a JSON object."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        # A pipe has no width: a table that a program or a file receives is never folded.
        width = None if sys.stdout.isatty() else PIPE_WIDTH
        self._out = rich.console.Console(file=sys.stdout, highlight=False, width=width)
        self._err = rich.console.Console(stderr=True, highlight=False)

    def line(self, text: str = "") -> None:
        """One line of the result."""
        self._out.print(text, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """A remark beside the result, on stderr."""
        self._err.print(text, style="dim", markup=False)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Rows under headings; a column whose first value is a number is aligned right."""
        table = rich.table.Table(title=title or None, title_justify="left", box=None, pad_edge=False)
        for index, name in enumerate(columns):
            numeric = bool(rows) and isinstance(rows[0][index], int | float)
            table.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(rich.markup.escape(cell(value)) for value in row))
        self._out.print(table)

    def fields(self, title: str, values: Mapping[str, Any]) -> None:
        """Names and values, one a line."""
        self.table(title, ("figure", "value"), [(k.replace("_", " "), v) for k, v in values.items()])

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Bars on stderr while long work runs; silent where stderr is not a terminal."""
        if not self._err.is_terminal:
            yield SILENT
            return
        columns = (
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("{task.fields[note]}", style="dim"),
        )
        with rich.progress.Progress(*columns, console=self._err, transient=True) as bars:
            yield Bars(bars)


def cell(value: Any) -> str:
    """One value as people read it: four significant digits, a dash for nothing."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
