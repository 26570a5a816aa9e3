"""Habits that every command keeps: progress where it may take time, no pager, no colour of its own."""

import inspect
import re
import sys
from pathlib import Path

import click
import pytest

import cli

QUICK = {
    "tag": "reads and writes one small file",
    "note": "reads and writes one small file",
    "rm": "lists and deletes files",
    "gc": "lists and deletes files",
    "policies": "lists files",
    "completion": "prints a script",
    "config": "lists options; a scenario is one file",
}
"""Commands without progress, and why they need none."""


def source(command: click.Command) -> str:
    """The text of a command and of the functions of its module that it calls."""
    call = inspect.unwrap(command.callback)  # type: ignore[arg-type]
    module = sys.modules[call.__module__]
    text = inspect.getsource(call)
    own = {name: found for name, found in vars(module).items() if inspect.isfunction(found)}
    called = [found for name, found in own.items() if re.search(rf"\b{name}\(", text) and found is not call]
    return text + "".join(inspect.getsource(found) for found in called)


@pytest.mark.parametrize("name", [name for name in cli.COMMANDS if name not in QUICK])
def test_a_command_that_may_take_seconds_shows_progress(name: str) -> None:
    shows = r"console\.(progress|working)\(|live_view\.(run|training)\("
    assert re.search(shows, source(cli.twin.loaded()[name])), name


def test_those_without_progress_show_none() -> None:
    assert {*QUICK} <= {*cli.COMMANDS}
    shown = {name for name in QUICK if "console.progress(" in source(cli.twin.loaded()[name])}
    assert shown == set(), "take them out of QUICK"


def test_no_command_pages_or_colours_on_its_own(repository: Path) -> None:
    sources = [repository / "cli.py", *(repository / "commands").rglob("*.py")]
    wrong = [
        f"{path.name}: {found[0]}"
        for path in sources
        for found in re.finditer(r"pager\(|PAGER|click\.(style|secho)|\\x1b\[|\\033\[", path.read_text())
    ]
    assert wrong == []
