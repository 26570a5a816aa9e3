"""Section of the decisions: a table to filter, in which one row at a time opens.

Rows are HTML, so that they print; what opens is JSON, in which every plan stands once.
"""

from collections import Counter
from collections.abc import Iterator

from replay.log.events import Json
from replay.report.drawing.formatting import date, percent, plain, scaled
from replay.report.drawing.plot import embedded
from replay.report.drawing.section import Section, section
from replay.report.run_data import RunData, ShownDecision
from twin.core.plan_text import plan_text, with_names

HOLDS_SHOWN = 150
OTHERS_SHOWN = 300
CANDIDATES_SHOWN = 6
KINDS = {"move": "moves", "turn": "turns", "hold": "holds", "fell": "fallbacks"}
"""CSS class of a decision -> its name among the choices."""


def decisions(run: RunData) -> Section | None:
    """Moves, turns and fallbacks, then the first holds, with reasons and candidates to open."""
    if not run.decisions:
        return None
    holds = [one for one in run.decisions if _css(one) == "hold"]
    others = [one for one in run.decisions if _css(one) != "hold"]
    in_time = [sorted(part, key=_when) for part in (others[:OTHERS_SHOWN], holds[:HOLDS_SHOWN])]
    shown = [one for part in in_time for one in part]
    counts = Counter(map(_css, shown))
    kinds = [(css, f"{name} ({counts[css]})") for css, name in KINDS.items() if counts[css]]
    plans: dict[str, int] = {}
    details = [_details(one, run, plans) for one in shown]
    return section(
        "decisions", "Decisions", kinds=kinds, rows=[_row(one, run) for one in shown],
        jobs=len({one.job for one in shown}) > 1, left_out=len(run.decisions) - len(shown),
        opened=embedded({"plans": list(plans), "rows": details}),
    )  # fmt: skip


def _when(decision: ShownDecision) -> tuple[float, str, int]:
    return decision.time_s, decision.job, decision.number


def _css(decision: ShownDecision) -> str:
    return "fell" if decision.details["fallback"] else str(decision.details["action"])


def _row(decision: ShownDecision, run: RunData) -> Json:
    return {
        "css": _css(decision),
        "number": decision.number,
        "time": date(run.origin_s + decision.time_s, seconds=True),
        "trigger": decision.trigger,
        "action": decision.details["action"],
        "job": decision.job,
        "reason": with_names(decision.details["reason"], run.domains),
    }


def _details(decision: ShownDecision, run: RunData, plans: dict[str, int]) -> list[object]:
    """What opens: facts (name, value), candidates (number of the plan, figures), number of candidates."""
    compared = decision.details["candidates"]
    rows = [
        [
            plans.setdefault(plan_text(one["plan"], run.domains), len(plans)), scaled(one["score"]),
            scaled(one["iter_s"]), percent(one["utilisation"]), scaled(one["usd"]),
        ]
        for one in compared[:CANDIDATES_SHOWN]
    ]  # fmt: skip
    return [list(_facts(decision, run.domains)), rows, len(compared)]


def _facts(decision: ShownDecision, domains: list[str]) -> Iterator[tuple[str, str]]:
    details = decision.details
    if details["plan"]:
        yield "plan", plan_text(details["plan"], domains)
    if details["fallback"]:
        yield "fallback", with_names(details["fallback"], domains)
    if details["predicted_iter_s"] is not None:
        yield "expected iteration", f"{plain(details['predicted_iter_s'])} s"
    iterations, seconds = decision.outcome
    if iterations:
        yield "mean iteration until the next", f"{plain(seconds / iterations)} s ({iterations:.0f})"
    if "latency_s" in decision.wall:
        yield "decided in", f"{plain(decision.wall['latency_s'] * 1e3, 3)} ms"
