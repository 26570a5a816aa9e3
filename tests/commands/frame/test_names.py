"""Options that take several names: repeated, or with commas."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

import cli
from commands.frame.options_as_settings import Names

REPEATABLE = [
    (command, option)
    for command, found in cli.twin.loaded().items()
    for option in found.params
    if isinstance(option, click.Option) and "-p" in option.opts and option.multiple
]


def test_every_repeatable_policy_takes_commas() -> None:
    assert {command for command, _ in REPEATABLE} == {"replay", "bench", "queue"}
    assert all(isinstance(option, Names) for _, option in REPEATABLE)


def given(*words: str) -> Any:
    found: list[tuple[str, ...]] = []

    @click.command()
    @click.option("-p", "policies", cls=Names, multiple=True)
    def command(policies: tuple[str, ...]) -> None:
        found.append(policies)

    done = CliRunner().invoke(command, words)
    return found[0] if found else done.output


def test_names_are_one_list_however_they_are_given() -> None:
    assert given() == ()
    assert given("-p", "mpc,static") == given("-p", "mpc", "-p", "static") == ("mpc", "static")
    assert given("-p", "mpc, static", "-p", "easy+saf") == ("mpc", "static", "easy+saf")


@pytest.mark.parametrize("text", ["", ",", "mpc,", "mpc,,static"])
def test_an_empty_name_is_a_mistake(text: str) -> None:
    assert "has an empty name" in given("-p", text)
