"""A benchmark as people read it: a table a scenario, wins and losses, robustness, fronts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from replay.bench.load import steadiness
from commands.show.console import Console
from replay.metrics.formatting import milliseconds, per_billion, per_token, percent

if TYPE_CHECKING:
    from replay.bench.result import Bench, Chapter

Json = dict[str, Any]
STANDING = (
    "policy", "worlds", "us/token", "middle half", "util", "egress USD/1e9 tok", "regret", "moves", "p99 ms",
)  # fmt: skip
AGAINST = (
    "policy", "against", "time saved", "95 % over worlds", "middle half", "95 % in all (tokens)",
    "verdict", "wins", "losses", "ties",
)  # fmt: skip
LOAD = (
    "load", "policy", "worlds", "stability", "95 % over worlds", "worst", "in the queue", "all GPUs busy",
)  # fmt: skip
TALLY = ("policy", "base", "wins", "losses", "ties", "better", "equal", "worse")


def bench(console: Console, result: "Bench", verdicts: Sequence[str] = ()) -> None:
    """Everything, a chapter a scenario, the tally last, then the runs that hold the verdicts."""
    for chapter in result.chapters:
        _chapter(console, chapter)
    rows = [tuple(row[name] for name in TALLY) for row in result.tally()]
    if rows:
        console.table("wins and losses over all worlds; verdicts over scenarios", TALLY, rows)
    for note in result.notes:
        console.line(f"note: {note}")
    for run in verdicts:
        console.line(f"verdicts: {run}")


def _chapter(console: Console, chapter: "Chapter") -> None:
    standings = [chapter.standing(policy) for policy in chapter.policies]
    title = f"{chapter.scenario.name} on {chapter.dataset}, {len(chapter.worlds)} seeds"
    console.table(title, STANDING, [standing_row(row) for row in standings if row["worlds"]])
    limits = {name: seconds for name, seconds in chapter.limits().items() if seconds is not None}
    if limits:
        console.line("limits, us/token: " + ", ".join(f"{name} {per_token(s)}" for name, s in limits.items()))
    for row in standings:
        if row["problem"]:
            console.line(f"{row['policy']}: {row['problem']}")
    console.table("paired differences", AGAINST, against_rows(standings), keys=2)
    robust = robustness_rows(chapter)
    if robust:
        levels = [percent(level) for level in chapter.noisy]
        columns = ("policy", *(f"{what} at {level}" for level in levels for what in ("median", "worst")))
        console.table("time per token lost to added noise", columns, robust)
    steady = load_rows(chapter)
    if steady:
        console.table("progress of jobs under load", LOAD, steady, keys=2)
    if chapter.front is not None:
        front = chapter.front
        told = front.reaches if front.askable is None else (*front.reaches, front.askable)
        reaches = [(r.policy, r.points, percent(r.coverage), f"{r.volume:.3f}") for r in told]
        beside = ", beside all fixed plans" if front.exact else ""
        console.table(f"front{beside}", ("policy", "points", "coverage", "hypervolume"), reaches)
    console.line(f"note: {chapter.note}")
    console.line()


def standing_row(row: Json) -> tuple[Any, ...]:
    """Mean figures of one policy."""
    return (
        row["policy"], row["worlds"], per_token(row["time_per_token_s"]),
        per_token(row["time_per_token_middle_s"]), percent(row["utilisation"]),
        per_billion(row["usd_per_token"]), percent(row["regret"]),
        "-" if row["moves"] is None else f"{row['moves']:.1f}", milliseconds(row["decision_p99_s"]),
    )  # fmt: skip


def against_rows(standings: list[Json]) -> list[tuple[Any, ...]]:
    """Each policy against each base, with intervals."""
    return [
        (
            row["policy"], pair["base"], _middle(pair["mean"]), interval(pair["mean"]), whole(pair["middle"]),
            interval(pair["over_time"]), pair["verdict"], pair["wins"], pair["losses"], pair["ties"],
        )
        for row in standings
        for pair in row["versus"]
    ]  # fmt: skip


def robustness_rows(chapter: "Chapter") -> list[tuple[str, ...]]:
    """A row a policy: median and worst loss at each level."""
    found: dict[str, list[str]] = {}
    for row in chapter.robustness():
        found.setdefault(row["policy"], []).extend((percent(row["median"]), percent(row["worst"])))
    return [(policy, *cells) for policy, cells in found.items()]


def load_rows(chapter: "Chapter") -> list[tuple[Any, ...]]:
    """A row a load and policy; shares of the time that jobs were there."""
    return [
        (
            f"{row.load:g}", row.policy, row.worlds, f"{row.stability.mean:.2%}",
            f"[{row.stability.low:.2%}, {row.stability.high:.2%}]", f"{row.worst:.2%}",
            percent(row.queued), percent(row.utilisation_owned),
        )
        for row in steadiness(chapter)
    ]  # fmt: skip


def _middle(verdict: Json | None) -> str:
    return "-" if verdict is None else f"{100 * verdict['mean']:+.1f} %"


def interval(verdict: Json | None) -> str:
    """The interval in per cent."""
    return "-" if verdict is None else f"[{100 * verdict['low']:+.1f}, {100 * verdict['high']:+.1f}]"


def whole(verdict: Json | None) -> str:
    """Value and interval in per cent."""
    return "-" if verdict is None else f"{_middle(verdict)} {interval(verdict)}"
