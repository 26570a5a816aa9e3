"""Settings in layers: defaults < the user's file < the project's file < variables < the command line.

Files become click's `default_map`, so that variables and words win over them. All their keys and values are
checked before a command begins.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands.frame.options_as_settings import SHARED, OneOrMany, long_name, settings
from commands.frame.setting_files import SettingFile
from ingest.core.errors import UsageError
from ingest.core.terminal import LONGEST, clipped, shown

if TYPE_CHECKING:
    from commands.frame.lazy_group import LazyGroup

Origins = dict[tuple[str, str], str]
"""`FILE:LINE` by command (empty: of all commands) and long name of the option."""


def merged(group: "LazyGroup", files: Iterable[SettingFile]) -> tuple[dict[str, Any], Origins]:
    """Returns the values of all files by the names of click's parameters, and where each comes from.

    Raises:
        UsageError: a key or value is wrong.
    """
    values: dict[str, Any] = {}
    origins: Origins = {}
    for file in files:
        for key, value in file.values.items():
            if key in group.list_commands(click.Context(group)):
                into = values.setdefault(key, {})
                for name, inner in table(file, key, value).items():
                    known = settings(key, group.load(key).params)
                    option = option_of(file, key, name, known, group.load(key).params)
                    into[option.name] = checked(file, option, inner, key, name)
                    origins[key, name] = file.where(key, name)
            else:
                option = shared_option(file, group, key, value)
                values[str(option.name)] = checked(file, option, value, key)
                origins["", key] = file.where(key)
    return values, origins


def table(file: SettingFile, key: str, value: Any) -> Mapping[str, Any]:
    """Returns the settings of one command.

    Raises:
        UsageError: the file has something else there.
    """
    if isinstance(value, dict):
        return value
    raise UsageError(f"{file.where(key)} {key}: settings of `twin {key}` stand below a line [{key}]")


def option_of(
    file: SettingFile,
    command: str,
    name: str,
    known: Mapping[str, click.Option],
    params: list[click.Parameter],
) -> click.Option:
    """Returns the option of a command that a key names.

    Raises:
        UsageError: it names none, or one that only the command line takes.
    """
    if name in known:
        return known[name]
    where = f"{file.where(command, name)} {command}.{clipped(name)}"
    if name in SHARED:
        raise UsageError(f"{where}: is for all commands; write `{name} = ...` above the first [table]")
    options = [long_name(param) for param in params if isinstance(param, click.Option)]
    if name in options:
        raise UsageError(f"{where}: is said on the command line alone, as `twin {command} --{name}`")
    raise UsageError(f"{where}: no such setting{nearest(name, known)}")


def shared_option(file: SettingFile, group: "LazyGroup", key: str, value: Any) -> click.Option:
    """Returns the option of all commands that a key at the top names.

    Raises:
        UsageError: it names none.
    """
    shared = settings("", group.params)
    if key in shared:
        return shared[key]
    names = group.list_commands(click.Context(group))
    what = "command" if isinstance(value, dict) else "setting of all commands"
    known = names if isinstance(value, dict) else SHARED
    raise UsageError(f"{file.where(key)} {clipped(key)}: no such {what}{nearest(key, known)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns the known word that is closest, or all of them, as the end of a message."""
    from difflib import get_close_matches

    words = sorted(known)
    close = get_close_matches(word[:LONGEST], words, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(words)}" if words else "; this command has none"


KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer": ((int,), "a whole number"),
    "integer range": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "float range": ((int, float), "a number"),
}
"""What TOML has for click's types of these names; for all others a text."""


def checked(file: SettingFile, option: click.Option, value: Any, *key: str) -> Any:
    """Returns a value as click takes it; a path starts at the folder of its file.

    Raises:
        UsageError: the option does not take it.
    """
    where = f"{file.where(*key)} {'.'.join(key)}"
    if isinstance(option, OneOrMany) and isinstance(value, str):
        value = [value]
    if option.multiple:
        if not isinstance(value, list):
            raise UsageError(f"{where}: {shown(value)} is no list; write [{written(value)}]")
        return [_one(file, option, part, where) for part in value]
    return _one(file, option, value, where)


def _one(file: SettingFile, option: click.Option, value: Any, where: str) -> Any:
    types, words = KINDS.get(option.type.name, ((str,), "a text in quotes"))
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise UsageError(f"{where}: {shown(value)} is not {words}")
    named = long_name(option) == "scenario" and str(value).endswith((".yaml", ".yml"))
    if isinstance(option.type, click.Path) or named:
        value = str(file.path.parent / Path(str(value)).expanduser())
    try:
        option.type.convert(value, option, None)
    except click.BadParameter as error:
        raise UsageError(f"{where}: {error.message.rstrip('.')}{_close(option, value)}") from error
    return value


def _close(option: click.Option, value: Any) -> str:
    if not isinstance(option.type, click.Choice):
        return ""
    from difflib import get_close_matches

    close = get_close_matches(str(value)[:LONGEST], list(option.type.choices), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def written(value: Any) -> str:
    """Returns a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, int | float):
        return str(value)
    import json

    return json.dumps(str(value), ensure_ascii=False)  # a basic string of TOML escapes as JSON does
