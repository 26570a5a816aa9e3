"""Commands on measurements: ingest, fetch, list and plot, synthetic traces."""

import sys
from contextlib import suppress
from pathlib import Path

import click

from commands import completion as known
from commands.frame.options_as_settings import given
from commands.output import FOLDER, PATH, Output, with_output, writing_command
from ingest.core.errors import InputError, UsageError

SHIPPED = Path("shipped")
"""In place of a path to ingest: the traces that come with the program."""


@writing_command
@click.argument("paths", nargs=-1, type=PATH)
@click.option("--follow", "following", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@click.option(
    "--scrape", "scraped", multiple=True, metavar="URL",
    help="Read a page of dcgm-exporter or node exporter, or a Prometheus query; again for more.",
)  # fmt: skip
@click.option(
    "--every-s", default=15.0, type=click.FloatRange(0.1, 86_400), metavar="N",
    help="Seconds between two reads [15].",
)  # fmt: skip
@click.option(
    "--for-s", type=click.FloatRange(0, 1e8), metavar="M",
    help="Seconds to read for, 0: once [until Ctrl-C].",
)  # fmt: skip
@click.option("--name", metavar="NAME", help="Data set of what is scraped [scraped].")
@click.option(
    "--explain", "explaining", is_flag=True, help="Only say what the file is and how it would be read."
)
@with_output
def ingest(
    out: Output, paths: tuple[Path, ...], following: bool, scraped: tuple[str, ...], every_s: float,
    for_s: float | None, name: str | None, explaining: bool,
) -> None:  # fmt: skip
    """Read measurements of any known format into the lake.

    `shipped` in place of a path stands for the synthetic traces that come with the program. What is scraped
    is committed once a minute and in the end; a target that does not answer is counted and asked again.

    \b
    Examples:
      twin ingest shipped
      twin ingest --explain measured/links.csv
      twin ingest --follow measured/
      twin ingest --scrape http://127.0.0.1:9400/metrics --scrape http://127.0.0.1:9100/metrics --for-s 3600
    """
    from commands.show import data
    from ingest.pipeline.ingest import ingest as read

    if scraped and (not paths or given("scraped")):
        if paths or following or explaining:
            raise UsageError("--scrape URL takes no PATHS, no --follow and no --explain")
        scrape(out, scraped, name, (every_s, for_s))
        return
    if not paths:
        raise UsageError("PATHS are missing: files or folders to read, `shipped`, or --scrape URL")
    if any(given(option) for option in ("every_s", "for_s", "name")):
        raise UsageError("--every-s, --for-s and --name go with --scrape URL")
    paths = tuple(shipped(path) for path in paths)
    if out.dry_run:
        foretell(out, paths, following)
    if explaining:
        explain(out, paths, following)
        return
    if following:
        follow(out, paths)
        return
    with out.console.progress() as progress:
        report = read(paths, out.store, progress)
    for problem in report.plugin_problems:
        out.console.note(problem)
    out.show(report.to_json(), lambda console: data.ingest(console, report))
    if report.rejected_sets:
        for name in report.rejected_sets:
            out.console.note(f"{name}: nothing was stored, every row was rejected{report.first_reason(name)}")
        sys.exit(InputError.exit_code)


def shipped(path: Path) -> Path:
    """Returns the folder of the shipped traces for the word `shipped`, unless such a path is there."""
    from ingest.core import resources

    return resources.traces() if path == SHIPPED and not path.exists() else path


def foretell(out: Output, paths: tuple[Path, ...], following: bool) -> None:
    """`twin ingest --dry-run`: each file with the reader that would take it, and the command ends.

    Raises:
        InputError: no file would be read.
    """
    from ingest.core.durable import DISK
    from ingest.lake import lake
    from ingest.pipeline.ingest import preview

    found = preview(paths, out.store)
    for file in found:
        if file.skipped_reason or file.already:
            out.console.note(f"{file.path}: {file.skipped_reason or 'is in the lake already'}")
    if all(file.skipped_reason for file in found):
        raise InputError("no file could be read")
    place = lake.folder(out.store)
    then = ", and what is added until Ctrl-C" if following else ""
    taken = [file for file in found if not file.already and not file.skipped_reason]
    DISK.foretell(*((place, f"{one.dataset}: {one.path}, by reader {one.reader}{then}") for one in taken))


def explain(out: Output, paths: tuple[Path, ...], following: bool) -> None:
    """`twin ingest --explain FILE`: what is known of one file; nothing is stored."""
    from commands.show import data
    from ingest.pipeline.explain import explain as look

    if following or len(paths) != 1:
        raise UsageError("--explain takes one FILE, and no --follow")
    found = look(paths[0])
    out.show(found.to_json(), lambda console: data.explained(console, found))


def follow(out: Output, paths: tuple[Path, ...]) -> None:
    """`twin ingest --follow`: reads until Ctrl-C, then shows the totals."""
    from commands.show import data
    from ingest.pipeline import follow as following
    from ingest.readers import registry

    for problem in registry.plugin_problems():
        out.console.note(problem)
    done = following.Followed()
    out.console.note("taking in what is added; Ctrl-C ends it")
    with suppress(KeyboardInterrupt):
        following.follow(paths, out.store, notify=out.console.note, into=done)
    out.show(done.to_json(), lambda console: data.followed(console, done))


def scrape(out: Output, urls: tuple[str, ...], name: str | None, times_s: tuple[float, float | None]) -> None:
    """`twin ingest --scrape`: reads pages for a time or until Ctrl-C, then shows the totals.

    times_s: seconds between two reads, and in all; None: until Ctrl-C.

    Raises:
        InputError: not one page could be read.
    """
    from commands.show import data
    from ingest.core import names
    from ingest.core.durable import DISK
    from ingest.lake import lake
    from ingest.pipeline import scrape as scraping
    from ingest.pipeline.metrics_page import ScrapedTarget

    every_s, for_s = times_s
    dataset = names.checked(name or scraping.DATASET, "data set")
    if len(urls) > scraping.MOST_TARGETS:
        raise UsageError(f"--scrape: at most {scraping.MOST_TARGETS} addresses, not {len(urls)}")
    targets = [ScrapedTarget(url) for url in dict.fromkeys(urls)]
    place = lake.folder(out.store)
    DISK.foretell(*((place, f"{dataset}: rows of {one.address.shown}, not read now") for one in targets))
    done = scraping.ScrapeTotals(dataset)
    until = "Ctrl-C ends it" if for_s is None else f"for {for_s:g} s"
    out.console.note(f"reading {len(targets)} pages every {every_s:g} s; {until}")
    with suppress(KeyboardInterrupt):
        scraping.scrape(targets, out.store, every_s=every_s, for_s=for_s, notify=out.console.note, into=done)
    out.show(done.to_json(), lambda console: data.scraped(console, done))
    if not any(one.pages for one in done.targets.values()):
        raise InputError("no page could be read; the reasons stand above")


@writing_command
@click.argument("name", required=False)
@click.option("--mirror", type=PATH, metavar="DIR", help="Copy from here, laid out as NAME/ or wan/NAME/.")
@click.option("--list", "listed", is_flag=True, help="List what can be had.")
@with_output
def fetch(out: Output, name: str | None, mirror: Path | None, listed: bool) -> None:
    """Get a public data set, verified, without reading it in.

    \b
    Examples:
      twin fetch --list
      twin fetch skyplane-grids
    """
    from commands.show import data
    from ingest.core.durable import DISK
    from ingest.public import catalogue
    from ingest.public import fetch as fetching

    if listed == (name is not None):
        raise UsageError("say the NAME of a data set, or --list")
    if name is None:
        found = {"schema": "twin.catalogue/1", "sets": [e.to_json() for e in catalogue.entries().values()]}
        out.show(found, lambda console: data.catalogue(console, found))
        return
    if out.dry_run:
        DISK.foretell(*fetching.missing(out.store, name))
    with out.console.progress() as progress:
        done = fetching.fetch(out.store, name, mirror=mirror, progress=progress)
    out.show(done.to_json(), lambda console: data.fetched(console, done))


@writing_command
@click.argument("name", required=False, shell_complete=known.datasets)
@click.option("--plot", type=PATH, metavar="FILE", help="Draw the series of NAME into FILE: .svg or .png.")
@click.option("--drop", is_flag=True, help="Take NAME out of the lake, without asking.")
@with_output
def traces(out: Output, name: str | None, plot: Path | None, drop: bool) -> None:
    """List what is in the lake; details of one data set; draw it, or take it out.

    Links, span, gaps, variation and licence of each set, and whether its files are dated. NAME alone shows
    source, assumptions and every series of that set; `--plot` draws them.

    \b
    Examples:
      twin traces
      twin traces my-links
      twin traces my-links --drop
      twin traces cloudpilot-iperf3 --plot out.svg
    """
    from commands.show import data
    from ingest.lake import details, lake, summary

    if plot is not None and drop:
        raise UsageError("--plot FILE and --drop do not go together: say one of them")
    if name is None and (plot is not None or drop):
        raise UsageError("--plot FILE and --drop need the NAME of a data set; `twin traces` lists them")
    if name is not None and drop:
        held = lake.drop(out.store, name)
        out.show(held.to_json(), lambda console: data.dropped(console, held))
        return
    if name is not None and plot is not None:
        from ingest.core import durable
        from ingest.lake.plot import picture

        with out.console.working("picture"):
            drawn = picture(out.store, name, plot)
        stored = durable.write_output(plot, drawn)
        body = {"schema": "twin.plot/1", "name": name, "path": str(plot), "bytes": stored.size_bytes}
        out.show(body, lambda console: console.line(str(plot)))
        return
    if name is not None:
        known_of = details.details(out.store, name)
        out.show(known_of.to_json(), lambda console: data.details(console, known_of))
        return
    with out.console.working("summary"):
        found = summary.summarise(out.store).to_json()
    out.show(found, lambda console: data.traces(console, found))


@writing_command
@click.argument("directory", type=FOLDER)
@with_output
def synth(out: Output, directory: Path) -> None:
    """Write the shipped synthetic traces again, byte for byte.

    \b
    Example: twin synth /tmp/traces
    """
    from ingest.public.synthesise import write

    with out.console.working("traces"):
        written = [str(path) for path in write(directory)]
    out.show({"schema": "twin.synth/1", "files": written}, lambda console: console.line("\n".join(written)))
