"""Prints estimates: tables of answers and of inverse solutions, one answer in parts, a calibration."""

from typing import TYPE_CHECKING, Any

from commands.show.console import Console
from ingest.core.units import GB, GIB
from replay.metrics.formatting import counted, percent

if TYPE_CHECKING:  # a command loads only what it needs
    from pathlib import Path

    from twin.cases.table_answers import CaseAnswers, Solutions
    from twin.cases.table_reader import Failure

ANSWER_COLUMNS = (
    "row", "case", "iter s", "low", "high", "peak GiB", "fits", "util", "mfu", "bubble s", "comm s",
    "WAN GB", "USD", "kJ", "bound by",
)  # fmt: skip


def _scaled(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:,.2f}"


def answers(console: Console, found: "CaseAnswers") -> None:
    """Prints a line a case, then the cases without an answer."""
    rows = [
        (
            number, one.case or "-", one.iter_s, one.iter_s_low, one.iter_s_high,
            _scaled(one.peak_mem_bytes, GIB), one.fits, percent(one.utilisation), percent(one.mfu),
            one.bubble_s, one.exposed_comm_s, _scaled(one.wan_bytes, GB), one.usd, _scaled(one.energy_j, 1e3),
            one.binding,
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
