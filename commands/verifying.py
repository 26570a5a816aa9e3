"""The command that checks every file of a store."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands.output import PATH, Output, command, with_output, writing_command

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


@writing_command
@click.argument("folder", type=PATH, metavar="DIR")
@with_output
def backup(out: Output, folder: Path) -> None:
    """Copy the store to DIR while it is used, and check the copy.

    Lake, logs, checkpoints, calibrations, labels, signatures; no caches and reports. Only what is new or
    changed is copied. The copy is a store: `twin --store DIR` reads it, and copied back it takes the place
    of a lost one. Runs that were removed from the store stay in the copy.

    \b
    Examples:
      twin backup /mnt/backup/twin
      twin --store /mnt/backup/twin verify
    """
    from replay.api import store_check
    from replay.inventory.backup import back_up

    with out.console.progress() as progress:
        made = back_up(out.store, folder, progress)
        report = store_check.check(folder, progress)

    def render(console: "Console") -> None:
        written = f"{made.copied:,} files copied ({made.written_bytes / 1e6:,.1f} MB)"
        kept = f"{made.unchanged:,} unchanged, {len(made.removed):,} removed"
        console.line(f"{folder}: {made.runs:,} runs; {written}, {kept}")
        for finding in report.findings:
            console.line(str(finding))
        console.line(f"the copy is {'clean' if report.ok else f'damaged: {len(report.findings)} findings'}")

    out.show({**made.to_json(), "check": report.to_json()}, render)
    sys.exit(0 if report.ok else 3)
