"""The command that serves a live run, and what `--live` and `--metrics-port` do while another works."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import completion as known
from commands.options import dataset_option
from commands.output import PATH, Output, with_output, writing_command

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ingest.core.progress import Progress
    from replay.live.metrics_server import Collect
    from replay.live.pace import Pace
    from replay.live.training_curves import CurvePoint
    from replay.log.fold import Fold

NO_TERMINAL = "--live needs a terminal as stderr; --metrics-port N serves the same figures"


class Both:
    """A `Progress` that passes steps on to two others."""

    def __init__(self, first: "Progress", second: "Progress") -> None:
        self._both = first, second

    def start(self, total: int | None, what: str, unit: str = "") -> None:
        """Begins a task."""
        for one in self._both:
            one.start(total, what, unit)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advances the task."""
        for one in self._both:
            one.advance(steps, note)


@contextmanager
def watching(
    out: Output,
    pace: "Pace",
    *,
    draw: Callable[[int, int], "RenderableType"] | None,
    port: int | None,
    collect: "Collect",
) -> Iterator["Progress"]:
    """Shows a state in the body, and yields the progress to report to, which `pace` sees.

    With `draw` it has the screen, where there is one; with `port` it is served. The screen takes the place of
    the progress bars.

    Raises:
        UsageError: the port is taken.
    """
    console = out.console
    with ExitStack() as stack:
        if port is not None:
            from replay.live.metrics_server import serving

            console.note(f"metrics: {stack.enter_context(serving(port, collect))}")
        if draw is not None and console.draws:
            stack.enter_context(console.screen(draw))
            yield pace
            return
        if draw is not None:
            console.note(NO_TERMINAL)
        yield Both(pace, stack.enter_context(console.progress()))


@contextmanager
def run(out: Output, live: bool, port: int | None) -> Iterator[tuple["Progress", "Fold | None"]]:
    """Yields the progress of a run and the fold that is to see its events; None where nobody looks."""
    if not live and port is None:
        with out.console.progress() as progress:
            yield progress, None
        return
    from commands.show import live_run
    from replay.live.pace import Pace
    from replay.live.run_metrics import run_metrics
    from replay.live.run_state import RunState

    state, pace = RunState(), Pace()
    draw = partial(live_run.screen, state, pace) if live else None
    with watching(
        out, pace, draw=draw, port=port, collect=lambda: run_metrics(state.latest, pace)
    ) as progress:
        yield progress, state


@contextmanager
def training(
    out: Output, live: bool, port: int | None
) -> Iterator[tuple["Progress", Callable[["CurvePoint"], None]]]:
    """Yields the progress of a training and the function that is to take its updates."""
    from commands.show import live_training
    from replay.live.pace import Pace
    from replay.live.run_metrics import training_metrics
    from replay.live.training_curves import TrainingCurves

    state, pace = TrainingCurves(), Pace()
    lines = live and not out.console.draws
    tell = live_training.UpdateLines(out.console, state).tell if lines else state.tell
    draw = partial(live_training.screen, state, pace) if live and not lines else None
    with watching(
        out, pace, draw=draw, port=port, collect=lambda: training_metrics(state.latest, pace)
    ) as progress:
        yield progress, tell


