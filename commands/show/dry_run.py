"""Prints what a dry run would have changed."""

from collections.abc import Sequence

from commands.frame.dry_run import Change
from commands.show.console import Console


def changes(console: Console, found: Sequence[Change]) -> None:
    """Prints a line a change; one line where there is none."""
    for change in found:
        console.line(change.line)
    if not found:
        console.line("nothing would change")
