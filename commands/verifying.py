"""The command that checks every file of a store."""

import sys
from typing import TYPE_CHECKING

from commands.output import Output, command, with_output

if TYPE_CHECKING:
    from commands.show.console import Console


@command
@with_output
def verify(out: Output) -> None:
    """Check that every stored file is what was written.

    Lake, logs, checkpoints, calibrations, schedule, caches.

    Reads all of them and names each that is not what was written, with what to do. `twin audit` does more for
    one run: it computes it again.

    \b
    Example: twin verify
    """
    from replay.api import store_check

    with out.console.progress() as progress:
        report = store_check.check(out.store, progress)

    def render(console: "Console") -> None:
        for finding in report.findings:
            console.line(str(finding))
        for note in report.notes:
            console.line(f"note: {note}")
        console.line(f"{report.store}: {'clean' if report.ok else f'{len(report.findings)} damaged'}")

    out.show(report.to_json(), render)
    sys.exit(0 if report.ok else 3)