@writing_command
@click.option(
    "-s", "--scenario", required=True, metavar="NAME", shell_complete=known.scenarios,
    help="Scenario that is served: its cluster, job and control.",
)  # fmt: skip
@dataset_option
@click.option(
    "-p", "--policy", default="hippo", metavar="NAME", shell_complete=known.policies,
    help="Policy that decides [hippo].",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen at [127.0.0.1].")
@click.option(
    "--port",
    default=8712,
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port; 0: any that is free [8712].",
)
@click.option("--tokens", type=PATH, metavar="FILE", help="Bearer tokens: NAME ROLES SHA256 [UNTIL] a line.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME",
    help="Name under which clients reach the service, beside localhost and --host; again for more.",
)  # fmt: skip
@click.option(
    "--proxy", "proxies", multiple=True, metavar="ADDRESS",
    help="Reverse proxy, or network of some, whose X-Forwarded-For names the client; again for more.",
)  # fmt: skip
@click.option(
    "--active/--shadow", default=False, help="Mode of a new run: order plans, or only log [shadow]."
)
@click.option(
    "--order-timeout", default=600.0, type=click.FloatRange(1, 1e6), metavar="S",
    help="Seconds for which an order waits for the job [600].",
)  # fmt: skip
@click.option(
    "--renew-after", default=24.0, type=click.FloatRange(0, 8760), metavar="H",
    help="Hours after which a new run takes the place of this one, 0: never [24].",
)  # fmt: skip
@click.option(
    "--webhook", metavar="URL",
    help="Post decisions and orders there; TWIN_WEBHOOK_SECRET signs them.",
)  # fmt: skip
@click.option(
    "--follow", "followed", type=PATH, multiple=True, metavar="FILE",
    help="Take observations from a file that grows: .csv, .tsv, .jsonl, .ndjson; again for more.",
)  # fmt: skip
@click.option(
    "--scrape",
    "scraped",
    multiple=True,
    metavar="URL",
    help="Take links and domains from a page of Prometheus metrics; again for more.",
)
@click.option(
    "--scrape-every", default=15.0, type=click.FloatRange(0.1, 86_400), metavar="S",
    help="Seconds between two looks at a page [15].",
)  # fmt: skip
@click.option(
    "--synthetic", multiple=True, type=click.Choice(("links", "job")),
    help="Part of the telemetry that is made up, as in a demonstration: the console says so; again for both.",
)  # fmt: skip
@click.option("--certificate", type=PATH, metavar="FILE", help="Certificate chain, PEM: serve over TLS.")
@click.option("--key", type=PATH, metavar="FILE", help="Its private key, PEM.")
@with_output
def serve(
    out: Output, scenario: str, dataset: str | None, policy: str, host: str, port: int, tokens: Path | None,
    hosts: tuple[str, ...], proxies: tuple[str, ...], active: bool, order_timeout: float, renew_after: float,
    webhook: str | None, followed: tuple[Path, ...], scraped: tuple[str, ...], scrape_every: float,
    synthetic: tuple[str, ...], certificate: Path | None, key: Path | None,
) -> None:  # fmt: skip
    """Serve decisions for a job that runs: telemetry in, plans out.

    Everything accepted and decided is in the event log before it is answered; started again, the service goes
    on with its run. It prints its address with the token of the store, which programs of the same user find
    by themselves. With --tokens the tokens are those of a file; a hash: printf %s TOKEN | sha256sum. Roles
    are read, push, decide, admin. Needs the extra `serve`.

    \b
    Examples:
      twin serve --scenario tri-7b --policy mpc
      twin serve -s tri-7b --follow links.csv --scrape http://127.0.0.1:9300/metrics
      twin serve -s tri-7b --active --host 0.0.0.0 --tokens tokens.txt --certificate c.pem --key k.pem
    """
    from ingest.core import extras
    from ingest.core.durable import DISK
    from ingest.core.errors import UsageError
    from replay.store import run_index
    from twin.scenario.prepare import load

    extras.require("serve", "`twin serve`")
    from service import local_token
    from service.api import server
    from service.api.app import ApiSettings, make_app
    from service.api.origins import allowed_hosts, named_by
    from service.api.tokens import Tokens
    from service.api.webhook import POSTED, Webhook
    from service.console import routes as console_routes
    from service.session.session import Session, SessionSettings
    from service.session.undelivered import Undelivered
    from service.sources.feeder import Feeder, TelemetrySource
    from service.sources.rows import FollowedFile
    from service.sources.scrape import ScrapedPage

    sources: list[TelemetrySource] = [FollowedFile(path) for path in dict.fromkeys(followed)]
    sources += [ScrapedPage(url, scrape_every) for url in dict.fromkeys(scraped)]
    posted = None if webhook is None else Webhook(webhook, os.environ.get("TWIN_WEBHOOK_SECRET", ""))
    address = server.ListenAddress(host, port, certificate, key, proxies)
    if (certificate is None) != (key is None):
        raise UsageError("--certificate and --key go together")
    if tokens is None and not address.loopback:
        raise UsageError(f"--host {host} lets other machines in: name their tokens with --tokens FILE")
    names = (*allowed_hosts(hosts), *named_by(host))
    accepted = None if tokens is None else Tokens(tokens)
    mode = "active" if active else "shadow"
    settings = SessionSettings(policy, dataset, mode, order_timeout, 3600 * renew_after, synthetic)
    with out.console.working("scenario and filters"):
        session = Session(out.store, load(scenario), settings)
    DISK.foretell((run_index.folder(out.store, session.run_id), f"log of a service for {scenario}"))
    listener = server.bound(address)
    if posted is not None:
        session.listeners.append(lambda events: posted.publish(session.state.run, events))
        posted.start(Undelivered(out.store, webhook or "", session.header, POSTED, lambda: session.run_id))
    own = "" if accepted else local_token.made(out.store)
    access = ApiSettings(accepted or Tokens(None, own), hosts=names)
    for note in session.notes:
        out.console.note(note)
    with out.console.working("the run so far and the first decision"):
        session.start()

    def ready(url: str) -> None:
        opened = f"{url}/?token={own}" if own else url
        token_file = str(local_token.path_of(out.store)) if own else None
        body = {
            "schema": "twin.serve/1", "url": url, "console": opened, "token_file": token_file,
            "run": session.run_id, "mode": session.published.mode,
        }  # fmt: skip
        out.show(
            body, lambda console: console.line(f"{opened}  run {session.run_id}, {body['mode']}; Ctrl-C ends")
        )

    feeders = [Feeder(session, source, out.console.note) for source in sources]
    app = make_app(session, access, feeders, posted)
    console_routes.mount(app)
    try:
        with local_token.announced(listener.getsockname()[1], out.store) if own else nullcontext():
            server.run(app, address, listener, ready)
    finally:
        for feeder in feeders:
            feeder.close()
        session.close()
        if posted is not None:
            posted.close()
    if session.failure is not None:
        raise session.failure
