"""Commands that check a store, and copy it."""

import sys
from typing import TYPE_CHECKING

import click

from commands.output import Output, command, with_output, writing_command

if TYPE_CHECKING:
    from commands.show.console import Console
    from replay.api.store_check import StoreReport


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

    out.show(report.to_json(), lambda console: _found(console, report))
    sys.exit(0 if report.ok else 3)


def _found(console: "Console", report: "StoreReport") -> None:
    """Prints what a check found."""
    for finding in report.findings:
        console.line(str(finding))
    for note in report.notes:
        console.line(f"note: {note}")
    console.line(f"{report.store}: {'clean' if report.ok else f'{len(report.findings)} damaged'}")


@writing_command
@click.argument("place", metavar="DIR|s3://BUCKET/PREFIX")
@with_output
def backup(out: Output, place: str) -> None:
    """Copy the store to a folder or a bucket while it is used.

    Lake, logs, checkpoints, calibrations, labels, signatures; no caches and reports. Only what is new or
    changed is copied. Runs that were removed from the store stay in the copy. A copy in a folder is a store,
    and is checked as one; one in a bucket (extra `s3`, access by AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    AWS_ENDPOINT_URL) is checked when `twin restore` brings it back.

    \b
    Examples:
      twin backup /mnt/backup/twin
      twin backup s3://backups/twin
    """
    from replay.api import store_check
    from replay.inventory.backup import back_up
    from replay.inventory.places import Folder, place_of

    chosen = place_of(place)
    with out.console.progress() as progress:
        made = back_up(out.store, chosen, progress)
        report = store_check.check(chosen.root, progress) if isinstance(chosen, Folder) else None

    def render(console: "Console") -> None:
        written = f"{made.copied:,} files copied ({made.written_bytes / 1e6:,.1f} MB)"
        kept = f"{made.unchanged:,} unchanged, {made.removed:,} removed"
        console.line(f"{chosen.title}: {made.runs:,} runs; {written}, {kept}")
        if report is not None:
            _found(console, report)

    out.show({**made.to_json(), "check": None if report is None else report.to_json()}, render)
    sys.exit(0 if report is None or report.ok else 3)


@writing_command
@click.argument("place", metavar="DIR|s3://BUCKET/PREFIX")
@with_output
def restore(out: Output, place: str) -> None:
    """Bring a copy that `twin backup` made back, into an empty store.

    A copy may come from anywhere: only the regular files that it lists are taken, and it is refused if it
    holds anything else. Every file is compared with its digest, and the store is checked by `twin verify`.

    \b
    Examples:
      twin restore /mnt/backup/twin --store restored
      twin restore s3://backups/twin --store restored
    """
    from replay.api import store_check
    from replay.inventory import backup as backups
    from replay.inventory.places import place_of

    chosen = place_of(place)
    with out.console.progress() as progress:
        count = backups.restore(chosen, out.store, progress)
        report = store_check.check(out.store, progress)

    def render(console: "Console") -> None:
        console.line(f"{out.store}: {count:,} files of {chosen.title}")
        _found(console, report)

    body = {"schema": "twin.restore/1", "store": str(out.store), "copy": chosen.title, "files": count}
    out.show({**body, "check": report.to_json()}, render)
    sys.exit(0 if report.ok else 3)


@writing_command
@click.argument("source", metavar="DIR|s3://BUCKET/PREFIX")
@click.argument("target", metavar="DIR|s3://BUCKET/PREFIX")
@click.option("--run", "runs", multiple=True, metavar="RUN", help="This run only; may be repeated.")
@with_output
def sync(out: Output, source: str, target: str, runs: tuple[str, ...]) -> None:
    """Add the runs of a store to another one, on a disk or in a bucket.

    Copies the segments that the second store lacks, each compared with its digest, and writes over nothing: a
    run of which it has another history is named and left. One that was cut short goes on when it is called
    again. Lake, checkpoints and labels stay where they are; `twin backup` copies a whole store.

    \b
    Examples:
      twin sync .twin s3://runs/team
      twin sync s3://runs/team .twin --run tri-7b-static-s0-6f6765be
    """
    from replay.inventory.synchronization import synchronize
    from replay.log.bucket_log import store_at
    from replay.store.run_index import LATEST, find

    with out.console.progress() as progress:
        origin = store_at(source)
        if LATEST in runs:
            chosen = find(origin, LATEST)
            out.console.note(f"latest of {source} is {chosen}")
            runs = tuple(dict.fromkeys(chosen if run == LATEST else run for run in runs))
        done = synchronize(origin, store_at(target), runs, progress)
    failed = [run for run in done if run.problem]

    def render(console: "Console") -> None:
        for run in done:
            if run.problem:
                console.line(f"{run.run_id}: left as it is: {run.problem}")
            elif run.waiting:
                console.line(f"{run.run_id}: {run.waiting:,} events are in no segment yet and stay behind")
        copied, size = sum(run.copied for run in done), sum(run.copied_bytes for run in done) / 1e6
        there = sum(run.there for run in done)
        console.line(
            f"{target}: {len(done):,} runs, {copied:,} segments copied ({size:,.1f} MB), {there:,} were there"
        )

    body = {"schema": "twin.sync/1", "source": source, "target": target, "ok": not failed}
    out.show({**body, "runs": [run.to_json() for run in done]}, render)
    sys.exit(3 if failed else 0)
