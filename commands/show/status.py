"""Prints the state of a store: runs, checkpoint, data sets, and the accuracy of predictions."""

from collections.abc import Sequence
from typing import Any

from commands.show.console import Console
from replay.metrics.formatting import percent

Json = dict[str, Any]


def status(console: Console, found: Json) -> None:
    """Prints runs, the active checkpoint, data sets and the health of the filters."""
    columns = ("run_id", "policy", "scenario", "events", "finished", "branch_of", "problem")
    runs = [tuple(run[column] for column in columns) for run in found["runs"]]
    console.table("runs", (*columns[:5], "what if of", "problem"), runs)
    console.line(f"active checkpoint  {found['active'] or 'none: the shipped one'}")
    console.line(f"data sets          {', '.join(found['datasets']) or 'none: twin ingest shipped'}")
    console.line(f"lake digest        {found['lake_digest']}")
    if found["health_problem"]:
        console.line(f"newest run         {found['health_problem']}")
    if found["health"]:
        _health(console, found["health"])


def _health(console: Console, found: Json) -> None:
    """Prints the errors of a run's predictions; shares in per cent."""
    console.line(f"\nprediction against observation in {found['run']}")
    console.line("bias: mean of predicted / observed - 1; MAPE: mean of its absolute value")
    console.line("in 80 %, in 95 %: share of observations inside those intervals, near their name if honest")
    figures = ("bias", "mape", "inside_80", "inside_95")
    heads = ("bias", "MAPE", "in 80 %", "in 95 %")
    console.table("bandwidth now, at each decision, per link", ("from", "to", "n", *heads, "NIS", "filter"), [
        (row["src"], row["dst"], row["count"], *_percents(row, figures), _short(row["nis"]), _state(row))
        for row in found["links"]
    ], keys=2)  # fmt: skip
    console.table("bandwidth ahead, all links", ("horizon", "n", *heads), [
        (f"{row['horizon_s']:g} s", row["count"], *_percents(row, figures)) for row in found["horizons"]
    ])  # fmt: skip
    console.table("computing time per domain", ("domain", "iterations", *heads[:2], "NIS", "filter"), [
        (row["domain"], row["iterations"], *_percents(row, figures[:2]), _short(row["nis"]), _state(row))
        for row in found["domains"]
    ])  # fmt: skip
    iteration = found["iteration"]
    if iteration["iterations"]:
        bias, mape = _percents(iteration, figures[:2])
        console.line(f"whole iterations   bias {bias}, MAPE {mape} over {iteration['iterations']:,}")
    console.line("NIS: surprise of the filters at the end, over that of training; steady from 0.2 to 3")
    if found["problem"]:
        console.line(f"no NIS             {found['problem']}")


def _percents(row: Json, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(percent(row[name]) for name in names)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _state(row: Json) -> str:
    if row["healthy"] is None:
        return "-"
    return "steady" if row["healthy"] else "drifting" if row["nis"] > 1 else "calmer"
