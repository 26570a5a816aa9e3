"""The `twin` command: the group, and its exit codes; heavy imports wait until a command runs."""

import atexit
import os
import resource
import sys
from contextlib import suppress
from typing import NoReturn

import click

from commands.frame import standard_streams
from commands.frame.lazy_group import LazyGroup
from commands.frame.standard_streams import ReaderGoneError
from commands.output import HELP, Output, shared_options
from commands.run_record import append
from ingest.core.errors import Interrupted, StorageError, TwinError, UsageError
from ingest.core.terminal import visible, without_keys

# Matrices are small here: the threads of BLAS cost four times what they bring. Read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

MORE_MEMORY = "raise the limit of the process or container (`ulimit -v`), or ask for a smaller window"
LEAST_MEMORY = 3 * 2**29
"""Bytes of address space below which LLVM, Arrow and DuckDB end a process instead of raising an error."""

COMMANDS = {
    "ingest": ("data", "Read measurements of any known format into the lake."),
    "fetch": ("data", "Get a public data set, verified, without reading it in."),
    "traces": ("data", "List what is in the lake; details of one data set; draw it, or take it out."),
    "synth": ("data", "Write the shipped synthetic traces again, byte for byte."),
    "init": ("starting", "Write a commented scenario file from what is in the lake."),
    "plan": ("planning", "Answer which plan, how fast and how much, from the recorded links."),
    "export": (
        "planning",
        "Write a plan as files of a training framework, a scheduler or a simulator; or a run for a tracker.",
    ),
    "queue": ("queueing", "Compare schedulers on the jobs of LOG, any job log that the readers know."),
    "lab": ("emulating", "Train a small job over an emulated network and compare it with its prediction."),
    "serve": ("live", "Serve decisions for a job that runs: telemetry in, plans out."),
    "train": ("training", "Train Hi-PPO on the first part of a trace."),
    "replay": ("replaying", "Run the twin on traces under a policy and log everything."),
    "offpolicy": ("replaying", "Estimate from logs alone what another policy would have earned."),
    "bench": ("replaying", "Compare policies in the same worlds, beside the bound."),
    "sql": ("inspecting", "Query lake and event logs in SQL."),
    "audit": ("inspecting", "Verify a run, or explain one decision or one job of it."),
    "compact": ("inspecting", "Merge the segments of a finished run into few files."),
    "report": ("inspecting", "Write one self-contained HTML page about a run, or several overlaid."),
    "trace": ("inspecting", "Write a window of a run as a Chrome trace."),
    "runs": ("runs", "List runs with their key figures, tags and notes."),
    "compare": (
        "runs",
        "Compare runs side by side: policies with paired differences, or schedulers of a queue.",
    ),
    "tag": ("runs", "Give a run tags, or take them away; without TAG, show what it has."),
    "note": ("runs", "Write a note to a run, which replaces the one before; without TEXT, show it."),
    "rm": ("runs", "Remove runs for good: log, record of its end, labels, signature, cached rows."),
    "gc": ("runs", "Remove what killed processes left and what nothing refers to."),
    "retrain": ("training", "Train a challenger; promote it only if it beats the champion."),
    "status": ("inspecting", "Show runs, data sets, the checkpoint and how the filters do."),
    "verify": ("verifying", "Check that every stored file is what was written."),
    "backup": ("verifying", "Copy the store to a folder or a bucket while it is used."),
    "sync": ("verifying", "Add the runs of a store to another one, on a disk or in a bucket."),
    "restore": ("verifying", "Bring a copy that `twin backup` made back, into an empty store."),
    "doctor": ("doctor", "Check the installation and the store, and say what to do."),
    "policies": ("training", "List policies and checkpoints with where they come from."),
    "completion": (
        "completion",
        "Print the script with which a shell completes commands, options and names.",
    ),
    "config": ("configuring", "List every setting in force, or show a scenario with every default."),
    "profile": ("estimating", "Measure Transformer layers on this device for `twin ingest`."),
    "estimate": ("estimating", "Answer a table of cases, CSV or YAML, without a replay."),
    "batch": ("estimating", "Choose the batch of a model on GPUs: micro-batch, accumulation, learning rate."),
    "calibrate": ("estimating", "Fit the twin's constants to the profiles in the lake, or to measured runs."),
}
"""Module in `commands` and summary, the first line of its help, of every command."""


@click.group(
    cls=LazyGroup, table=COMMANDS, params=shared_options(of_group=True),
    context_settings=HELP,
)  # fmt: skip
@click.version_option(package_name="twin", prog_name="twin")
@click.pass_context
def twin(ctx: click.Context) -> None:
    """Digital twin for training large language models across data centres.

    \b
    First steps:
      twin ingest shipped
      twin bench --scenario tri-7b
      twin replay --policy hippo --scenario tri-7b

    Where a command takes a RUN: the name of a run, or how it begins, or `latest`: the newest finished run of
    any kind. `twin runs` lists them.
    """
    ctx.ensure_object(Output)


