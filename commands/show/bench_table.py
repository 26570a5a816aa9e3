"""Prints a benchmark: a table a scenario, paired differences, robustness, load, fronts, tally."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commands.show.console import Console
from replay.metrics.formatting import (
    milliseconds,
    per_billion,
    per_token,
    percent,
    rate,
    total_per_billion,
    unpriced_text,
)

if TYPE_CHECKING:
    from replay.bench.result import Bench, ScenarioResult

Json = dict[str, Any]
SUMMARY_COLUMNS = (
    "policy", "worlds", "us/token", "middle half", "tokens/s", "util", "MFU", "USD/1e9 tok", "of it egress",
    "regret", "moves", "p99 ms",
)  # fmt: skip
PAIRED_COLUMNS = (
    "policy", "against", "time saved", "95 % over worlds", "middle half", "95 % in all (tokens)",
    "verdict", "wins", "losses", "ties",
)  # fmt: skip
LOAD_COLUMNS = (
    "load", "policy", "worlds", "stability", "95 % over worlds", "worst", "in the queue", "all GPUs busy",
)  # fmt: skip
TALLY_COLUMNS = ("policy", "base", "wins", "losses", "ties", "better", "equal", "worse")


def bench(console: Console, result: "Bench", verdicts: Sequence[str] = ()) -> None:
    """Prints every scenario, the tally, the runs, and those that are the records of the benchmark."""
    for scenario in result.scenarios:
        _scenario_result(console, scenario)
    rows = [tuple(row[name] for name in TALLY_COLUMNS) for row in result.tally()]
    if rows:
        console.table("wins and losses over all worlds; verdicts over scenarios", TALLY_COLUMNS, rows)
    for note in result.notes:
        console.line(f"note: {note}")
    for scenario in result.scenarios:
        for policy in scenario.policies:
            ran = [outcome.run_id for outcome in scenario.of(policy) if outcome.run_id]
            if ran:
                console.line(f"{policy}: {'run' if len(ran) == 1 else 'runs'} {', '.join(ran)}")
    for run in verdicts:
        console.line(f"bench: {run}; `twin report {run}` shows it")


def _scenario_result(console: Console, result: "ScenarioResult") -> None:
    summaries = [result.policy_summary(policy) for policy in result.policies]
    title = f"{result.scenario.name} on {result.dataset}, {len(result.worlds)} seeds"
    console.table(title, SUMMARY_COLUMNS, [summary_row(row) for row in summaries if row["worlds"]])
    limits = {name: seconds for name, seconds in result.limits().items() if seconds is not None}
    if limits:
        console.line("limits, us/token: " + ", ".join(f"{name} {per_token(s)}" for name, s in limits.items()))
    for row in summaries:
        if row["problem"]:
            console.line(f"{row['policy']}: {row['problem']}")
    console.table("paired differences", PAIRED_COLUMNS, paired_rows(summaries), keys=2)
    robust = robustness_rows(result)
    if robust:
        levels = [percent(level) for level in result.noisy]
        columns = ("policy", *(f"{what} at {level}" for level in levels for what in ("median", "worst")))
        console.table("time per token lost to added noise", columns, robust)
    under_load = load_rows(result)
    if under_load:
        console.table("progress of jobs under load", LOAD_COLUMNS, under_load, keys=2)
    if result.front is not None:
        front = result.front
        rows = front.reaches if front.supported is None else (*front.reaches, front.supported)
        reaches = [(r.policy, r.points, percent(r.coverage), f"{r.volume:.3f}") for r in rows]
        beside = ", beside all fixed plans" if front.exact else ""
        console.table(f"front{beside}", ("policy", "points", "coverage", "hypervolume"), reaches)
    unpriced = unpriced_text(list(dict.fromkeys(site for row in summaries for site in row["unpriced"])))
    for note in filter(None, (result.note, unpriced)):
        console.line(f"note: {note}")
    console.line()


def summary_row(row: Json) -> tuple[Any, ...]:
    """Returns the cells of one policy: mean figures over its worlds."""
    return (
        row["policy"], row["worlds"], per_token(row["time_per_token_s"]),
        per_token(row["time_per_token_middle_s"]), rate(row["tokens_per_s"]), percent(row["utilisation"]),
        percent(row["mfu"]), total_per_billion(row["total_usd_per_token"], partial=bool(row["unpriced"])),
        per_billion(row["usd_per_token"]), percent(row["regret"]),
        "-" if row["moves"] is None else f"{row['moves']:.1f}", milliseconds(row["decision_p99_s"]),
    )  # fmt: skip


def paired_rows(summaries: list[Json]) -> list[tuple[Any, ...]]:
    """Returns a row for each policy and base, with intervals."""
    return [
        (
            row["policy"], pair["base"], _mean(pair["mean"]), interval(pair["mean"]), whole(pair["middle"]),
            interval(pair["over_time"]), pair["verdict"], pair["wins"], pair["losses"], pair["ties"],
        )
        for row in summaries
        for pair in row["versus"]
    ]  # fmt: skip


def robustness_rows(result: "ScenarioResult") -> list[tuple[str, ...]]:
    """Returns a row a policy: median and worst loss at each level of noise."""
    found: dict[str, list[str]] = {}
    for row in result.robustness():
        found.setdefault(row["policy"], []).extend((percent(row["median"]), percent(row["worst"])))
    return [(policy, *cells) for policy, cells in found.items()]


def load_rows(result: "ScenarioResult") -> list[tuple[Any, ...]]:
    """Returns a row a load and policy; shares of the time from submission to end of the jobs."""
    return [
        (
            f"{row.load:g}", row.policy, row.worlds, f"{row.stability.mean:.2%}",
            f"[{row.stability.low:.2%}, {row.stability.high:.2%}]" if row.stability.estimated else "-",
            f"{row.worst:.2%}",
            percent(row.queued), percent(row.utilisation_owned),
        )
        for row in result.under_load()
    ]  # fmt: skip


def _mean(verdict: Json | None) -> str:
    return "-" if verdict is None else f"{100 * verdict['mean']:+.1f} %"


def interval(verdict: Json | None) -> str:
    """Returns the interval in per cent; of a single value there is none."""
    if verdict is None or verdict["low"] == verdict["high"]:
        return "-"
    return f"[{100 * verdict['low']:+.1f}, {100 * verdict['high']:+.1f}]"


def whole(verdict: Json | None) -> str:
    """Returns mean and interval in per cent."""
    around = interval(verdict)
    return _mean(verdict) if around == "-" else f"{_mean(verdict)} {around}"
