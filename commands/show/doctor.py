"""Prints the checks of an installation."""

from typing import TYPE_CHECKING

from commands.show.console import Console
from replay.metrics.formatting import counted

if TYPE_CHECKING:
    from replay.health.diagnosis import Diagnosis


def diagnosis(console: Console, found: "Diagnosis") -> None:
    """Prints every check, what mends it below, and a verdict."""
    wide = max(len(check.name) for check in found.checks)
    for check in found.checks:
        console.line(f"{check.state:8}{check.name:{wide}}  {check.found}")
        if check.way:
            console.line(f"{'':{wide + 8}}  -> {check.way}")
    if found.compiled is not None:
        console.line(f"{counted(found.compiled, 'kernel')} of a first decision are compiled and kept")
    broken = sum(check.state == "broken" for check in found.checks)
    console.line("nothing is broken" if found.ok else f"{broken} broken")
