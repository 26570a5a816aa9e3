"""Which options are settings, and how a setting is called in a file and as a variable of the environment."""

from collections.abc import Iterable
from typing import Any

import click
from click.core import ParameterSource

SAID = frozenset({
    # what is asked, and of what
    "batch", "beside", "chain-head", "checkpoint", "decision", "explain", "from", "from-decision", "front",
    "lessons", "link", "links", "list", "load", "model", "name", "nodes", "pareto", "perturb",
    "pick", "placement", "plan", "prove", "queue",
    "run", "runs", "schema", "show-origin", "since", "site", "sites", "solve", "start", "tag", "target", "to",
    "until", "verify-signature", "vs", "where",
    # what is done
    "clear", "compile", "cron", "drop", "dry-run", "every", "follow", "force", "help", "keep",
    "on-drift", "once",
    "quarantine", "remove", "resume", "rollback", "sign", "version", "yes",
    # what is written
    "out", "plot", "plots", "tensorboard",
})  # fmt: skip
"""Options that are said on the command line alone: no file or variable may ask another question than the
words do, remove something, or name what is overwritten."""
SHARED = ("store", "json", "quiet", "verbose", "debug", "log")
"""Settings of all commands: at the top of a file, `TWIN_STORE` and so on."""


def long_name(option: click.Option) -> str:
    """Returns the name of an option without its dashes, such as `from-decision`."""
    return max(option.opts, key=len).lstrip("-")


class Names(click.Option):
    """A repeatable option that takes several names at once: `-p mpc,static` is `-p mpc -p static`."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Returns all names; an empty one is a mistake of the command line."""
        found = super().process_value(ctx, value)
        names = tuple(name.strip() for text in found or () for name in str(text).split(","))
        if not all(names):
            raise click.BadParameter(f"{','.join(found)!r} has an empty name", ctx, self)
        return names


class OneOrMany(Names):
    """An option that may be repeated, and whose setting may be one text: it took one alone once."""


def settings(command: str, params: Iterable[click.Parameter]) -> dict[str, click.Option]:
    """Returns those of a command's own options that files and variables can set, by long name.

    `twin config` has none: what it shows depends on its words alone.
    """
    held = SAID | set(SHARED if command else ())
    return {
        name: param
        for param in params
        if command != "config" and isinstance(param, click.Option) and (name := long_name(param)) not in held
    }


def variable(command: str, name: str) -> str:
    """Returns the variable of an option; of all commands with an empty `command`."""
    return "_".join(part for part in ("TWIN", command, name) if part).upper().replace("-", "_")


def given(option: str) -> bool:
    """Returns True if an option was given on the command line."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE
