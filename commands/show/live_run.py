"""Draws a run that goes on: `twin replay --live`."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from commands.show.console import cell
from ingest.core.terminal import in_line
from replay.live.pace import Pace
from replay.live.run_snapshot import LinkNow, PlanNow, RunSnapshot
from replay.live.run_state import RunState

OTHER_LINES = 16
"""Lines of the screen that are not links or decisions."""
LEAST_LINKS = 4
BAR = 30


def screen(state: RunState, pace: Pace, width: int, height: int) -> RenderableType:
    """Returns the state as text for a terminal of this size."""
    run = state.latest
    if run is None:
        return Text(f"preparing {pace.what}".rstrip())
    room = max(LEAST_LINKS, height - OTHER_LINES - len(run.decisions) - sum(len(p.shares) for p in run.plans))
    return Group(_head(run, pace), _plans(run), _links(run, room), _decisions(run, width), _figures(run))


def _head(run: RunSnapshot, pace: Pace) -> Text:
    share = run.now_s / run.end_s if run.end_s else 0.0
    full = round(share * BAR)
    left = "-" if pace.left_s is None else clock(pace.left_s)
    text = Text(f"{in_line(run.scenario)} under {in_line(run.policy)}, seed {run.seed}  ", style="bold")
    text.append("━" * full, style="green").append("━" * (BAR - full), style="dim")
    text.append(f"  {clock(run.now_s)} of {clock(run.end_s)}, {left} left", style="not bold")
    return text


def _plans(run: RunSnapshot) -> RenderableType:
    if not run.plans:
        return Text("plan: none in force yet")
    lines = [Text(_plan_head(plan)) for plan in run.plans]
    table = Table(box=None, pad_edge=False)
    for column in ("site", "layers", "stages", "tp", "GPUs"):
        table.add_column(column, justify="left" if column == "site" else "right")
    for plan in run.plans:
        for share in plan.shares:
            figures = (share.layers, share.stages, share.tensor, share.gpus)
            table.add_row(in_line(share.site), *map(str, figures))
    return Group(*lines, table)


def _plan_head(plan: PlanNow) -> str:
    job = f" of {in_line(plan.job)}" if plan.job else ""
    return f"plan{job}: {plan.pipelines} x {plan.schedule}, since {clock(plan.since_s)}"


def _links(run: RunSnapshot, room: int) -> RenderableType:
    ahead = "forecast" if run.horizon_s is None else f"in {clock(run.horizon_s)}"
    table = _table("links, Mb/s")
    for column in ("from", "to", "now", "filtered", ahead, "one way ms", ""):
        table.add_column(column, justify="left" if column in ("from", "to", "") else "right")
    order = sorted(run.links, key=lambda link: not link.used)  # those that carry traffic first
    for link in order[:room]:
        rates = (link.observed_bps, link.estimated_bps, link.forecast_bps)
        latency = "-" if link.latency_s is None else f"{1e3 * link.latency_s:.1f}"
        style = "red" if _mark(link) == "dead" else "" if link.used else "dim"
        table.add_row(
            in_line(link.src), in_line(link.dst), *map(_megabits, rates), latency, _mark(link), style=style
        )
    if len(order) > room:
        table.add_row(f"... {len(order) - room} more", style="dim")
    return table


def _mark(link: LinkNow) -> str:
    if link.failed or link.observed_bps == 0:
        return "dead"
    return "in use" if link.used else ""


def _decisions(run: RunSnapshot, width: int) -> RenderableType:
    table = _table("last decisions")
    for column in ("at", "number", "why now", "action"):
        table.add_column(column, no_wrap=True)
    table.add_column("reason", no_wrap=True, overflow="ellipsis", max_width=max(20, width - 42))
    for one in run.decisions:
        trigger = f"{in_line(one.job)} {one.trigger}".strip()
        style = "" if one.action == "hold" else "cyan"
        table.add_row(clock(one.at_s), str(one.number), trigger, one.action, in_line(one.reason), style=style)
    return table


def _figures(run: RunSnapshot) -> Text:
    kpis = run.kpis
    speed = kpis.tokens / run.now_s if run.now_s else None
    figures = {
        "iterations": kpis.iterations, "tokens": kpis.tokens, "tokens/s": speed,
        "utilisation": kpis.utilisation, "egress USD": kpis.egress_usd, "GPU USD": kpis.gpu_usd,
        "energy MJ": kpis.energy_j / 1e6, "moves": kpis.moves, "paused s": kpis.paused_s,
        "lost s": kpis.lost_s,
    }  # fmt: skip
    return Text("  ".join(f"{name} {cell(value)}" for name, value in figures.items()))


def _table(title: str) -> Table:
    return Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="italic")


def _megabits(rate_bps: float | None) -> str:
    return "-" if rate_bps is None else f"{rate_bps / 1e6:,.0f}"


def clock(seconds: float) -> str:
    """Returns a length of time: 42 s, 3:07 min, 2:15 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"