def fail(error: TwinError | click.ClickException, as_json: bool) -> NoReturn:
    """Prints the error in a line and exits with its code."""
    message = str(error)
    if isinstance(error, click.ClickException):
        message = error.format_message()
    message = without_keys(message)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # nothing was said: its message is the help
        click.echo(message, err=True)
    else:
        usage = error.ctx if isinstance(error, click.UsageError) else None
        hint = f" (see `{usage.command_path} --help`)" if usage else ""
        click.echo(f"twin: {visible(message)}{hint}", err=True)
    if as_json:
        import json

        code = error.code if isinstance(error, TwinError) else UsageError.code
        body = {"schema": "twin.error/1", "error": type(error).__name__, "code": code, "message": message}
        with suppress(ReaderGoneError, StorageError):  # stdout may be what failed; the message is on stderr
            click.echo(json.dumps(body))
    sys.exit(error.exit_code)


def interrupted(stop: BaseException | None) -> NoReturn:
    """Says how to go on, where there is something to go on with, and exits with the code of Ctrl-C."""
    while stop is not None and not isinstance(stop, Interrupted):
        stop = stop.__cause__ or stop.__context__  # click turns Ctrl-C into an `Abort` of its own
    way = f"; {visible(str(stop))}" if stop is not None else ""
    click.echo(f"twin: interrupted{way}", err=True)
    sys.exit(130)


def main() -> None:
    """Entry point: turns every expected failure into a message and an exit code, and keeps the record."""
    output = Output()
    with standard_streams.reported():
        try:
            _run(output)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
            _close(output, code, leaving.__context__ if code else None)
            raise
        _close(output, 0, None)


def _close(output: Output, code: int, error: BaseException | None) -> None:
    """Says and writes what --debug, --verbose and --log ask for about a command that has ended."""
    if not (output.debug or output.verbose or output.log):
        return
    record = output.record.ended(code, error)
    if output.debug and record["error"]:
        click.echo(visible(record["error"]).rstrip(), err=True)
    if output.verbose:
        place = without_keys(str(output.place))
        cost = f"{record['seconds']:.1f} s, {record['peak_bytes'] / 2**20:,.0f} MiB, store {place}"
        click.echo(f"twin: exit code {code}, {cost}", err=True)
    if output.log is not None:
        try:
            append(output.log, record)
        except (OSError, TwinError) as problem:  # the command itself has ended; its exit code stands
            click.echo(f"twin: --log: {visible(str(problem))}", err=True)


def _run(output: Output) -> None:
    try:
        try:
            twin.main(obj=output, standalone_mode=False, prog_name="twin")
        except SystemExit:  # a verdict, whose text is to arrive, too
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except (click.ClickException, TwinError) as error:
        # A usage error may come before `--json` is read.
        fail(error, output.as_json or "--json" in sys.argv)
    except (KeyboardInterrupt, click.Abort) as stop:
        interrupted(stop)
    except RuntimeError as error:
        if str(error) != "Query interrupted":  # Ctrl-C in the main thread, as DuckDB tells it
            raise
        interrupted(error)
    except MemoryError as error:
        fail(click.ClickException(f"not enough memory ({error}); {MORE_MEMORY}"), output.as_json)
    except ReaderGoneError:  # nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def process() -> None:
    """The `twin` process: `main`, and its exit code whatever the libraries do while they are taken down.

    Arrow's pool of threads now and then aborts the process in the end ("terminate called without an active
    exception", about one time in a thousand), which would replace the exit code of a verdict by -6. So the
    process ends when everything of Python is done, without taking native libraries down.
    """
    code = 1
    _reserve_streams()
    _refuse_little_memory()
    atexit.register(lambda: _leave(code))  # runs last: exit handlers run in the reverse of their order
    try:
        main()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
        raise


def _reserve_streams() -> None:
    """Keeps the numbers of closed standard streams: the next file opened would get what is printed there."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def _refuse_little_memory() -> None:
    """Ends with a message where native libraries would end the process without one."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_MEMORY:
        got = f"{limit / 2**30:.1f} GiB of address space"
        click.echo(
            f"twin: not enough memory: {got}, {LEAST_MEMORY / 2**30:.1f} are needed; {MORE_MEMORY}", err=True
        )
        sys.exit(1)


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            if stream is not None:
                stream.flush()
    os._exit(code)


if __name__ == "__main__":
    process()
