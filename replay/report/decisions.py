"""Section of the decisions: one line each, with reason and candidates to open."""

from collections import Counter
from collections.abc import Iterator

from replay.log.events import Json
from replay.report.formatting import named, percent, plain, plan_line, scaled, time_unit
from replay.report.run_data import RunData, ShownDecision
from replay.report.section import Section, section

HOLDS_SHOWN = 150
OTHERS_SHOWN = 300
CANDIDATES_SHOWN = 6
BUTTONS = {"move": "moves", "turn": "turns", "fell": "fallbacks"}
"""CSS class of a decision -> its name on a button; holds have none."""
UNITS = {"days": "d", "hours": "h", "minutes": "min", "seconds": "s"}


def decisions(run: RunData) -> Section | None:
    """Moves, turns, fallbacks and the first holds, with reasons and candidates to open."""
    if not run.decisions:
        return None
    holds = [one for one in run.decisions if _css(one) == "hold"]
    others = [one for one in run.decisions if _css(one) != "hold"]
    shown = [*holds[:HOLDS_SHOWN], *others[:OTHERS_SHOWN]]
    shown.sort(key=lambda one: (one.time_s, one.job, one.number))
    counts = Counter(map(_css, shown))
    buttons = [("all", f"all ({len(shown)})")]
    buttons += [(css, f"{name} ({counts[css]})") for css, name in BUTTONS.items() if counts[css]]
    left_out = len(run.decisions) - len(shown)
    rows = [_row(one, run) for one in shown]
    return section("decisions", "Decisions", buttons=buttons, rows=rows, left_out=left_out)


def _css(decision: ShownDecision) -> str:
    return "fell" if decision.details["fallback"] else str(decision.details["action"])


def _row(decision: ShownDecision, run: RunData) -> Json:
    details, domains = decision.details, run.domains
    scale, unit = time_unit(run.end_s)
    return {
        "css": _css(decision),
        "number": decision.number,
        "time": f"{decision.time_s / scale:.2f} {UNITS[unit]}",
        "trigger": decision.trigger,
        "action": details["action"],
        "job": decision.job,
        "reason": named(details["reason"], domains),
        "facts": list(_facts(decision, domains)),
        "candidates": [
            (
                plan_line(one["plan"], domains), scaled(one["score"]), scaled(one["iter_s"]),
                percent(one["utilisation"]), scaled(one["usd"]),
            )
            for one in details["candidates"][:CANDIDATES_SHOWN]
        ],
        "candidate_count": len(details["candidates"]),
    }  # fmt: skip


def _facts(decision: ShownDecision, domains: list[str]) -> Iterator[tuple[str, str]]:
    details = decision.details
    if details["plan"]:
        yield "plan", plan_line(details["plan"], domains)
    if details["fallback"]:
        yield "fallback", details["fallback"]
    if details["predicted_iter_s"] is not None:
        yield "expected iteration", f"{plain(details['predicted_iter_s'])} s"
    iterations, seconds = decision.outcome
    if iterations:
        yield "mean iteration until the next", f"{plain(seconds / iterations)} s ({iterations:.0f})"
    if "latency_s" in decision.wall:
        yield "decided in", f"{plain(decision.wall['latency_s'] * 1e3, 3)} ms"
