"""Parts of every command: the shared options, and one place for results."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from commands.frame.lazy_group import LazyGroup
from commands.frame.options_as_settings import settings, variable
from commands.run_record import RunRecord
from ingest.core.errors import Interrupted, TwinError
from ingest.core.terminal import clipped, without_keys

if TYPE_CHECKING:
    from commands.show.console import Console

HELP = {"help_option_names": ["-h", "--help"]}
PATH = click.Path(path_type=Path)
BUCKET = "s3://"
"""How the address of a store in a bucket begins."""


class Folder(click.Path):
    """The path of a folder, new or there; click itself refuses regular files alone, and takes a device."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the path."""
        path = super().convert(value, param, ctx)
        if path.exists() and not path.is_dir():
            self.fail(f"Directory {str(value)!r} is a file.", param, ctx)
        return path


FOLDER = Folder(path_type=Path, file_okay=False)


class StorePlace(Folder):
    """A folder, or `s3://BUCKET/PREFIX`, which stays a text: the path of an address would lose a slash."""

    name = "store"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the text of an address, else the path of a folder."""
        text = str(value)
        return text if text.startswith(BUCKET) else super().convert(value, param, ctx)


class Output:
    """The sink of results: rich text for people, or one JSON object for programs."""

    def __init__(self) -> None:
        self.place: str | Path = os.environ.get("TWIN_STORE") or ".twin"
        """Folder of the store, or its address in a bucket."""
        self._opened: tuple[str, Path] | None = None
        self.as_json = self.quiet = self.verbose = self.debug = self.dry_run = False
        self.log = Path(os.environ["TWIN_LOG"]) if os.environ.get("TWIN_LOG") else None
        self.record = RunRecord(sys.argv[1:])

    @property
    def store(self) -> Path:
        """Folder of lake, runs and checkpoints: of a store in a bucket, its working copy.

        Raises:
            UsageError, StorageError: the bucket cannot be read.
        """
        place = str(self.place)
        if not place.startswith(BUCKET):
            return Path(place)
        if self._opened is None or self._opened[0] != place:
            from replay.log.bucket_log import odd_names, open_store

            self._opened = place, open_store(place)
            if odd := odd_names(self._opened[1]):
                more = f" and {len(odd) - 1:,} more" if len(odd) > 1 else ""
                self.console.note(
                    f"{clipped(odd[0])}{more} in the bucket: of no run, passed over; `twin verify` lists them"
                )
        return self._opened[1]

    @store.setter
    def store(self, place: Path) -> None:
        self.place = place

    def run(self, name: str) -> str:
        """Returns the run of the store with this id, a unique beginning of it, or `latest`; says on stderr
        which run that is, and which newer ones are not finished.

        Raises:
            NotFoundError: no run or more than one fits.
        """
        from replay.store import run_index, run_kind

        run_id = run_index.find(self.store, name)
        if name == run_index.LATEST and run_id != name:
            unfinished = run_index.latest(self.store).unfinished
            with suppress(TwinError):  # of a damaged run the command itself says so
                name = f"latest is {run_id}, {run_kind.of_run(self.store, run_id).described}"
            newer = f"; newer, but not finished: {', '.join(unfinished)}" if unfinished else ""
            self.console.note(f"{name}{newer}" if name != run_index.LATEST else f"latest is {run_id}{newer}")
        return run_id

    @property
    def console(self) -> "Console":
        """Tables on stdout, progress on stderr."""
        from commands.show.console import Console

        return Console(quiet=self.as_json, silent=self.quiet, notes=self.record.notes)

    def show(self, result: dict[str, Any], render: Callable[["Console"], None]) -> None:
        """Print `result` as JSON, or let `render` draw it; nothing in a dry run, whose result is another."""
        if self.dry_run:
            return
        if self.as_json:
            import json

            click.echo(without_keys(json.dumps(result, allow_nan=False)))
        else:
            render(self.console)


def write(data: bytes) -> None:
    """Write bytes to stdout, all of them.

    Raises:
        StorageError: stdout is closed, or what it leads to is full.
    """
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


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
    """A command that takes the shared options, as the group does: both places work.

    Its own options can be set by variables, too; a message about such a value, or about one from a file of
    settings, names the variable or the file.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["context_settings"] = HELP
        super().__init__(*args, **kwargs)
        for name, option in settings(str(self.name), self.params).items():
            option.envvar = variable(str(self.name), name)
        self.params += shared_options()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Returns the words that are left; a message about a variable's value names the variable."""
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            if error.param and ctx.get_parameter_source(str(error.param.name)) is ParameterSource.ENVIRONMENT:
                error.param_hint = f"the variable {error.param.envvar}"
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; an error about a value that the command line does not have names its origin."""
        out = ctx.ensure_object(Output)
        try:
            return self._noted(ctx, out) if out.dry_run else super().invoke(ctx)
        except TwinError as error:
            if origin := _origin_of_cause(ctx, str(error)):
                error.args = (f"{error}; {origin}", *error.args[1:])
            raise

    def _noted(self, ctx: click.Context, out: Output) -> None:
        """Runs the command without its writes and says what they would be."""
        from commands.frame.dry_run import noting
        from commands.show import dry_run as show

        code: Any = 0
        if str(out.place).startswith(BUCKET):
            _ = out.store  # read before the disk only notes
        with noting() as changes:
            try:
                super().invoke(ctx)
            except SystemExit as end:  # a verdict
                code = end.code
        out.dry_run = False
        body = {
            "schema": "twin.dry_run/1",
            "command": self.name,
            "changes": [one.to_json() for one in changes],
        }
        out.show(body, lambda console: show.changes(console, changes))
        if code:
            sys.exit(code)


def _origin_of_cause(ctx: click.Context, message: str) -> str:
    """Where the value was set that a message is about; nothing where the words of the command say it."""
    root = ctx.find_root().command
    origins = root.origins if isinstance(root, LazyGroup) else {}
    for name, option in settings(str(ctx.command.name), ctx.command.params).items():
        source = ctx.get_parameter_source(str(option.name))
        values = ctx.params.get(str(option.name))
        texts = [str(value) for value in (values if isinstance(values, tuple) else (values,)) if value]
        if any(text in message for text in texts):
            if source is ParameterSource.ENVIRONMENT:
                return f"set by the variable {option.envvar}"
            if source is ParameterSource.DEFAULT_MAP:
                return f"set in {origins[str(ctx.command.name), name]}"
    return ""


def shared_options(of_group: bool = False) -> list[click.Parameter]:
    """Returns what every command takes: `--store`, `--json`, how much is said, the log.

    of_group: variables and files set them there, once for all commands.
    """

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            names = {"json": "as_json", "store": "place"}
            setattr(ctx.ensure_object(Output), names.get(str(param.name), str(param.name)), value)

    store = click.Option(
        ["--store"], type=StorePlace(path_type=Path, file_okay=False), expose_value=False, callback=keep,
        metavar="DIR",
        help="Folder of lake, runs and checkpoints, or s3://BUCKET/PREFIX [TWIN_STORE, else .twin].",
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
    shared = [store, as_json, *levels, log]
    if of_group:
        for name, option in settings("", shared).items():
            option.envvar = variable("", name)
    return list(shared)


def command(call: Callable[..., None]) -> click.Command:
    """Make a command of `call`: its name, and its docstring as help."""
    return click.command(cls=Command)(call)


def writing_command(call: Callable[..., None]) -> click.Command:
    """Make a command of `call` that also takes `--dry-run`."""

    def keep(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        ctx.ensure_object(Output).dry_run = value

    words = "Only say what would be written or removed."
    return command(
        click.option("--dry-run", is_flag=True, expose_value=False, callback=keep, help=words)(call)
    )


with_output = click.make_pass_decorator(Output)
