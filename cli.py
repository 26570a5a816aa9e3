"""The `twin` command: one thin click command per use, no logic; heavy imports wait until a command runs."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ingest.errors import TwinError

if TYPE_CHECKING:
    from replay.console import Console

# Matrices are small here: the threads of BLAS cost four times what they bring. Read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
FOLDER = click.Path(path_type=Path)


class Output:
    """Where results go: rich text for people, or one JSON object for programs."""

    def __init__(self) -> None:
        self.store = Path(os.environ.get("TWIN_STORE") or ".twin")
        self.as_json = False

    @property
    def console(self) -> "Console":
        """Tables on stdout, progress on stderr."""
        from replay.console import Console

        return Console(quiet=self.as_json)

    def show(self, result: dict[str, Any], render: Callable[["Console"], None]) -> None:
        """Print `result` as JSON, or let `render` draw it."""
        if self.as_json:
            click.echo(json.dumps(result, allow_nan=False))
        else:
            render(self.console)


class Command(click.Command):
    """A command that takes `--store` and `--json`, as the group does: both places work."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options()


class Group(click.Group):
    """The group: lists commands in the order people use them."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In order of definition."""
        return list(self.commands)


def shared_options() -> list[click.Parameter]:
    """`--store` and `--json`, written into the `Output` of the invocation."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            setattr(ctx.ensure_object(Output), "as_json" if param.name == "json" else "store", value)

    store = click.Option(
        ["--store"], type=FOLDER, expose_value=False, callback=keep, metavar="DIR",
        help="Folder of lake, runs and checkpoints [TWIN_STORE, else .twin].",
    )  # fmt: skip
    as_json = click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=keep, help="Print one JSON object."
    )
    return [store, as_json]


@click.group(cls=Group, params=shared_options(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="twin", prog_name="twin")
@click.pass_context
def twin(ctx: click.Context) -> None:
    """Digital twin for training large language models across data centres.

    \b
    First steps:
      twin ingest traces/
      twin bench --scenario tri-7b
      twin replay --policy hippo --scenario tri-7b
    """
    ctx.ensure_object(Output)


WINDOW = click.Choice(["train", "validate", "test", "all"])
ENGINE = click.Choice(["kernel", "des"])
scenario_option = click.option("--scenario", "-s", default="tri-7b", help="Name or YAML file [tri-7b].")
dataset_option = click.option("--dataset", help="Data set that replaces the scenario's own.")
seed_option = click.option("--seed", type=int, help="Seed that replaces the scenario's own.")
weights_option = click.option(
    "--weights", metavar="E,U,C", help="Weights of efficiency, utilisation and cost, as in 0.6,0.2,0.2."
)
link_option = click.option(
    "--link", "links", multiple=True, metavar="A>B=F",
    help="What if a link had F times its bandwidth; A<>B: both ways; @S: from S seconds on; repeatable.",
)  # fmt: skip
checkpoint_option = click.option(
    "--checkpoint", help="Digest (or its beginning) of a checkpoint [the active one]."
)
with_output = click.make_pass_decorator(Output)


@twin.command()
@click.argument("paths", nargs=-1, required=True, type=FOLDER)
@click.option("--follow", "following", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@with_output
def ingest(out: Output, paths: tuple[Path, ...], following: bool) -> None:
    """Read measurements of any known format into the lake.

    \b
    Examples:
      twin ingest traces/
      twin ingest --follow measured/
    """
    from ingest.ingestion import ingest as read
    from replay import show

    if following:
        follow(out, paths)
        return
    with out.console.progress() as progress:
        report = read(paths, out.store, progress)
    out.show(report.to_json(), lambda console: show.ingest(console, report))


def follow(out: Output, paths: tuple[Path, ...]) -> None:
    """`twin ingest --follow`: until Ctrl-C, then what was taken."""
    from contextlib import suppress

    from ingest import follow as following
    from replay import show_data as show

    done = following.Followed()
    out.console.note("taking in what is added; Ctrl-C ends it")
    with suppress(KeyboardInterrupt):
        following.follow(paths, out.store, told=out.console.note, into=done)
    out.show(done.to_json(), lambda console: show.followed(console, done))


@twin.command()
@click.argument("name", required=False)
@click.option("--mirror", type=FOLDER, metavar="DIR", help="Copy from here, laid out as NAME/ or wan/NAME/.")
@click.option("--list", "listed", is_flag=True, help="List what can be had.")
@with_output
def fetch(out: Output, name: str | None, mirror: Path | None, listed: bool) -> None:
    """Get a public data set, verified, without reading it in.

    \b
    Examples:
      twin fetch --list
      twin fetch skyplane-grids
    """
    from ingest import catalogue
    from ingest import fetch as fetching
    from ingest.errors import UsageError
    from replay import show_data as show

    if listed == (name is not None):
        raise UsageError("say the NAME of a data set, or --list")
    if name is None:
        found = {"schema": "twin.catalogue/1", "sets": [e.to_json() for e in catalogue.entries().values()]}
        out.show(found, lambda console: show.catalogue(console, found))
        return
    with out.console.progress() as progress:
        done = fetching.fetch(out.store, name, mirror=mirror, progress=progress)
    out.show(done.to_json(), lambda console: show.fetched(console, done))


@twin.command()
@click.argument("name", required=False)
@click.option("--plot", type=FOLDER, metavar="FILE", help="Draw the series of NAME into FILE: .svg or .png.")
@with_output
def traces(out: Output, name: str | None, plot: Path | None) -> None:
    """List what is in the lake, or draw one data set.

    Links, span, gaps, variation and licence of each; `--plot` draws its series.

    \b
    Examples:
      twin traces
      twin traces cloudpilot-iperf3 --plot out.svg
    """
    from ingest import summary
    from replay import show

    if (name is None) != (plot is None):
        from ingest.errors import UsageError

        raise UsageError("NAME and --plot FILE belong together")
    if name is not None and plot is not None:
        from ingest import durable
        from ingest.plot import picture

        stored = durable.replace(plot, picture(out.store, name, plot))
        drawn = {"schema": "twin.plot/1", "name": name, "path": str(plot), "bytes": stored.size_bytes}
        out.show(drawn, lambda console: console.line(str(plot)))
        return
    found = summary.summarise(out.store).to_json()
    out.show(found, lambda console: show.traces(console, found))


@twin.command()
@click.argument("directory", type=FOLDER)
@with_output
def synth(out: Output, directory: Path) -> None:
    """Write the shipped synthetic traces again, byte for byte.

    \b
    Example: twin synth /tmp/traces
    """
    from ingest.synth import write

    written = [str(path) for path in write(directory)]
    out.show({"schema": "twin.synth/1", "files": written}, lambda console: console.line("\n".join(written)))


@twin.command()
@scenario_option
@dataset_option
@click.option(
    "--algorithm",
    type=click.Choice(["tuned", "design", "shipped", "toy"]),
    default="tuned",
    help="Settings [tuned].",
)
@seed_option
@weights_option
@click.option("--resume", is_flag=True, help="Go on with a training that was interrupted.")
@click.option("--activate/--keep", default=True, help="Let `twin replay` use the result [yes].")
@click.option("--workers", type=click.IntRange(0), default=0, help="Processes that collect rollouts.")
@click.option("--ray", type=click.IntRange(0), default=0, help="The same over Ray (extra `ray`).")
@click.option("--distributed", type=click.IntRange(0), default=0, help="Learners that share gradients.")
@click.option("--lessons", multiple=True, metavar="RUN", help="Follow the decisions of this run first, too.")
@click.option("--live", is_flag=True, help="Show every update as it is made.")
@click.option(
    "--tensorboard", type=click.Path(path_type=Path), help="Write the curve there (extra `tensorboard`)."
)
@with_output
def train(
    out: Output,
    scenario: str,
    dataset: str | None,
    algorithm: Any,
    seed: int | None,
    weights: str | None,
    resume: bool,
    activate: bool,
    workers: int,
    ray: int,
    distributed: int,
    lessons: tuple[str, ...],
    live: bool,
    tensorboard: Path | None,
) -> None:
    """Train Hi-PPO on the first part of a trace.

    Imitation of planners first, then PPO in many twins at once; Ctrl-C saves, `--resume` goes on. With
    workers or over Ray the result is the same; learners that share gradients see more, so theirs is another.

    \b
    Examples:
      twin train --scenario quad-70b
      twin train --scenario quad-70b --workers 2 --live
    """
    from replay import options, show, training
    from replay.live import Live

    team = training.Team(workers, ray, distributed)
    tell = {"tell": Live(out.console).tell} if live else {}
    with out.console.progress() as progress:
        done = training.train(
            out.store, options.scenario(scenario, weights), dataset=dataset, algorithm=algorithm, seed=seed,
            resume=resume, activate=activate, team=team, lessons=lessons, progress=progress, **tell,
        )  # fmt: skip
    if tensorboard is not None and done.run_id is not None:
        from replay.tensorboard import export

        out.console.note(f"curve for TensorBoard: {export(out.store, done.run_id, tensorboard)}")
    out.show(done.to_json(), lambda console: show.trained(console, done.to_json()))
    if not done.finished:
        raise KeyboardInterrupt


@twin.command()
@click.option("--policy", "-p", help="Name of a policy, see `twin policies` [hippo].")
@scenario_option
@dataset_option
@click.option("--window", type=WINDOW, default="test", help="Part of the trace [test].")
@click.option(
    "--engine", type=ENGINE, default="kernel", help="One kernel call an iteration, or every micro-batch."
)
@seed_option
@weights_option
@link_option
@checkpoint_option
@click.option("--deadline/--no-deadline", default=False, help="Replace answers that come too late [no].")
@click.option("--resume", metavar="RUN", help="Finish a run that was killed.")
@click.option("--run", "logged", metavar="RUN", help="Compute this run again; with --policy: what if?")
@click.option(
    "--from-decision", type=int, metavar="N", help="With --run and --policy: keep its first N decisions."
)
@click.option("--until", type=float, metavar="SECONDS", help="With --run: only as far as this time.")
@with_output
def replay(
    out: Output, policy: str | None, scenario: str, dataset: str | None, window: Any, engine: Any,
    seed: int | None, weights: str | None, links: tuple[str, ...], checkpoint: str | None, deadline: bool,
    resume: str | None, logged: str | None, from_decision: int | None, until: float | None,
) -> None:  # fmt: skip
    """Run the twin on traces under a policy and log everything.

    `--run RUN` computes a logged run again and compares; `--policy` or `--link` beside it asks what if.

    \b
    Examples:
      twin replay --policy hippo --scenario quad-70b
      twin replay --run latest
      twin replay --run latest --policy mpc --from-decision 10
      twin replay --run latest --link "us-east-1 > eu-west-1 = 0.5"
    """
    from ingest.errors import UsageError
    from replay import options, runner, runs, show

    if weights is not None and (logged is not None or resume):
        raise UsageError("--weights is for a new run; --run and --resume keep those that it was started with")
    if logged is not None:
        again(out, logged, policy, checkpoint, from_decision, until, links)
        return
    if from_decision is not None or until is not None:
        raise UsageError("--from-decision and --until belong to --run RUN")
    with out.console.progress() as progress:
        if resume:
            if links:
                raise UsageError("--link is for a new run, or with --run; --resume keeps the run's own links")
            done = runner.resume(out.store, runs.find(out.store, resume), progress=progress)
        else:
            done = runner.run(
                out.store, policy=policy or "hippo", scenario=options.scenario(scenario, weights, links),
                dataset=dataset, window=window, engine=engine, seed=seed, checkpoint=checkpoint,
                enforce_deadline=deadline, progress=progress,
            )  # fmt: skip
    out.show(done.to_json(), lambda console: show.run(console, done))


def again(
    out: Output, run: str, policy: str | None, checkpoint: str | None, decision: int | None,
    until: float | None, links: tuple[str, ...],
) -> None:  # fmt: skip
    """`twin replay --run`: the run once more, or with another policy or other links."""
    from ingest.errors import UsageError
    from replay import options, runs, whatif
    from replay import show_whatif as show

    run_id = runs.find(out.store, run)
    if policy is None and not links:
        if decision is not None or checkpoint is not None:
            raise UsageError("--from-decision and --checkpoint with --run need --policy")
        with out.console.progress() as progress:
            same = whatif.again(out.store, run_id, until_s=until, progress=progress)
        out.show(same.to_json(), lambda console: show.rerun(console, same))
        sys.exit(0 if same.equal else 3)
    with out.console.progress() as progress:
        found = whatif.what_if(
            out.store, run_id, policy, links=[options.parse_link(text) for text in links],
            checkpoint=checkpoint, from_decision=decision or 0, until_s=until, progress=progress,
        )  # fmt: skip
    out.show(found.to_json(), lambda console: show.what_if(console, found))


@twin.command()
@click.argument("logged", metavar="RUN...", nargs=-1, required=True)
@click.option("--policy", "-p", required=True, help="The policy that is asked about.")
@checkpoint_option
@with_output
def offpolicy(out: Output, logged: tuple[str, ...], policy: str, checkpoint: str | None) -> None:
    """Estimate from logs alone what another policy would have earned.

    By importance sampling and doubly robust estimates; see docs/replay.md.

    \b
    Example: twin offpolicy latest --policy mpc
    """
    from replay import offpolicy as estimation
    from replay import runs
    from replay import show_whatif as show

    run_ids = [runs.find(out.store, run) for run in logged]
    with out.console.progress() as progress:
        found = estimation.estimate(out.store, run_ids, policy, checkpoint=checkpoint, progress=progress)
    out.show(found.to_json(), lambda console: show.offpolicy(console, found))


@twin.command()
@click.option(
    "--policy", "-p", "policies", multiple=True, help="Repeatable [static single greedy mpc hippo]."
)
@click.option("--scenario", "-s", "scenarios", multiple=True, help="Name or YAML file; repeatable [tri-7b].")
@dataset_option
@click.option("--window", type=WINDOW, default="test", help="Part of the trace [test].")
@click.option(
    "--engine", type=ENGINE, default="kernel", help="One kernel call an iteration, or every micro-batch."
)
@seed_option
@click.option("--seeds", type=int, default=1, metavar="N", help="That many worlds, from the seed on [1].")
@weights_option
@link_option
@click.option("--perturb", metavar="C,C", help="Also with noise of these levels on links, as in 0.1,0.3.")
@click.option("--pareto", is_flag=True, help="Also with a grid of weights: fronts.")
@click.option("--jobs", "-j", type=click.IntRange(1), metavar="J", help="Processes [cores].")
@checkpoint_option
@click.option("--bound/--no-bound", default=True, help="Compute the clairvoyant bound [yes].")
@with_output
def bench(
    out: Output, policies: tuple[str, ...], scenarios: tuple[str, ...], dataset: str | None, window: Any,
    engine: Any, seed: int | None, seeds: int, weights: str | None, links: tuple[str, ...],
    perturb: str | None, pareto: bool, jobs: int | None, checkpoint: str | None, bound: bool,
) -> None:  # fmt: skip
    """Compare policies in the same worlds, beside the bound.

    More than one world (several scenarios or seeds, --perturb, --pareto) run in parallel, and what is
    finished in the store is not run again.

    \b
    Examples:
      twin bench --scenario tri-7b -p static -p mpc -p hippo
      twin bench -s tri-7b -s storm --seeds 5 --perturb 0.1,0.3
    """
    from replay import bench_table, compare, options, show

    chosen = policies or compare.DEFAULT_POLICIES
    worlds = [options.scenario(name, weights, links) for name in scenarios or ("tri-7b",)]
    noises = options.parse_noises(perturb) if perturb else ()
    settings: dict[str, Any] = {
        "dataset": dataset, "window": window, "engine": engine, "seed": seed, "checkpoint": checkpoint,
        "with_bound": bound,
    }  # fmt: skip
    with out.console.progress() as progress:
        if len(worlds) == 1 and seeds == 1 and not noises and not pareto:
            one = compare.compare(out.store, chosen, worlds[0], **settings, progress=progress)
            out.show(one.to_json(), lambda console: show.comparison(console, one))
            return
        from replay import bench as benchmark

        result = benchmark.bench(
            out.store, chosen, worlds, seeds=seeds, noises=noises, pareto=pareto, jobs=jobs, **settings,
            progress=progress,
        )  # fmt: skip
    out.show(result.to_json(), lambda console: bench_table.bench(console, result))


@twin.command()
@click.argument("statement")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "parquet", "arrow"]), default="table"
)
@with_output
def sql(out: Output, statement: str, form: Any) -> None:
    """Query lake and event logs in SQL.

    `twin sql describe` documents the views.

    \b
    Example: twin sql "select run, count(*) from decisions group by run"
    """
    from replay import sql as engine

    if statement.strip() == "describe":
        click.echo(engine.describe())
        return
    answer = engine.query(out.store, statement, note=out.console.note)
    if out.as_json:
        rows = json.loads(engine.render(answer, "json"))
        click.echo(json.dumps({"schema": "twin.sql/1", "columns": answer.column_names, "rows": rows}))
        return
    sys.stdout.buffer.write(engine.render(answer, form))
    sys.stdout.buffer.flush()


@twin.command()
@click.argument("run")
@click.option("--decision", "number", type=int, metavar="N", help="Audit and explain one decision.")
@click.option(
    "--chain-head", help="The head that was kept elsewhere: proves that nothing was rewritten or cut."
)
@click.option("--since", type=click.IntRange(0), default=0, metavar="SEQ", help="Only events from SEQ on.")
@click.option("--quarantine", "aside", is_flag=True, help="Move unexpected and damaged files aside.")
@click.option("--sign", "key", type=FOLDER, metavar="KEY", help="Sign a clean run's head (Ed25519, PEM).")
@click.option("--verify-signature", "public", type=FOLDER, metavar="PUB", help="Check the signature too.")
@with_output
def audit(
    out: Output, run: str, number: int | None, chain_head: str | None, since: int, aside: bool,
    key: Path | None, public: Path | None,
) -> None:  # fmt: skip
    """Verify a run, or explain one decision of it.

    Chain, digests, re-execution, no look-ahead, conservation.

    \b
    Example: twin audit latest
    """
    from replay import audit as auditor
    from replay import runs, show, show_decision, signing
    from replay.quarantine import quarantine

    run_id = runs.find(out.store, run)
    if aside:
        moved = quarantine(runs.folder(out.store, run_id))
        out.show(moved.to_json(), lambda console: show.quarantined(console, moved))
        return
    if public is not None:
        chain_head = signing.verified(out.store, run_id, public).chain_head
    if number is not None:
        found = auditor.decision(out.store, run_id, number)

        def tell(console: "Console") -> None:
            show.decision(console, found)
            show_decision.seen(console, found)

        out.show(found.to_json(), tell)
        sys.exit(0 if found.reproduced else 3)
    with out.console.progress() as progress:
        report = auditor.audit(out.store, run_id, chain_head=chain_head, since=since, progress=progress)
    if key is not None and report.ok:
        signing.sign(out.store, run_id, key)
    out.show(report.to_json(), lambda console: show.audit(console, report))
    sys.exit(0 if report.ok else 3)


@twin.command()
@click.argument("run")
@with_output
def compact(out: Output, run: str) -> None:
    """Merge the segments of a finished run into few files.

    Digest and chain head stay.

    \b
    Example: twin compact latest
    """
    from replay import compaction, runs, show, sql

    run_id = runs.find(out.store, run)
    done = compaction.compact(runs.folder(out.store, run_id))
    sql.keep(out.store, run_id)
    result = {"schema": "twin.compact/1", "run": run_id, **done.to_json()}
    out.show(result, lambda console: show.compacted(console, run_id, done))


@twin.command()
@click.argument("run")
@click.option("--out", "page", type=FOLDER, help="File to write [reports/RUN.html in the store].")
@click.option("--compare/--alone", default=False, help="Set the baselines and the bound beside it [no].")
@click.option("--vs", "other", metavar="RUN", help="Set one other run beside it, figure by figure.")
@with_output
def report(out: Output, run: str, page: Path | None, compare: bool, other: str | None) -> None:
    """Write one self-contained HTML page about a run.

    \b
    Examples:
      twin report latest
      twin report latest --compare --vs tri-7b-static
    """
    from replay import report as writer
    from replay import runs

    run_id = runs.find(out.store, run)
    with out.console.progress() as progress:
        comparison = None
        if compare:
            from replay.compare import beside

            comparison = beside(out.store, run_id, progress=progress)
        versus = None
        if other is not None:
            from replay.whatif import pair

            versus = pair(out.store, runs.find(out.store, other), run_id)
        path = writer.write(out.store, run_id, page, comparison, versus)
    result = {"schema": "twin.report/1", "run": run_id, "path": str(path)}
    out.show(result, lambda console: console.line(str(path)))


@twin.command()
@click.argument("run")
@click.option("--from", "start", type=float, default=0.0, metavar="SECONDS", help="Begin of the window [0].")
@click.option("--to", "end", type=float, metavar="SECONDS", help="Its end [a minute later].")
@click.option("--out", "file", type=FOLDER, default=Path("trace.json"), help="File to write [trace.json].")
@with_output
def trace(out: Output, run: str, start: float, end: float | None, file: Path) -> None:
    """Write a window of a run as a Chrome trace.

    Stages, micro-batches, transfers and moves; Perfetto opens it.

    \b
    Example: twin trace latest --from 600 --to 660 --out trace.json
    """
    from replay import runs
    from replay import trace as tracing

    run_id = runs.find(out.store, run)
    with out.console.progress() as progress:
        made = tracing.write(
            out.store, run_id, file, from_s=start, to_s=start + 60 if end is None else end, progress=progress
        )
    told = f"{made.iterations} iterations, {made.events:,} events: {made.path}; Perfetto opens it"
    out.show(made.to_json(), lambda console: console.line(told))


@twin.command()
@scenario_option
@dataset_option
@click.option("--once", is_flag=True, help="Retrain now and return.")
@click.option("--every", metavar="TIME", help="Retrain again and again, for example every 6h.")
@click.option("--cron", metavar="LINE", help="Retrain by a crontab line, in UTC.")
@click.option(
    "--on-drift", "on_drift", is_flag=True, help="Retrain when the newest run shows that the world changed."
)
@with_output
def retrain(
    out: Output, scenario: str, dataset: str | None, once: bool, every: str | None, cron: str | None,
    on_drift: bool,
) -> None:  # fmt: skip
    """Train a challenger; promote it only if it beats the champion.

    They meet on the newest window of the trace.

    \b
    Example: twin retrain --once --scenario tri-7b
    """
    from ingest.errors import UsageError

    if sum((once, every is not None, cron is not None, on_drift)) != 1:
        raise UsageError("say one of --once, --every TIME, --cron LINE, --on-drift")
    if once:
        from replay import retrain as training
        from replay import show
        from twin.scenario import load

        with out.console.progress() as progress:
            done = training.once(out.store, load(scenario), dataset=dataset, progress=progress).to_json()
        out.show(done, lambda console: show.retrained(console, done))
        return
    from replay import schedule

    if on_drift:
        out.console.note(f"looking for drift every {schedule.LOOK}; Ctrl-C ends it")
        trigger, task = schedule.every(schedule.LOOK), schedule.WATCHED
    else:
        trigger, task = schedule.every(every) if every else schedule.cron(cron or ""), schedule.SCHEDULED
        out.console.note(f"retraining by {trigger}; Ctrl-C ends it")
    schedule.follow(out.store, trigger, scenario=scenario, dataset=dataset, task=task)


@twin.command()
@with_output
def status(out: Output) -> None:
    """Show runs, data sets, the checkpoint and how the filters do.

    \b
    Example: twin status
    """
    from replay import show
    from replay import status as state

    found = state.status(out.store).to_json()
    out.show(found, lambda console: show.status(console, found))


@twin.command()
@click.option("--rollback", is_flag=True, help="Go back to the checkpoint that was active before.")
@with_output
def policies(out: Output, rollback: bool) -> None:
    """List policies and checkpoints with where they come from.

    \b
    Examples:
      twin policies
      twin policies --rollback
    """
    from replay import show, status

    if rollback:
        from replay.rollback import rollback as go_back

        back = go_back(out.store)
        out.show(back.to_json(), lambda console: console.line(f"active checkpoint  {back.active}"))
        return
    found = status.policies(out.store)
    out.show(found, lambda console: show.policies(console, found))


@twin.command()
@scenario_option
@with_output
def config(out: Output, scenario: str) -> None:
    """Show a scenario with every default written out, as YAML.

    \b
    Example: twin config --scenario quad-70b
    """
    from twin.scenario import load

    resolved = load(scenario).model_dump(mode="json")

    def as_yaml(console: "Console") -> None:
        import yaml

        console.line(yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True).rstrip())

    out.show({"schema": "twin.config/1", "scenario": resolved}, as_yaml)


@twin.command()
@click.argument("directory", type=FOLDER)
@click.option("--micro-batches", default="1,2,4,8", help="Sizes to measure [1,2,4,8].")
@click.option("--repetitions", default=20, help="Timed repetitions of each [20].")
@with_output
def profile(out: Output, directory: Path, micro_batches: str, repetitions: int) -> None:
    """Measure Transformer layers on this device for `twin ingest`.

    \b
    Example: twin profile measured/
    """
    from ingest.errors import UsageError
    from twin.profile import profile as measure

    try:
        sizes = [int(size) for size in micro_batches.split(",")]
    except ValueError as error:
        raise UsageError(
            f"--micro-batches {micro_batches}: write numbers with commas, such as 1,2,4"
        ) from error
    with out.console.progress() as progress:
        rows = measure(directory, micro_batches=sizes, repetitions=repetitions, progress=progress)
    result = {"schema": "twin.profile/1", "directory": str(directory), "rows": len(rows)}
    out.show(
        result, lambda console: console.line(f"{len(rows)} rows in {directory}; twin ingest {directory}")
    )


@twin.command()
@click.argument("cases", type=FOLDER)
@click.option(
    "--solve", "column", metavar="COLUMN", help="Find the value of this column that reaches --target."
)
@click.option("--target", metavar="FIGURE=VALUE", help="What --solve should reach, such as utilisation=0.8.")
@click.option(
    "--explain", "number", type=int, metavar="ROW", help="Show what the answer to one row is made of."
)
@with_output
def estimate(out: Output, cases: Path, column: str | None, target: str | None, number: int | None) -> None:
    """Answer a table of cases, CSV or YAML, without a replay.

    Time, memory, utilisation, traffic, money, energy. Columns, units and defaults: docs/estimate.md.

    \b
    Examples:
      twin estimate cases.csv
      twin estimate cases.csv --solve wan_bps --target utilisation=0.8
    """
    from ingest.errors import UsageError
    from replay import show_estimate as show
    from twin import ask
    from twin.solve import Target

    if (column is None) != (target is None):
        raise UsageError("--solve COLUMN and --target FIGURE=VALUE belong together")
    constants = ask.constants_of(out.store)
    if number is not None:
        case, told = ask.explain_row(cases, number, constants)
        body = ask.explained_json(case, told)
        out.show(body, lambda console: show.explained(console, body))
        return
    if column is not None and target is not None:
        solved = ask.invert(cases, column, Target.parse(target), constants)
        out.show(solved.to_json(), lambda console: show.solutions(console, solved))
        sys.exit(0 if solved.ok else 1)
    found = ask.estimate(cases, constants)
    out.show(found.to_json(), lambda console: show.answers(console, found))
    sys.exit(0 if found.ok else 1)


@twin.command()
@with_output
def calibrate(out: Output) -> None:
    """Fit the twin's constants to the profiles in the lake.

    \b
    Example: twin calibrate
    """
    from replay import show_estimate as show
    from twin.calibrate import calibrate as fit

    found = fit(out.store)
    found.save(out.store)
    body = {**found.to_json(), "digest": found.digest}
    out.show(body, lambda console: show.calibration(console, body))


def fail(error: TwinError | click.ClickException, as_json: bool) -> NoReturn:
    """Tell the user what went wrong and leave with the error's exit code."""
    message = str(error)
    if isinstance(error, click.ClickException):
        error.show()
        message = error.format_message()
    else:
        click.echo(f"twin: {message}", err=True)
    if as_json:
        body = {"schema": "twin.error/1", "error": type(error).__name__, "message": message}
        click.echo(json.dumps(body))
    sys.exit(error.exit_code)


def main() -> None:
    """Entry point: turns every expected failure into a message and an exit code."""
    output = Output()
    try:
        twin.main(obj=output, standalone_mode=False, prog_name="twin")
    except (click.ClickException, TwinError) as error:
        fail(
            error, output.as_json or "--json" in sys.argv
        )  # a usage error may come before the option is read
    except (KeyboardInterrupt, click.Abort):
        click.echo("twin: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone; nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
