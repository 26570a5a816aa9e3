"""Prints estimates: tables of answers and of inverse solutions, one answer in parts, a calibration."""

from typing import TYPE_CHECKING, Any

from commands.show.console import Console
from ingest.core.units import GB, GIB
from replay.metrics.formatting import at_least, counted, percent, rate

if TYPE_CHECKING:  # a command loads only what it needs
    from pathlib import Path

    from twin.cases.table_answers import CaseAnswers, Solutions
    from twin.cases.table_reader import Failure
    from twin.goodput.application_profile import ProfileAnswer
    from twin.goodput.batch_choice import BatchAnswer, BatchChoice

ANSWER_COLUMNS = (
    "row", "case", "iter s", "low", "high", "peak GiB", "fits", "util", "mfu", "bubble s", "comm s",
    "WAN GB", "egress USD", "rent USD", "kJ", "tokens/s", "USD/1e9 tok", "limited by: time saved without it",
)  # fmt: skip

BATCH_COLUMNS = (
    "batch", "micro-batch", "accumulation", "recompute", "zero", "iteration s", "samples/s", "efficiency",
    "goodput", "rate x", "peak GB",
)  # fmt: skip
BAR = 24
"""Signs of the longest bar."""


def _scaled(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:,.2f}"


def answers(console: Console, found: "CaseAnswers") -> None:
    """Prints a line a case, then the cases without an answer."""
    rows = [
        (
            number, one.case or "-", one.iter_s, one.iter_s_low, one.iter_s_high,
            _scaled(one.peak_mem_bytes, GIB), one.fits, percent(one.utilisation), percent(one.mfu),
            one.bubble_s, one.exposed_comm_s, _scaled(one.wan_bytes, GB), one.usd, one.rent_usd,
            _scaled(one.energy_j, 1e3), rate(one.tokens_per_s), at_least(one.usd_per_1e9_tokens), one.limit,
        )
        for number, one in found.rows
    ]  # fmt: skip
    if rows:
        console.table("", ANSWER_COLUMNS, rows)
        bases = ", ".join(dict.fromkeys(one.interval for _, one in found.rows))
        console.line(
            f"note: low and high hold 80% of measured runs of the same basis ({bases}); "
            f"stage times from {found.constants.source} unless measured"
        )
        if any(one.rent_usd is None for _, one in found.rows):
            console.line("note: no list price is known of some GPUs: their rows have no rent and no total")
        if found.constants.profiles is not None:
            for number, one in found.rows:
                console.line(f"row {number}: {one.basis}")
    _failures(console, found.path, found.failures)


def solutions(console: Console, found: "Solutions") -> None:
    """Prints the value of the column that reaches the target, a line a case."""
    rows = [(number, label or "-", one.value, one.figure, one.note) for number, label, one in found.rows]
    if rows:
        console.table(
            f"{found.column} for {found.target}",
            ("row", "case", found.column, found.target.figure, "in words"),
            rows,
        )
    _failures(console, found.path, found.failures)


def _failures(console: Console, path: "Path", failures: "tuple[Failure, ...]") -> None:
    if failures:
        console.line()
        console.line(f"{counted(len(failures), 'row')} without an answer")
        for one in failures:
            console.line(f"  {one.describe(path)}")


def explained(console: Console, body: dict[str, Any]) -> None:
    """Prints one case with its defaults, its answer, its stages and boundaries."""
    console.fields("the case", body["case"])
    console.line(f"defaults taken: {', '.join(body['defaults'])}")
    console.fields("the answer", body["answer"])
    for title in ("stages", "boundaries"):
        if body[title]:
            console.table(title, tuple(body[title][0]), [tuple(part.values()) for part in body[title]])


def learned(console: Console, body: dict[str, Any]) -> None:
    """Prints measured runs beside predictions, where the difference lies, and the fitted factors."""
    rows = [
        (run["case"] or "-", run["measured_s"], run["predicted_s"], *run["terms_s"].values(), run["fitted_s"],
         *(round(each, 5) + 0.0 for each in (*run["difference_s"].values(), run["unexplained_s"])))
        for run in body["runs"]
    ]  # fmt: skip
    terms = ("compute", "tensor", "pipeline", "reduction")
    columns = ("run", "measured s", "predicted", *terms, "fitted", *(f"+ {term}" for term in terms), "rest")
    console.table("predicted seconds and their terms; then the fit and what it adds to each", columns, rows)
    fits = [
        (gpu, name, fit["values"]["factor"], fit["rows"], percent(fit["error_before"]),
         percent(fit["error_after"]))
        for gpu, found in body["factors"].items()
        for name, fit in found.items()
    ]  # fmt: skip
    if fits:
        console.table("factors on times", ("GPU", "of", "factor", "runs", "error before", "after"), fits)
    left = [tuple(one.values()) for one in body["not_identifiable"]]
    if left:
        console.table("not identifiable, so the factor stays 1", ("GPU", "of", "why"), left)
    console.line(f"calibration  {body['calibration']}")


