"""Plugins: objects that installed distributions offer through entry points."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def load(
    group: str, taken: Collection[str], check: Callable[[str, Any], Any] = lambda name, found: found
) -> tuple[dict[str, Any], list[str]]:
    """Imports the entry points of `group`, in order of name and distribution.

    taken: names that plugins may not have. check: turns name and imported object into what is returned, and
    raises an exception with the reason if the object is not usable.

    Returns the objects by name, and one sentence for each plugin that is left out: its name, its distribution
    and the reason. No plugin makes this function fail.
    """
    found: dict[str, Any] = {}
    problems = []
    for point in _entry_points(group):
        try:
            _check(point.name, taken, found)
            found[point.name] = check(point.name, point.load())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others may raise anything
            problems.append(left_out(point, error))
    return found, problems


def discover(group: str, taken: Collection[str]) -> tuple[dict[str, "EntryPoint"], list[str]]:
    """Like `load`, but imports nothing: the entry points by name, and a sentence for each whose name is
    taken or no name."""
    found: dict[str, EntryPoint] = {}
    problems = []
    for point in _entry_points(group):
        try:
            _check(point.name, taken, found)
            found[point.name] = point
        except ValueError as error:
            problems.append(left_out(point, error))
    return found, problems


def origin(point: "EntryPoint") -> str:
    """Returns name and version of the distribution that offers an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown distribution"


def left_out(point: "EntryPoint", error: BaseException) -> str:
    """Returns the sentence about a plugin that is left out because of `error`."""
    reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return f"plugin {point.name!r} of {origin(point)} ({point.group}) is left out: {reason}"


def _check(name: str, taken: Collection[str], found: Collection[str]) -> None:
    from ingest.core.names import (
        RULE,
        is_name,
    )  # it takes pydantic, which the shell's completion need not wait for

    if not is_name(name):
        raise ValueError(RULE)
    if name in taken or name in found:
        raise ValueError(f"the name {name!r} is taken")


def _entry_points(group: str) -> list["EntryPoint"]:
    from importlib.metadata import entry_points  # 20 ms, which commands without plugins need not pay

    return sorted(entry_points(group=group), key=lambda p: (p.name, p.dist.name if p.dist else ""))
