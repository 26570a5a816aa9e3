"""Parts of every command: the shared options, and one place for results."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands.run_record import RunRecord
from ingest.core.errors import Interrupted, StorageError

if TYPE_CHECKING:
    from commands.show.console import Console

PATH = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)


class Output:
    """The sink of results: rich text for people, or one JSON object for programs."""

    def __init__(self) -> None:
        self.store = Path(os.environ.get("TWIN_STORE") or ".twin")
        self.as_json = self.quiet = self.verbose = self.debug = False
        self.log = Path(os.environ["TWIN_LOG"]) if os.environ.get("TWIN_LOG") else None
        self.record = RunRecord(sys.argv[1:])

    @property
    def console(self) -> "Console":
        """Tables on stdout, progress on stderr."""
        from commands.show.console import Console

        return Console(quiet=self.as_json, silent=self.quiet, notes=self.record.notes)

    def show(self, result: dict[str, Any], render: Callable[["Console"], None]) -> None:
        """Print `result` as JSON, or let `render` draw it."""
        if self.as_json:
            click.echo(json.dumps(result, allow_nan=False))
        else:
            render(self.console)


def write(data: bytes) -> None:
    """Write bytes to stdout, all of them.

    Raises:
        StorageError: stdout is closed, or what it leads to is full.
        BrokenPipeError: the reader has gone.
    """
    if sys.stdout is None:
        raise StorageError("standard output is closed; direct it to a file or a program")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"standard output: cannot be written ({error.strerror}); free space") from error


@contextmanager
def goes_on(way: str) -> Iterator[None]:
    """Says `way`, how to go on, where Ctrl-C ends the body.

    Raises:
        Interrupted: Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt as pressed:
        raise Interrupted(way) from pressed


class Command(click.Command):
    """A command that takes the shared options, as the group does: both places work."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options()


def shared_options() -> list[click.Parameter]:
    """Returns what every command takes: `--store`, `--json`, how much is said, the log."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            setattr(ctx.ensure_object(Output), "as_json" if param.name == "json" else str(param.name), value)

    store = click.Option(
        ["--store"], type=FOLDER, expose_value=False, callback=keep, metavar="DIR",
        help="Folder of lake, runs and checkpoints [TWIN_STORE, else .twin].",
    )  # fmt: skip
    as_json = click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=keep, help="Print one JSON object."
    )
    log = click.Option(
        ["--log"], type=PATH, expose_value=False, callback=keep, metavar="FILE",
        help="Add a line on this command to FILE, with its error in full [TWIN_LOG, else none].",
    )  # fmt: skip
    says = {
        "quiet": "No progress and no notes on stderr.",
        "verbose": "Say time, memory and store at the end.",
        "debug": "Show Python's traceback of an error.",
    }
    levels = [
        click.Option([f"--{name}"], is_flag=True, expose_value=False, callback=keep, help=text)
        for name, text in says.items()
    ]
    return [store, as_json, *levels, log]


def command(call: Callable[..., None]) -> click.Command:
    """Make a command of `call`: its name, and its docstring as help."""
    return click.command(cls=Command)(call)


with_output = click.make_pass_decorator(Output)
