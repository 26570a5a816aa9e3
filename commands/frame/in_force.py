"""Every setting in force, and where its value comes from."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from commands.frame.layers import Origins, written
from commands.frame.lazy_group import LazyGroup
from commands.frame.options_as_settings import settings, variable

DEFAULT = ParameterSource.DEFAULT


class InForce(NamedTuple):
    """A setting: its command (empty: all), name and value (None: none), the kind and place of its origin."""

    command: str
    name: str
    value: Any
    kind: str
    place: str

    @property
    def origin(self) -> str:
        """In words: `default`, `twin.toml:3`, `TWIN_REPLAY_ENGINE`, `--store`."""
        return self.place or self.kind

    @property
    def line(self) -> str:
        """As a line of a file of settings; a setting without value is a comment."""
        return f"# {self.name} =" if self.value is None else f"{self.name} = {written(self.value)}"

    def to_json(self) -> dict[str, Any]:
        """Returns the fields of `twin config --json`."""
        key = f"{self.command}.{self.name}" if self.command else self.name
        return {"key": key, "value": self.value, "origin": self.kind, "place": self.place or None,
                "variable": variable(self.command, self.name)}  # fmt: skip


def in_force(context: click.Context, shared: Mapping[str, Any]) -> Iterator[InForce]:
    """Yields every setting, those of all commands first, whose values are `shared`.

    `context` is that of the command that asks.
    """
    root = context.find_root()
    group = root.command
    assert isinstance(group, LazyGroup), "settings are those of the group"
    for name, option in settings("", group.params).items():
        source = min(where.get_parameter_source(str(option.name)) or DEFAULT for where in (context, root))
        yield InForce("", name, plain(shared[name]), *_origin(source, group.origins, "", name))
    for command, loaded in group.loaded().items():
        # Resilient: the words that a command cannot do without are not there.
        inner = loaded.make_context(command, [], parent=root, resilient_parsing=True)
        for name, option in settings(command, loaded.params).items():
            value = inner.params[str(option.name)]
            source = inner.get_parameter_source(str(option.name)) or DEFAULT
            if value is None and source is ParameterSource.ENVIRONMENT:
                raise click.BadParameter(f"{option.value_from_envvar(inner)!r} does not fit", param=option,
                                         param_hint=f"the variable {option.envvar}")  # fmt: skip
            yield InForce(command, name, plain(value), *_origin(source, group.origins, command, name))


def plain(value: Any) -> Any:
    """Returns a value of click as JSON has it; None for an empty list."""
    if isinstance(value, list | tuple):
        return [plain(part) for part in value] or None
    return value if isinstance(value, bool | int | float | None) else str(value)


def _origin(source: ParameterSource, origins: Origins, command: str, name: str) -> tuple[str, str]:
    """The kind of an origin and its place."""
    match source:
        case ParameterSource.COMMANDLINE:
            return "flag", f"--{name}"
        case ParameterSource.ENVIRONMENT:
            return "variable", variable(command, name)
        case ParameterSource.DEFAULT_MAP:
            return "file", origins[command, name]
        case _:
            return "default", ""


def idle_variables(context: click.Context) -> list[str]:
    """Returns variables of the environment that begin with the name of a command and set nothing."""
    group = context.find_root().command
    assert isinstance(group, LazyGroup), "commands are those of the group"
    loaded = group.loaded()
    known = {
        variable(command, name) for command in loaded for name in settings(command, loaded[command].params)
    }
    begins = tuple(f"{variable(command, '')}_" for command in loaded)
    return sorted(name for name in os.environ if name.startswith(begins) and name not in known)
