"""Commands without a replay: estimate cases, measure and fit constants."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands.output import FOLDER, PATH, Output, command, with_output, writing_command
from ingest.core.errors import UsageError
from ingest.core.terminal import clipped

if TYPE_CHECKING:  # a command loads only what it needs
    from twin.goodput.application_profile import ProfileAnswer
    from twin.goodput.batch_choice import BatchAnswer

SIZE = re.compile("[1-9][0-9]{0,4}")
"""A micro-batch that may fit into a GPU."""


@writing_command
@click.argument("directory", type=FOLDER)
@click.option("--micro-batches", default="1,2,4,8", help="Sizes to measure [1,2,4,8].")
@click.option("--repetitions", type=click.IntRange(1), default=20, help="Timed repetitions of each [20].")
@with_output
def profile(out: Output, directory: Path, micro_batches: str, repetitions: int) -> None:
    """Measure Transformer layers on this device for `twin ingest`.

    \b
    Example: twin profile measured/
    """
    from ingest.core.durable import DISK
    from twin.calibration.layer_profiler import profile as measure

    sizes = [int(size) for size in micro_batches.split(",") if SIZE.fullmatch(size.strip())]
    if len(sizes) <= micro_batches.count(","):
        raise UsageError(f"--micro-batches {clipped(micro_batches)}: write 1 to 99999, such as 1,2,4")
    DISK.foretell((directory, "layer times of this device; measuring takes a minute"))
    with out.console.progress() as progress:
        rows = measure(directory, micro_batches=sizes, repetitions=repetitions, progress=progress)
    result = {"schema": "twin.profile/1", "directory": str(directory), "rows": len(rows)}
    out.show(
        result, lambda console: console.line(f"{len(rows)} rows in {directory}; twin ingest {directory}")
    )


@command
@click.argument("cases", type=PATH, required=False)
@click.option("--from-megatron", "words", metavar="WORDS", help="In place of CASES: Megatron-LM's arguments.")
@click.option(
    "--from-deepspeed", "config", type=PATH, metavar="FILE", help="Or a configuration of DeepSpeed."
)
@click.option("--also", multiple=True, metavar="COLUMN=VALUE", help="With these: further cells; repeatable.")
@click.option(
    "--solve", "column", metavar="COLUMN", help="Find the value of this column that reaches --target."
)
@click.option("--target", metavar="FIGURE=VALUE", help="What --solve should reach, such as utilisation=0.8.")
@click.option(
    "--profiles", metavar="DATASET", help="Take layer times from the profiles of this data set in the lake."
)
@click.option("--power-cap-w", metavar="WATTS", help="Limit the power of every GPU that has no power_cap_w.")
@click.option(
    "--explain", "number", type=int, metavar="ROW", help="Show what the answer to one row is made of."
)
@with_output
def estimate(
    out: Output, cases: Path | None, words: str | None, config: Path | None, also: tuple[str, ...],
    column: str | None, target: str | None, profiles: str | None, power_cap_w: str | None,
    number: int | None,
) -> None:  # fmt: skip
    """Answer a table of cases, CSV or YAML, without a replay.

    Time, memory, utilisation, traffic, money, energy. Columns, units and defaults: docs/guides/estimate.md.

    \b
    Examples:
      twin estimate cases.csv
      twin estimate cases.csv --solve wan_bps --target utilisation=0.8
      twin estimate cases.csv --profiles my-profiles
      twin estimate cases.csv --power-cap-w 300
      twin estimate --from-megatron "$(cat arguments.txt)" --also gpu_model=H100 --also dp=8
    """
    from commands.show import estimate as show
    from twin.cases import launch_words, table_answers, table_reader
    from twin.cases.inverse import Target

    if [cases, words, config].count(None) != 2:
        raise UsageError("say one of CASES, --from-megatron WORDS and --from-deepspeed FILE")
    constants = table_answers.constants_of(out.store, profiles)
    given = table_reader.option("--power-cap-w", "power_cap_w", power_cap_w)
    if cases is None:
        if column is not None or target is not None or number is not None:
            raise UsageError("--solve and --explain go with a table of cases")
        table = launch_words.table(words, config, also)
        answers = table_answers.of_table(table, constants, given)
        out.show(answers.to_json(), lambda console: show.answers(console, answers))
        sys.exit(0 if answers.ok else 1)
    if also:
        raise UsageError("--also goes with --from-megatron and --from-deepspeed; a table has columns")
    if (column is None) != (target is None):
        raise UsageError("--solve COLUMN and --target FIGURE=VALUE belong together")
    if number is not None:
        case, explained = table_answers.explain_row(cases, number, constants, given)
        body = table_answers.explained_json(case, explained)
        out.show(body, lambda console: show.explained(console, body))
        return
    if column is not None and target is not None:
        with out.console.progress() as progress:
            solved = table_answers.invert(cases, column, Target.parse(target), constants, given, progress)
        out.show(solved.to_json(), lambda console: show.solutions(console, solved))
        sys.exit(0 if solved.ok else 1)
    with out.console.progress() as progress:
        found = table_answers.estimate(cases, constants, given, progress)
    out.show(found.to_json(), lambda console: show.answers(console, found))
    sys.exit(0 if found.ok else 1)


@writing_command
@click.option("--model", metavar="NAME", help="Model, as `twin plan --model` knows it.")
@click.option("--gpus", metavar='"N x GPU"', help='GPUs of one model, as "8 x A100-80".')
@click.option(
    "--batch", "batches", metavar="N[,N...]|N..M",
    help="Global batch, samples; several, or all doublings from N to M, with --noise-scale.",
)  # fmt: skip
@click.option("--noise-scale", type=float, metavar="SAMPLES", help="Gradient noise scale; compares batches.")
@click.option(
    "--initial-batch", type=click.IntRange(1), help="Batch that efficiency is relative to [the first]."
)
@click.option("--tp", type=click.IntRange(1), default=1, help="Tensor-parallel width [1].")
@click.option("--pp", type=click.IntRange(1), default=1, help="Pipeline stages [1].")
@click.option("--profiles", type=PATH, metavar="DIR", help="Measured profiles as of Sia, instead of a model.")
@click.option("--application", metavar="NAME", help="With --profiles: the application.")
@click.option("--profile-gpu", default="dgx-ext", metavar="GPU", help="With --profiles: the GPU [dgx-ext].")
@click.option("--placement", default="8", metavar="DIGITS", help="With --profiles: GPUs of each node [8].")
@click.option(
    "--progress", "done", type=click.FloatRange(0, 1), metavar="SHARE",
    help="With --profiles: share of the training that is done [a half].",
)  # fmt: skip
@click.option(
    "--out",
    "drawing",
    type=PATH,
    metavar="FILE",
    help="Draw memory and goodput over the batch; .svg or .png.",
)
@with_output
def batch(
    out: Output, model: str | None, gpus: str | None, batches: str | None, noise_scale: float | None,
    initial_batch: int | None, tp: int, pp: int, profiles: Path | None, application: str | None,
    profile_gpu: str, placement: str, done: float | None, drawing: Path | None,
) -> None:  # fmt: skip
    """Choose the batch of a model on GPUs: micro-batch, accumulation, learning rate.

    Every micro-batch, recomputation and ZeRO stage is priced; the one with the most goodput that fits is
    taken: samples a second, times what a sample is worth at that batch (Pollux), which needs the gradient's
    noise scale. Beside it stands the fixed formula of the largest batch. With --profiles both are measured.

    \b
    Examples:
      twin batch --model llama2-7b --gpus "8 x A100-80" --batch 256
      twin batch --model gpt2-1.5b --gpus "8 x V100-32" --batch 32..1024 --noise-scale 300 --out batch.svg
      twin batch --profiles profiles --application imagenet --placement 44
    """
    from commands.show import estimate as show

    if profiles is not None:
        from twin.goodput import application_profile

        if application is None or model is not None:
            raise UsageError("--profiles DIR goes with --application NAME, and without --model")
        measured = application_profile.read(profiles, application, profile_gpu, placement)
        curve = measured.answer(initial_batch, done)
        draw(out, curve, drawing)
        out.show(curve.to_json(), lambda console: show.profiled_batch(console, curve))
        return
    from twin.goodput import batch_choice

    if model is None or gpus is None or batches is None:
        raise UsageError("say --model, --gpus and --batch, or --profiles and --application")
    count, kind = batch_choice.parse_gpus(gpus)
    question = batch_choice.BatchQuestion(
        model, kind, count, batch_choice.parse_batches(batches), tp, pp, noise_scale, initial_batch
    )
    with out.console.working("price every way to run the batch"):
        found = batch_choice.answer(question)
    draw(out, found, drawing)
    out.show(found.to_json(), lambda console: show.batch(console, found))


def draw(out: Output, found: "BatchAnswer | ProfileAnswer", path: Path | None) -> None:
    """Draws an answer of `twin batch` into a file, if one is named."""
    if path is None:
        return
    from ingest.core import durable
    from replay.planning.batch_picture import picture

    with out.console.working("picture"):
        drawn = picture(found, path)
    durable.write_output(path, drawn)


@writing_command
@click.option(
    "--runs", type=PATH, metavar="CASES", help="Fit to measured runs: cases with measured_s or run."
)
@with_output
def calibrate(out: Output, runs: Path | None) -> None:
    """Fit the twin's constants to the profiles in the lake, or to measured runs.

    \b
    Examples:
      twin calibrate
      twin calibrate --runs runs.csv
    """
    from commands.show import estimate as show
    from twin.cases import run_learning

    if runs is not None:
        with out.console.working("fit to runs"):
            learned = run_learning.learn(out.store, runs)
        learned.calibration.save(out.store)
        body = learned.to_json()
        out.show(body, lambda console: show.learned(console, body))
        return
    from twin.calibration.calibrate import calibrate as fit
    from twin.calibration.uncalibrated import uncalibrated

    with out.console.progress() as progress:
        found = fit(out.store, progress)
    found.save(out.store)
    left = [one.to_json() for one in uncalibrated(out.store, found)]
    body = {**found.to_json(), "digest": found.digest, "unfitted": left}
    out.show(body, lambda console: show.calibration(console, body))
