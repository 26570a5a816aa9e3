"""Commands on the content of the store: SQL, audit, compaction, report, trace, status."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion as known
from commands.options import Seconds
from commands.output import PATH, Output, command, with_output, write, writing_command
from ingest.core import extras
from ingest.core.errors import UsageError
from ingest.core.terminal import visible

if TYPE_CHECKING:
    from commands.show.console import Console


@command
@click.argument("statement")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "parquet", "arrow"]), default="table"
)
@click.option("--timeout", type=float, metavar="SECONDS", help="Stop the query after so long [never].")
@click.option(
    "--memory",
    default="50%",
    metavar="SIZE",
    help="Most memory of the query, as 4GB [50%: half of the machine's].",
)
@with_output
def sql(out: Output, statement: str, form: Any, timeout: float | None, memory: str) -> None:
    """Query lake and event logs in SQL.

    `twin sql describe` documents the views. A query reads them alone, no other files, and writes nothing.

    \b
    Examples:
      twin sql "select run, count(*) from decisions group by run"
      twin sql "from links" --format parquet --timeout 60 > links.parquet
    """
    from replay.sql import formats, query
    from replay.sql.sandbox import Limits

    if statement.strip() == "describe":
        click.echo(query.describe())
        return
    limits = Limits(timeout, memory)
    with out.console.working("query"):
        answer = query.query(out.store, statement, note=out.console.note, limits=limits)
    if out.as_json:
        rows = json.loads(formats.render(answer, "json"))
        result = {"schema": "twin.sql/1", "columns": answer.column_names, "rows": rows}
        write(f"{json.dumps(result)}\n".encode())
        return
    on_terminal = bool(sys.stdout and sys.stdout.isatty())
    found = formats.render(answer, form, (os.get_terminal_size().columns or None) if on_terminal else None)
    if form == "table" or (form in ("csv", "json") and on_terminal):  # elsewhere data stay exact
        found = visible(found.decode()).encode()
    write(found)


@writing_command
@click.argument("run", shell_complete=known.runs)
@click.option("--decision", "number", type=int, metavar="N", help="Audit and explain one decision.")
@click.option("--job", metavar="J", help="Of a queue run: why this job waited, and when it would start.")
@click.option(
    "--at", "moment", type=Seconds(0), metavar="SECONDS", help="With --job: as known then [its submission]."
)
@click.option(
    "--chain-head", help="The head that was kept elsewhere: proves that nothing was rewritten or cut."
)
@click.option("--since", type=click.IntRange(0), default=0, metavar="SEQ", help="Only events from SEQ on.")
@click.option("--quarantine", "aside", is_flag=True, help="Move unexpected and damaged files aside.")
@click.option("--sign", "key", type=PATH, metavar="KEY", help="Sign a clean run's head (Ed25519, PEM).")
@click.option("--verify-signature", "public", type=PATH, metavar="PUB", help="Check the signature too.")
@with_output
def audit(
    out: Output, run: str, number: int | None, job: str | None, moment: float | None, chain_head: str | None,
    since: int, aside: bool, key: Path | None, public: Path | None,
) -> None:  # fmt: skip
    """Verify a run, or explain one decision or one job of it.

    Chain, digests, re-execution, no look-ahead, conservation. With --decision: what set it off, what was
    compared, what static, single, greedy and mpc would have done had they watched the run so far, and which
    bandwidth of a link the plan uses would change the answer (three are tried each way, up to 4 times).

    \b
    Example: twin audit latest
    """
    from commands.show import decision
    from commands.show import run as show
    from replay.audit import audit as auditor
    from replay.audit import signing
    from replay.log.quarantine import quarantine
    from replay.store import run_index

    if key is not None or public is not None:
        extras.require("sign", "a signature")
    run_id = out.run(run)
    if aside:
        moved = quarantine(run_index.folder(out.store, run_id))
        out.show(moved.to_json(), lambda console: show.quarantined(console, moved))
        return
    if job is not None:
        _explain_job(out, run_id, job, moment)
        return
    signed = None
    if public is not None:
        signed = signing.verified(out.store, run_id, public)
        chain_head = signed.chain_head
    if number is not None:
        with out.console.progress() as progress:
            found = auditor.decision(out.store, run_id, number, progress=progress)

        def render(console: "Console") -> None:
            decision.decision(console, found)
            decision.seen(console, found)

        out.show(found.to_json(), render)
        sys.exit(0 if found.reproduced else 3)
    with out.console.progress() as progress:
        report = auditor.audit(out.store, run_id, chain_head=chain_head, since=since, progress=progress)
    if key is not None and report.ok:
        signed = signing.sign(out.store, run_id, key, report.chain_head)
    covered = None if signed is None or not report.ok else signing.covered_events(out.store, signed)
    body = report.to_json() | {"signed_events": covered}

    def render(console: "Console") -> None:
        show.audit(console, report)
        if covered is not None:
            show.signed(console, covered, since + report.events)

    out.show(body, render)
    sys.exit(0 if report.ok else 3)


def _explain_job(out: Output, run_id: str, job: str, moment: float | None) -> None:
    """Says why a job of a queue run waited."""
    from commands.show import queue as show
    from replay.logqueue import waiting

    found = waiting.explain(out.store, run_id, job, moment)
    out.show(found.to_json(), lambda console: show.job(console, found))


@writing_command
@click.argument("run", shell_complete=known.runs)
@with_output
def compact(out: Output, run: str) -> None:
    """Merge the segments of a finished run into few files.

    Digest and chain head stay.

    \b
    Example: twin compact latest
    """
    from commands.show import run as show
    from replay.log import compaction
    from replay.sql import query
    from replay.store import run_index

    run_id = out.run(run)
    with out.console.working("compaction"):
        done = compaction.compact(run_index.folder(out.store, run_id))
        query.keep(out.store, run_id)
    result = {"schema": "twin.compact/1", "run": run_id, **done.to_json()}
    out.show(result, lambda console: show.compacted(console, run_id, done))


@writing_command
@click.argument("run", nargs=-1, required=True, shell_complete=known.runs)
@click.option("--out", "page", type=PATH, help="File to write [reports/RUN.html in the store].")
@click.option(
    "--compare/--alone",
    default=False,
    help="Set the store's runs of this world and the bound beside it [no].",
)
@click.option(
    "--vs",
    "other",
    metavar="RUN",
    shell_complete=known.runs,
    help="Set one other run beside it, figure by figure.",
)
@with_output
def report(out: Output, run: tuple[str, ...], page: Path | None, compare: bool, other: str | None) -> None:
    """Write one self-contained HTML page about a run, or several overlaid.

    \b
    Examples:
      twin report latest
      twin report latest --compare --vs tri-7b-static
      twin report tri-7b-hippo tri-7b-static tri-7b-mpc
    """

    run_ids = [out.run(one) for one in run]
    if len(run_ids) > 1:
        path = _several(out, run_ids, page, asks_more=compare or other is not None)
    else:
        path = _one(out, run_ids[0], page, compare, other)
    result = {"schema": "twin.report/1", "run": run_ids[0], "runs": run_ids, "path": str(path)}
    out.show(result, lambda console: console.line(str(path)))


def _several(out: Output, run_ids: list[str], page: Path | None, *, asks_more: bool) -> Path:
    from replay.report import several_runs

    if asks_more:
        raise UsageError(
            "--compare and --vs are for the report of one run; several runs are compared as they are"
        )
    return several_runs.write(out.store, run_ids, page)


def _one(out: Output, run_id: str, page: Path | None, compare: bool, other: str | None) -> Path:
    from replay.report import page as writer

    with out.console.progress() as progress:
        comparison = None
        if compare:
            from replay.bench.comparison import stored_runs_of_world

            comparison = stored_runs_of_world(out.store, run_id, progress=progress)
        versus = None
        if other is not None:
            from replay.run.whatif import pair

            versus = pair(out.store, out.run(other), run_id)
        progress.start(None, "page")
        return writer.write(out.store, run_id, page, comparison, versus)


@writing_command
@click.argument("run", shell_complete=known.runs)
@click.option(
    "--from",
    "start",
    type=Seconds(0),
    default=0.0,
    metavar="SECONDS",
    help="Begin of the window [0].",
)
@click.option("--to", "end", type=Seconds(0), metavar="SECONDS", help="Its end [a minute later].")
@click.option("--out", "file", type=PATH, default=Path("trace.json"), help="File to write [trace.json].")
@with_output
def trace(out: Output, run: str, start: float, end: float | None, file: Path) -> None:
    """Write a window of a run as a Chrome trace.

    Stages, micro-batches, transfers and moves; Perfetto opens it.

    \b
    Example: twin trace latest --from 600 --to 660 --out trace.json
    """
    from replay.report import chrome_trace

    run_id = out.run(run)
    with out.console.progress() as progress:
        made = chrome_trace.write(
            out.store, run_id, file, from_s=start, to_s=start + 60 if end is None else end, progress=progress
        )
    line = f"{made.iterations} iterations, {made.events:,} events: {made.path}; Perfetto opens it"
    out.show(made.to_json(), lambda console: console.line(line))


@command
@with_output
def status(out: Output) -> None:
    """Show runs, data sets, the checkpoint and how the filters do.

    \b
    Example: twin status
    """
    from commands.show import status as show
    from replay.metrics import store_status

    with out.console.working("status"):
        found = store_status.status(out.store).to_json()
    out.show(found, lambda console: show.status(console, found))
