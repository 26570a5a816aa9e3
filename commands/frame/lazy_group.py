"""The group of `twin`: a command is imported when it is named, not before."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from commands.frame import setting_files
from ingest.core.errors import TwinError
from ingest.core.terminal import LONGEST

Table = Mapping[str, tuple[str, str]]
"""Module in `commands` and summary of every command, in the order in which people use them."""
HELPS = ("-h", "--help", "--version")


class LazyGroup(click.Group):
    """A group of commands that lie in modules of their own, whose names and summaries a table has."""

    def __init__(self, *args: Any, table: Table, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table
        self.origins: dict[tuple[str, str], str] = {}
        """`FILE:LINE` of what files of settings have set, by command (empty: of all) and option."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of that name, imported; None if there is none."""
        return self.load(cmd_name) if cmd_name in self._table else None

    def load(self, name: str) -> click.Command:
        """Returns the command `name` of the table."""
        if name not in self.commands:
            self.add_command(getattr(import_module(f"commands.{self._table[name][0]}"), name))
        return self.commands[name]

    def loaded(self) -> dict[str, click.Command]:
        """Returns all commands, each imported."""
        return {name: self.load(name) for name in self._table}

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Returns the context, with the files of settings in it; whoever asks for help needs none.

        Raises:
            UsageError: a file of settings is wrong (while a shell completes, it is passed over).
        """
        words = args[: args.index("--")] if "--" in args else args
        if not set(HELPS) & set(words):
            extra = self._settings(passing=bool(extra.get("resilient_parsing"))) | extra
        return super().make_context(info_name, args, parent, **extra)

    def _settings(self, passing: bool) -> dict[str, Any]:
        """What files of settings set, as click takes it; `passing`: a wrong file is passed over."""
        self.origins = {}
        if not (paths := setting_files.paths()):
            return {}
        from commands.frame import layers

        try:
            values, self.origins = layers.merged(self, map(setting_files.read, paths))
        except (TwinError, OSError):
            if not passing:
                raise
            return {}
        return {"default_map": values}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words name; a word that is close to one is told which.

        Raises:
            UsageError: no such command.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0][:LONGEST], self._table, n=1)
            if not close or args[0].startswith("-"):
                raise
            said = f"No such command {args[0]!r}; did you mean {close[0]!r}?"
            raise click.UsageError(said, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes names and summaries, importing nothing."""
        room = formatter.width - 6 - max(map(len, self._table))
        rows = [(name, click.Command(name, help=said)) for name, (_, said) in self._table.items()]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(room)) for name, command in rows])
