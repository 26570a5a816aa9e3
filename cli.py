"""The `twin` command: one thin click command per use, no logic; heavy imports wait until a command runs."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ingest.errors import TwinError

if TYPE_CHECKING:
    from replay.console import Console

FOLDER = click.Path(path_type=Path)


class Output:
    """Where results go: rich text for people, or one JSON object for programs."""

    def __init__(self) -> None:
        self.store = Path(os.environ.get("TWIN_STORE") or ".twin")
        self.as_json = False

    @property
    def console(self) -> "Console":
        """Tables on stdout, progress on stderr."""
        from replay.console import Console

        return Console(quiet=self.as_json)

    def show(self, result: dict[str, Any], render: Callable[["Console"], None]) -> None:
        """Print `result` as JSON, or let `render` draw it."""
        if self.as_json:
            click.echo(json.dumps(result, allow_nan=False))
        else:
            render(self.console)


class Command(click.Command):
    """A command that takes `--store` and `--json`, as the group does: both places work."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options()


class Group(click.Group):
    """The group: lists commands in the order people use them."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def shared_options() -> list[click.Parameter]:
    """`--store` and `--json`, written into the `Output` of the invocation."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            setattr(ctx.ensure_object(Output), "as_json" if param.name == "json" else "store", value)

    store = click.Option(
        ["--store"], type=FOLDER, expose_value=False, callback=keep, metavar="DIR",
        help="Folder of lake, runs and checkpoints [TWIN_STORE, else .twin].",
    )  # fmt: skip
    as_json = click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=keep, help="Print one JSON object."
    )
    return [store, as_json]


@click.group(cls=Group, params=shared_options(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="twin", prog_name="twin")
@click.pass_context
def twin(ctx: click.Context) -> None:
    """Digital twin for training large language models across data centres.

    \b
    First steps:
      twin ingest traces/
      twin bench --scenario tri-7b
      twin replay --policy hippo --scenario tri-7b
    """
    ctx.ensure_object(Output)


def fail(error: TwinError, as_json: bool) -> NoReturn:
    """Tell the user what went wrong and leave with the error's exit code."""
    click.echo(f"twin: {error}", err=True)
    if as_json:
        body = {"schema": "twin.error/1", "error": type(error).__name__, "message": str(error)}
        click.echo(json.dumps(body))
    sys.exit(error.exit_code)


def main() -> None:
    """Entry point: turns every expected failure into a message and an exit code."""
    output = Output()
    try:
        twin.main(obj=output, standalone_mode=False, prog_name="twin")
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except TwinError as error:
        fail(error, output.as_json)
    except (KeyboardInterrupt, click.Abort):
        click.echo("twin: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone; nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