def calibration(console: Console, body: dict[str, Any]) -> None:
    """Prints every fitted constant with its rows and its error before and after."""
    rows = [
        (kind, name, ", ".join(f"{key} {value:.4g}" for key, value in fit["values"].items()), fit["rows"],
         percent(fit["error_before"]), percent(fit["error_after"]))
        for kind, found in body["gpus"].items()
        for name, fit in found.items()
    ]  # fmt: skip
    columns = ("GPU", "constant", "fitted", "rows", "error before", "after")
    console.table("mean error of each row against the built-in constants, and after the fit", columns, rows)
    for kind, blocks in body["blocks"].items():
        console.line(f"{kind}: {len(blocks)} measured blocks are interpolated: {', '.join(blocks)}")
    if body["unfitted"]:
        left = [(one["gpu"], one["what"], one["rows"], one["why"]) for one in body["unfitted"]]
        console.table("not fitted, so the built-in constants stay", ("GPU", "profiles", "rows", "why"), left)
    console.line(f"lake digest  {body['lake_digest']}")
    console.line(f"calibration  {body['digest']}")


def batch(console: Console, found: "BatchAnswer") -> None:
    """Prints the best way of each batch, the chosen one over the micro-batch, and the fixed formula."""
    asked, chosen = found.question, found.chosen
    title = f"{asked.model} on {asked.gpus} x {asked.gpu} (tp {asked.tp}, pp {asked.pp}, dp {asked.dp})"
    console.table(title, BATCH_COLUMNS, [_batch_row(one) for one in found.best])
    console.line()
    console.line(
        f"take batch {chosen.batch}: micro-batch {chosen.micro_batch} x {chosen.accumulation} x {asked.dp} "
        f"replicas, recompute {chosen.recompute}, zero {chosen.zero}, "
        f"learning rate x {chosen.learning_rate_factor:.2f}"
    )
    console.line()
    alike = [one for one in found.choices if one.way == chosen.way]
    most = max(one.goodput for one in alike)
    console.table(
        f"batch {chosen.batch} over the micro-batch: memory of {found.gpu_bytes / GB:.1f} GB, and goodput",
        ("micro-batch", "peak GB", "fits", "memory", "goodput", "of the most"),
        [
            (
                one.micro_batch, one.peak_bytes / GB, one.fits, _bar(one.peak_bytes / found.gpu_bytes),
                one.goodput, _bar(one.goodput / most),
            )
            for one in alike
        ],
    )  # fmt: skip
    console.line()
    _formula_batch(console, found)


def profiled_batch(console: Console, found: "ProfileAnswer") -> None:
    """Prints the goodput of every measured batch, and the one to take."""
    console.table(
        f"{found.application} on {found.gpu}, GPUs a node {found.placement}, {found.progress:.0%} trained",
        (
            "batch", "a GPU", "accumulation", "step s", "samples/s", "noise scale", "efficiency", "goodput",
            "of the most", "rate x",
        ),
        [
            (
                one.batch, one.local_batch, one.accumulation, one.step_s, one.samples_s, one.noise,
                one.efficiency, one.goodput, _bar(one.goodput / found.chosen.goodput),
                one.learning_rate_factor,
            )
            for one in found.batches
        ],
    )  # fmt: skip
    console.line()
    chosen = found.chosen
    console.line(
        f"take batch {chosen.batch}: {chosen.local_batch:g} a GPU x {chosen.accumulation}, learning rate "
        f"x {chosen.learning_rate_factor:.2f} of that at batch {found.initial}"
    )
    if found.step_error is not None:
        console.line(
            f"note: placement {found.placement} was not measured: steps are those of Pollux's model, whose "
            f"mean error on placements left out of its fit is {found.step_error:.1%}"
        )
    if found.at_edge:
        console.line("note: it is the largest measured batch; a larger one may be better")
    if found.left_out:
        sizes = ", ".join(map(str, found.left_out))
        console.line(f"note: left out, as they give a GPU fewer samples than were measured: {sizes}")


def _formula_batch(console: Console, found: "BatchAnswer") -> None:
    largest, taken = found.formula.micro_batch, found.formula_choice
    how = f"fixed formula, recompute {found.chosen.recompute}, zero {found.chosen.zero}"
    if taken is None:
        console.line(f"{how}: no micro-batch fits")
        return
    console.line(
        f"{how}: micro-batch {largest}, of which {taken.micro_batch} x {taken.accumulation} divides the "
        f"batch: {taken.samples_s:.4g} samples/s, {taken.peak_bytes / GB:.1f} GB"
    )


def _bar(share: float) -> str:
    """A bar of at most `BAR` signs; a share above 1 ends in an arrow."""
    return "#" * BAR + ">" if share > 1 else "#" * round(share * BAR)


def _batch_row(one: "BatchChoice") -> tuple[object, ...]:
    return (
        one.batch, one.micro_batch, one.accumulation, one.recompute, one.zero, one.iteration_s, one.samples_s,
        one.efficiency, one.goodput, one.learning_rate_factor, one.peak_bytes / GB,
    )  # fmt: skip
