"""Commands on the runs of a store: list, compare, label, remove, collect what is left over."""

import sys
from pathlib import Path
from typing import Any

import click

from commands import completion as known
from commands.output import PATH, Output, command, with_output, writing_command
from ingest.core.errors import UsageError


@command
@click.option("--where", "condition", metavar="SQL", help="Only runs of which this condition is true.")
@click.option(
    "--sort", metavar="COLUMN", help="Order by this column, `-COLUMN` falling [the newest run first]."
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only runs with this tag; repeatable.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many runs [all].")
@with_output
def runs(
    out: Output, condition: str | None, sort: str | None, tags: tuple[str, ...], limit: int | None
) -> None:
    """List runs with their key figures, tags and notes.

    A condition may name every column of --json: what a run is (run, kind, scenario, policy, seed, window,
    dataset, engine, started, finished, branch_of), its size (events, bytes), labels (tags, note), and every
    key figure (time_per_token_s, utilisation, egress_usd, moves, decision_p99_s, ...).

    \b
    Examples:
      twin runs
      twin runs --where "policy = 'hippo' and utilisation > 0.5" --sort time_per_token_s
      twin runs --tag paper --sort=-tokens --limit 5
    """
    from commands.show import runs as show
    from replay.inventory import listing, selection

    with out.console.progress() as progress:
        found = listing.rows(out.store, progress)
    found = [row for row in found if set(tags) <= set(row.labels.tags)]
    if condition is not None:
        found = selection.where(found, condition)
    if sort is not None:
        found = selection.ordered(found, sort)
    rows = [row.to_json() for row in found[:limit]]
    column = (sort or "").removeprefix("-")
    out.show({"schema": "twin.runs/1", "runs": rows}, lambda console: show.runs(console, rows, column))


@writing_command
@click.argument("chosen", shell_complete=known.runs, metavar="RUN RUN...", nargs=-1, required=True)
@click.option("--plot", type=PATH, metavar="FILE", help="Draw tokens over time into FILE: .svg or .png.")
@with_output
def compare(out: Output, chosen: tuple[str, ...], plot: Path | None) -> None:
    """Compare runs side by side: policies with paired differences, or schedulers of a queue.

    Runs of policies in one world are paired by hours, and policies with runs in several worlds over worlds
    and hours (docs/decisions/12-paired-statistics.md); a positive difference means better than the first
    run. Runs of a queue are sorted by their mean wait.

    \b
    Examples:
      twin compare tri-7b-static tri-7b-mpc
      twin compare queue-easy queue-fcfs
      twin compare tri-7b-static tri-7b-mpc tri-7b-hippo --plot tokens.svg
    """
    from commands.show import runs as show
    from replay.inventory import overlay, side_by_side
    from replay.store import run_kind

    run_ids = [out.run(run) for run in chosen]
    if run_kind.require_one_family(out.store, run_ids, "compare") == "queue":
        _compare_queues(out, run_ids, plot)
        return
    with out.console.progress() as progress:
        found = side_by_side.compare(out.store, run_ids, progress)
    body: dict[str, Any] = found.to_json()
    if plot is not None:
        from ingest.core import durable

        with out.console.working("picture"):
            drawn = overlay.picture(out.store, found.runs, plot)
        stored = durable.write_output(plot, drawn)
        body["plot"] = {"path": str(plot), "bytes": stored.size_bytes}
    out.show(body, lambda console: show.compared(console, found, plot))


def _compare_queues(out: Output, run_ids: list[str], plot: Path | None) -> None:
    """`twin compare` of queue runs."""
    from commands.show import runs as show
    from replay.logqueue import schedulers

    if plot is not None:
        raise UsageError(
            f"--plot draws tokens over time, and {run_ids[0]} is a queue run, which trains none; "
            "`twin report` with the same runs draws their queues"
        )
    with out.console.progress() as progress:
        found = schedulers.compare(out.store, run_ids, progress)
    out.show(found.to_json(), lambda console: show.compared_queues(console, found))


@writing_command
@click.argument("run", shell_complete=known.runs)
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", is_flag=True, help="Take these tags away instead.")
@with_output
def tag(out: Output, run: str, tags: tuple[str, ...], remove: bool) -> None:
    """Give a run tags, or take them away; without TAG, show what it has.

    Tags and notes lie beside the log, which they never touch.

    \b
    Examples:
      twin tag latest paper baseline
      twin tag latest baseline --remove
    """
    from replay.store import run_labels

    run_id = out.run(run)
    if remove and not tags:
        raise UsageError("--remove takes the tags that go")
    if tags:
        run_labels.tag(out.store, run_id, *(((), tags) if remove else (tags,)))
    _show_labels(out, run_id)


@writing_command
@click.argument("run", shell_complete=known.runs)
@click.argument("text", required=False)
@click.option("--clear", is_flag=True, help="Take the note away.")
@with_output
def note(out: Output, run: str, text: str | None, clear: bool) -> None:
    """Write a note to a run, which replaces the one before; without TEXT, show it.

    \b
    Examples:
      twin note latest "with the links of March"
      twin note latest --clear
    """
    from replay.store import run_labels

    run_id = out.run(run)
    if clear and text is not None:
        raise UsageError("--clear takes no TEXT; leave one out")
    if clear or text is not None:
        run_labels.note(out.store, run_id, text or "")
    _show_labels(out, run_id)


def _show_labels(out: Output, run_id: str) -> None:
    from commands.show import runs as show
    from replay.store import run_labels

    labels = run_labels.read(out.store, run_id)
    body = {"schema": "twin.labels/1", "run": run_id, **labels.to_json()}
    out.show(body, lambda console: show.labels(console, run_id, labels))


@command
@click.argument("chosen", shell_complete=known.runs, metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@with_output
def rm(out: Output, chosen: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Remove runs for good: log, record of its end, labels, signature, cached rows.

    Asks first. A killed removal leaves a run whole or gone; reports and what-ifs of a run stay.

    \b
    Examples:
      twin rm tri-7b-static-s0-1a2b3c4d --dry-run
      twin rm latest --yes
    """
    from commands.show import runs as show
    from replay.inventory import removal

    run_ids = list(dict.fromkeys(out.run(run) for run in chosen))
    plan = removal.planned(out.store, run_ids)
    if not dry_run:
        if not yes:
            _ask(show.question(plan))
        plan = removal.remove(out.store, run_ids)
    body = {"schema": "twin.rm/1", "removed": not dry_run, "runs": [one.to_json() for one in plan]}
    out.show(body, lambda console: show.removed(console, plan, done=not dry_run))


def _ask(question: str) -> None:
    """Ends the command unless the answer is yes.

    Raises:
        UsageError: nobody is there to answer.
    """
    if not _answered(question):
        click.echo("nothing was removed", err=True)
        sys.exit(1)


def _answered(question: str) -> bool:
    """True if the person at the terminal says yes."""
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(f"{question} Nobody is there to answer: say --yes, or --dry-run")
    return click.confirm(question, err=True)


@command
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@with_output
def gc(out: Output, dry_run: bool) -> None:
    """Remove what killed processes left and what nothing refers to.

    Runs that were killed can be resumed and stay, as do reports, downloads, calibrations and quarantine.

    \b
    Examples:
      twin gc --dry-run
      twin gc
    """
    from commands.show import runs as show
    from replay.inventory import garbage

    found = garbage.collect(out.store, dry_run=dry_run)
    out.show(found.to_json(), lambda console: show.collected(console, found))
