"""The decisions of a run as the report shows them: one line each, reasons and candidates to open."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from replay.report.run_data import Choice, Json, Story
from replay.report.svg import named, percent, plain, time_unit

HOLDS_SHOWN = 150
MOVES_SHOWN = 300
BESIDE_HOLDS = {"move": "moves", "turn": "turns", "fell": "fallbacks"}
SHORT = {"days": "d", "hours": "h", "minutes": "min", "seconds": "s"}


def decisions(story: Story) -> str:
    """Moves, turns, fallbacks and the first holds, with reasons and candidates to open."""
    if not story.choices:
        return ""
    holds = [choice for choice in story.choices if _css(choice) == "hold"]
    others = [choice for choice in story.choices if _css(choice) != "hold"]
    shown = sorted([*holds[:HOLDS_SHOWN], *others[:MOVES_SHOWN]], key=lambda c: (c.time_s, c.job, c.number))
    left_out = len(story.choices) - len(shown)
    note = (
        f'<p class="small-text soft">{left_out:,} further decisions are left out here; they are in '
        "<span class='mono'>twin sql \"select * from decisions\"</span>.</p>"
        if left_out
        else ""
    )
    buttons = _buttons(Counter(map(_css, shown)))
    items = "".join(_choice(choice, story) for choice in shown)
    how = '<p class="small-text soft">Open one for its plan, what was expected and what was compared.</p>'
    body = f'<div class="filter">{buttons}</div><div class="decisions">{items}</div>'
    return f"<h2>Decisions</h2>{how}{body}{note}"


def _buttons(shown: Mapping[str, int]) -> str:
    """One for all, one for each kind that there is beside holds."""
    kinds = [(css, f"{word} ({shown[css]})") for css, word in BESIDE_HOLDS.items()]
    found = [("all", f"all ({sum(shown.values())})"), *(kind for kind in kinds if shown[kind[0]])]
    return "".join(
        f'<button type="button" data-show="{show}" aria-pressed="{pressed}">{text}</button>'
        for (show, text), pressed in zip(found, ("true", *["false"] * len(BESIDE_HOLDS)), strict=False)
    )


def _css(choice: Choice) -> str:
    return "fell" if choice.details["fallback"] else str(choice.details["action"])


def _choice(choice: Choice, story: Story) -> str:
    details, names = choice.details, story.names
    scale, unit = time_unit(story.end_s)
    whose = f"<b>{escape(choice.job)}</b>: " if choice.job else ""
    summary = (
        f"<span>#{choice.number}</span><span>{choice.time_s / scale:.2f} {SHORT[unit]}</span>"
        f"<span>{escape(choice.trigger)}</span><span class='act'>{escape(details['action'])}</span>"
        f"<span class='why'>{whose}{escape(named(details['reason'], names))}</span>"
    )
    facts = []
    if details["plan"]:
        facts.append(("plan", plan_line(details["plan"], names)))
    if details["fallback"]:
        facts.append(("fallback", escape(details["fallback"])))
    if details["predicted_iter_s"] is not None:
        facts.append(("expected iteration", f"{plain(details['predicted_iter_s'])} s"))
    iterations, seconds = choice.outcome
    if iterations:
        facts.append(("mean iteration until the next", f"{plain(seconds / iterations)} s ({iterations:.0f})"))
    if "latency_s" in choice.wall:
        facts.append(("decided in", f"{plain(choice.wall['latency_s'] * 1e3, 3)} ms"))
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)
    inner = f"<dl>{listed}</dl>{_candidates(details['candidates'][:6], len(details['candidates']), names)}"
    body = f'<summary>{summary}</summary><div class="inner">{inner}</div>'
    return f'<details class="{_css(choice)}">{body}</details>'


def _candidates(shown: Sequence[Json], total: int, names: Sequence[str]) -> str:
    if not shown:
        return ""
    rows = "".join(
        f"<tr><td>{plan_line(c['plan'], names)}</td><td class='n'>{_short(c['score'])}</td>"
        f"<td class='n'>{_short(c['iter_s'])}</td><td class='n'>{percent(c['utilisation'])}</td>"
        f"<td class='n'>{_short(c['usd'])}</td></tr>"
        for c in shown
    )
    titles = ("score", "iteration, s", "utilisation", "egress, USD")
    heads = "".join(f"<th class='n'>{title}</th>" for title in titles)
    return f"<table><tr><th>compared ({len(shown)} of {total})</th>{heads}</tr>{rows}</table>"


def plan_line(plan: Json, names: Sequence[str]) -> str:
    """A plan in one line (HTML): domain, layers and inner split in pipeline order; schedule, extra warm-up,
    routes and local SGD only where they are not 1F1B, blocking, none, direct and none."""
    sync = plan.get("sync")
    shares = (" → " if sync is None else " | ").join(
        f"{escape(names[s['domain']])} {s['layers']} (tp {s['tp']}, pp {s['pp']})" for s in plan["shares"]
    )
    parts = [shares, f"dp {plan['dp']}", f"{plan['micro_batches']} x {plan['micro_batch']}"]
    if (plan["schedule"], plan["p2p"]) != ("1f1b", "blocking"):
        chunks = f" x {plan['chunks']}" if plan.get("chunks", 1) > 1 else ""
        parts.append(f"{plan['schedule']}{chunks}, {plan['p2p']}")
    if plan.get("extra_warmup", 0):
        parts.append(f"warm-up +{plan['extra_warmup']}")
    if sync is not None:
        parts.append(f"replicas, equal after every {sync['inner_steps']}")
    for route in plan.get("routes", ()):
        parts.append("via " + "-".join(escape(names[k]) for k in route))
    return " · ".join(parts)


def _short(value: float | None) -> str:
    return "–" if value is None else plain(value)
