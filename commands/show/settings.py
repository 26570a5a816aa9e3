"""Prints settings in force, as a file of settings."""

from collections.abc import Sequence
from itertools import groupby

from commands.frame.in_force import InForce
from commands.show.console import Console

WIDE = 40


def settings(console: Console, found: Sequence[InForce], *, origins: bool) -> None:
    """Prints a line a setting, those of a command below its name; with `origins` where each comes from."""
    for command, rows in groupby(found, key=lambda row: row.command):
        if command:
            console.line(f"\n[{command}]")
        for row in rows:
            console.line(f"{row.line:{WIDE}}  # {row.origin}" if origins else row.line)
