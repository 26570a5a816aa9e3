"""Prints data sets: results of ingest, contents of the lake, the catalogue of public sets, fetches."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from commands.show.console import Console
from replay.metrics.formatting import counted

if TYPE_CHECKING:  # a command loads only the packages of its own result
    from ingest.lake.details import Details
    from ingest.lake.lake import DatasetInfo
    from ingest.pipeline.explain import FileExplanation
    from ingest.pipeline.follow import Followed
    from ingest.pipeline.ingest_report import FileResult, IngestReport
    from ingest.pipeline.scrape import ScrapeTotals
    from ingest.public.fetch import Fetched

LISTED = 12
"""Files listed before the rest is only counted."""
SERIES = 40
"""Series of a data set that are listed before the rest is only counted."""
SERIES_FIELD = {"figure": "column"}
DATED = {True: "", False: " (the files bear no dates: an arbitrary day)", None: ""}


def ingest(console: Console, report: "IngestReport") -> None:
    """Prints files, rows and rejects of an ingest by data set and reader, and the names of files not read."""
    from ingest.pipeline import refusal

    groups: dict[tuple[str, str], list[FileResult]] = {}
    for result in report.files:
        if not result.skipped_reason:
            groups.setdefault((result.dataset, result.reader or "-"), []).append(result)
    rows = [_ingested(*key, files) for key, files in groups.items()]
    console.table("", ("data set", "reader", "files", "rows in", "stored", "rejected", "already"), rows)
    if report.skipped:
        console.line()
        console.line(f"not read: {counted(len(report.skipped), 'file')}")
        for line in refusal.lines(report.skipped):
            console.line(line)
    if report.empty:
        console.line()
        console.table("read, without a single row", ("file", "as"), [
            (result.path, result.reader) for result in report.empty[:LISTED]
        ])  # fmt: skip
        if len(report.empty) > LISTED:
            console.line(f"... and {len(report.empty) - LISTED:,} more; in --json they have rows_in 0")
    console.line()
    for note in report.notes:
        console.line(note)
    console.line(f"{counted(sum(report.rows.values()), 'row')} added in {report.seconds:.1f} s")
    if any(result.rejected for result in report.files):
        console.line('why rows were rejected: twin sql "select source_file, source_row, reason from rejects"')


def explained(console: Console, found: "FileExplanation") -> None:
    """Prints what is known of one file: its look, its reader, five rows, and a mapping to start from."""
    console.line(f"{found.path} is {found.looks}")
    console.line(f"read by: {found.reader}" if found.reader else f"not read: {found.why_not}")
    if found.draft:
        console.line()
        console.line("a dataset.toml to start from, guessed by the names; correct it:")
        for line in found.draft:
            console.line(f"  {line}")
        if found.unmapped:
            console.line(f"not mapped: {', '.join(found.unmapped[:LISTED])}")
    console.line()
    if found.rows:
        names = list(dict.fromkeys(name for row in found.rows for name in row))
        rows = [[row.get(name) for name in names] for row in found.rows]
        console.table(f"its first rows in {found.table}", names, rows)
        if found.rejected:
            console.line(f"{counted(found.rejected, 'row')} rejected")
    elif found.refused:
        console.line(f"no rows come of it: {found.refused}")


def _ingested(dataset: str, reader: str, files: list["FileResult"]) -> tuple[Any, ...]:
    stored: Counter[str] = Counter()
    for result in files:
        stored.update(result.stored)
    tables = ", ".join(f"{name} {count:,}" for name, count in sorted(stored.items()) if count) or "-"
    read = sum(result.rows_in for result in files)
    rejected = sum(result.rejected for result in files)
    return dataset, reader, len(files), read, tables, rejected, sum(result.already for result in files)


def traces(console: Console, summary: dict[str, Any]) -> None:
    """Prints the contents of the lake, a data set a line."""
    rows = [[entry.get(column) for column in summary["columns"]] for entry in summary["rows"]]
    if rows:
        console.table("", summary["columns"], rows)
    else:
        console.line("nothing has been ingested yet: twin ingest shipped")


def details(console: Console, found: "Details") -> None:
    """Prints one data set: what was stated and assumed, its tables, and its series with their figures."""
    kind = "synthetic" if found.synthetic else "measured"
    facts = {
        "title": found.title or "not stated", "licence": found.licence, "source": found.source, "kind": kind,
        "files": found.files, "rejected rows": found.rejected,
    }  # fmt: skip
    console.line(found.name)
    for name, value in facts.items():
        console.line(f"  {name:14} {value}")
    for assumption in found.assumptions:
        console.line(f"  assumed        {assumption}")
    for line in found.tables:
        dates = "" if line.first is None else f", {line.first} to {line.last}" + DATED[line.dated]
        console.line(f"  {line.table:14} {counted(line.rows, 'row')}{dates}")
    if found.series:
        console.line()
        columns = ("series", "figure", "samples", "first", "last", "interval_s", "gaps", "longest_gap_s",
                   "low", "median", "high")  # fmt: skip
        rows = [[getattr(one, SERIES_FIELD.get(name, name)) for name in columns] for one in found.series]
        console.table("", columns, rows[:SERIES])
    if len(found.series) > SERIES:
        console.line(f"... and {len(found.series) - SERIES:,} more series; --json has all of them")


def dropped(console: Console, held: "DatasetInfo") -> None:
    """Prints what was dropped from the lake."""
    rows = ", ".join(f"{table} {count:,}" for table, count in held.rows.items()) or "no rows"
    rejects = counted(held.rejected, "reject")
    console.line(f"{held.name} taken out: {rows}, {rejects}, from {counted(held.sources, 'source')}")


def catalogue(console: Console, found: dict[str, Any]) -> None:
    """Prints public sets, a line each."""
    rows = [
        (e["name"], f"{e['files']:,}", f"{e['bytes'] / 1e6:.1f} MB", e["licence"], e["title"])
        for e in found["sets"]
    ]
    console.table("", ("name", "files", "size", "licence", "what it is"), rows)
    partial = [
        f"{e['name']} ({e['files'] - e['reachable']})" for e in found["sets"] if e["reachable"] < e["files"]
    ]
    console.line()
    console.line(f"files without an address of their own, from --mirror only: {', '.join(partial)}")


def fetched(console: Console, done: "Fetched") -> None:
    """Prints what was downloaded, what is missing, and the next command."""
    came = f"{counted(done.new, 'file')} came, {done.present:,} were there"
    console.line(f"{done.name}: {came}, {done.size_bytes / 1e6:.1f} MB")
    if done.left_out:
        more = f" and {len(done.left_out) - 1} more" if len(done.left_out) > 1 else ""
        console.line(f"without an address of their own: {done.left_out[0]}{more}; --mirror DIR takes them")
    console.line(f"next: twin ingest {done.folder}")


def scraped(console: Console, done: "ScrapeTotals") -> None:
    """Prints what was scraped, and what became of each target."""
    rows = ", ".join(f"{count:,} {table}" for table, count in sorted(done.rows.items())) or "no rows"
    console.line(f"{done.dataset}: {rows} added, {done.rejected:,} rejected, in {done.rounds:,} rounds")
    for shown, one in done.targets.items():
        console.line(f"{shown}: {one.pages:,} pages read, {one.failed:,} reads failed")
    for shown, why in done.unread.items():
        console.line(f"not read: {shown}: {why}")


def followed(console: Console, done: "Followed") -> None:
    """Prints what was ingested while following."""
    console.line(
        f"{done.rows:,} rows added, {done.rejected:,} rejected, from {done.files:,} files and pieces"
    )
    for path, why in done.skipped.items():
        console.line(f"not read: {path}: {why}")
