"""The charts of the report: each function takes a story and returns a section (HTML), or "" without data."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from ingest.units import GB
from replay.report_data import Pair, Series, Story
from replay.report_decisions import plan_line
from replay.report_model import Look, waiting
from replay.report_svg import Chart, colour, legend, named, number, plain

LINKS_SHOWN = 12
BINDINGS = 6
"""Kinds of binding cycle that have a colour of their own."""
Z80 = 1.2816
"""Standard deviations on either side that hold 80 % of a normal distribution."""

WHERE_TIME_WENT = (
    ("training", "complete iterations", 2),
    ("stalled", "iterations waiting for a dead link", 5),
    ("moving", "moves: copying and restart", 4),
    ("abandoned", "iterations given up for a move", 1),
    ("failure", "lost to failures", 3),
    ("waiting", "no plan could run", 7),
    ("horizon", "unfinished at the end of the window", 6),
)
"""(key in the story, meaning, colour)."""


def time_spent(story: Story, looked: Sequence[Look] = ()) -> str:
    """A waterfall: from the simulated time, step by step, down to the time in which GPUs computed."""
    total = sum(story.time_s.values())
    if not total:
        return ""
    spent = [(story.time_s.get(key, 0.0), meaning, kind) for key, meaning, kind in WHERE_TIME_WENT[1:]]
    lost = [entry for entry in spent if entry[0] > 0]
    steps = [*lost, *_waits(story, looked)]
    rows, left = [_step("simulated time", 0.0, total, total, 7)], total
    for value, meaning, kind in steps:
        rows.append(_step(meaning, left - value, left, total, kind))
        left -= value
    rows.append(_step("computing, mean over the domains in the plan", 0.0, left, total, 2))
    return f'<h2>Where the time went</h2><div class="fall">{"".join(rows)}</div>'


def _waits(story: Story, looked: Sequence[Look]) -> list[tuple[float, str, int]]:
    """What iterations waited for; split by the cost models where they are at hand."""
    waited = max(0.0, story.time_s.get("training", 0.0) - story.computing_s)
    shares = waiting(looked)
    if shares is None:
        return [(waited, "in iterations: waiting for other stages, messages, gradients", 1)]
    return [
        (waited * shares[0], "in iterations: stages waiting for each other (by the model)", 1),
        (waited * shares[1], "in iterations: messages between domains, gradients (by the model)", 0),
    ]


def _step(meaning: str, low: float, high: float, total: float, kind: int) -> str:
    share = (high - low) / total
    bar = f'<i class="{colour(kind)}" style="left:{low / total:.3%};width:{share:.3%}"></i>'
    figures = f"<b>{plain(high - low)} s · {share:.2%}</b>"
    return f'<div><span>{meaning}</span>{figures}<div class="lane">{bar}</div></div>'


def binding(story: Story, looked: Sequence[Look]) -> str:
    """What bound the iteration time under the links as the filter saw them, decision by decision."""
    if not looked:
        return ""
    words = [_named(look.binding, story.names) for look in looked]
    often = [text for text, _ in Counter(words).most_common(BINDINGS)]
    chart = Chart(story.end_s, 1.0, "")
    ends = [look.time_s for look in looked[1:]] + [story.end_s]
    for text, group in groupby(zip(words, looked, ends, strict=True), key=lambda entry: entry[0]):
        spans = list(group)
        css = colour(often.index(text)) if text in often else "other"
        chart.box(spans[0][1].time_s, spans[-1][2], 0, 1, css, text)
    names = legend((text, k) for k, text in enumerate(often))
    note = (
        '<p class="small-text soft">The slowest cycle of the pipeline decides its pace: one stage alone, or '
        "the round of stages and messages between two domains.</p>"
    )
    strip = chart.html("<strong>Binding cycle</strong> at each decision", small=True, label="binding cycle")
    return f'<h2>What bound the pace</h2>{note}{names}<div class="strip">{strip}</div>'


def _named(text: str, names: Sequence[str]) -> str:
    """A binding with the names of the domains for their numbers; without the period, which differs always."""
    return named(re.sub(r"\s*[:,]?\s*[0-9.]+ (?:ns|us|ms|s)\b", "", text), names)


def plan_over_time(story: Story) -> str:
    """Layers per domain, stacked in pipeline order, as the plans changed."""
    if not story.spans:
        return ""
    layers = sum(share["layers"] for share in story.spans[0].plan["shares"])
    chart = Chart(story.end_s, layers, "layers")
    for span in story.spans:
        low = 0
        for share in span.plan["shares"]:
            split = f"tp {share['tp']}, pp {share['pp']}"
            title = f"{story.names[share['domain']]}: {share['layers']} layers, {split}"
            css = colour(share["domain"])
            chart.box(span.start_s, span.end_s, low, low + share["layers"], css, title)
            low += share["layers"]
        if span.pause_s:
            title = f"moved {number(span.moved_bytes)}B in {span.pause_s:.1f} s"
            chart.box(span.start_s - span.pause_s, span.start_s, 0, layers, "pause", title)
    caption = "<strong>Layers per domain</strong>, first stage at the bottom; pauses marked"
    used = {share["domain"] for span in story.spans for share in span.plan["shares"]}
    names = legend((name, k) for k, name in enumerate(story.names) if k in used)
    last = story.spans[-1].plan
    line = (
        f'<p class="small-text soft">In force at the end: {plan_line(last, story.names)}</p>' if last else ""
    )
    return f"<h2>Plan over time</h2>{names}{chart.html(caption, label='layers per domain over time')}{line}"


def links(story: Story) -> str:
    """Bandwidth of each link: telemetry, filter, 80 % band, outages; the links that carried bytes first."""
    used = story.used_links
    rest = sorted(pair for pair in story.observed if pair not in used)
    first = (used + rest)[:LINKS_SHOWN]
    more = (used + rest)[len(first) :]
    if not first:
        return ""
    intro = (
        '<p class="small-text soft">Grey: what telemetry reported. Line and band: the filter at each '
        "decision and its 80 % interval. Red: link down. Dashed: a filter alarm. Busiest links first.</p>"
    )
    grid = "".join(_link(story, pair) for pair in first)
    hidden = "".join(_link(story, pair) for pair in more)
    tail = (
        f'<details><summary>{len(more)} more links</summary><div class="many">{hidden}</div></details>'
        if more
        else ""
    )
    return f'<h2>Wide-area links</h2>{intro}<div class="many">{grid}</div>{tail}'


def _link(story: Story, pair: Pair) -> str:
    observed = story.observed[pair].points
    filtered = story.filtered[pair].points
    band = [(t, v * math.exp(-Z80 * sd), v * math.exp(Z80 * sd)) for t, v, sd in filtered]
    highest = max([v for _, v in observed] + [high for *_, high in band] + [1.0])
    chart = Chart(story.end_s, highest * 1.05, "bit/s")
    for down, start_s, end_s in story.outages:
        if down == pair:
            chart.box(start_s, end_s, 0, chart.top, "down", f"down for {end_s - start_s:.0f} s")
    chart.dots(observed, "raw")
    chart.band(band, "")
    chart.line(filtered, "")
    for alarm_s in story.alarms.get(pair, ()):
        chart.moment(alarm_s, "alarm", "filter alarm")
    name = f"{story.names[pair[0]]} → {story.names[pair[1]]}"
    sent = story.traffic.get(pair, 0) + story.moved.get(pair, 0)
    load = f"{number(sent)}B sent" if sent else "unused"
    return chart.html(f"<strong>{escape(name)}</strong> · {load}", small=True, label=f"bandwidth {name}")


def iterations(story: Story) -> str:
    """Seconds of an iteration, and utilisation of each domain while it is in the plan."""
    points = story.iteration_s.points
    if not points:
        return ""
    high = sorted(value for _, value in points)[int(0.995 * (len(points) - 1))]
    time_chart = Chart(story.end_s, high * 1.1, "s")
    time_chart.dots(points, "")
    _faults(story, time_chart)
    over = sum(value > time_chart.top for _, value in points)
    cut = f" ({over} longer ones at the upper edge)" if over else ""
    use = Chart(story.end_s, 1.0, "share")
    used = []
    for k, series in enumerate(story.utilisation):
        if series.points:
            use.dots(series.points, colour(k))
            used.append((story.names[k], k))
    left = time_chart.html(f"<strong>Time per iteration</strong>{cut}", label="time per iteration")
    right = use.html("<strong>Utilisation</strong> while in the plan", label="utilisation per domain")
    return f'<h2>Iterations</h2>{legend(used)}<div class="pair">{left}{right}</div>'


def money(story: Story) -> str:
    """Cumulated cost of egress and of the GPU time held."""
    charts = []
    for series, what in ((story.egress_usd, "Egress"), (story.gpu_usd, "GPU time held")):
        if series.points and series.points[-1][1] > 0:
            chart = Chart(story.end_s, series.points[-1][1] * 1.05, "USD")
            chart.line(_from_zero(series), "", step=True)
            caption = f"<strong>{what}</strong>, cumulated: ${series.points[-1][1]:,.2f}"
            charts.append(chart.html(caption, label=f"{what} in USD"))
    return f'<h2>Cost</h2><div class="pair">{"".join(charts)}</div>' if charts else ""


def traffic(story: Story) -> str:
    """Bytes between domains: a heat map of training and one of moves."""
    maps = [
        _heat(story, sums, what)
        for sums, what in ((story.traffic, "Training"), (story.moved, "Moves"))
        if any(sums.values())
    ]
    return f'<h2>Traffic between domains</h2><div class="maps">{"".join(maps)}</div>' if maps else ""


def _heat(story: Story, sums: dict[Pair, int], what: str) -> str:
    highest = max(sums.values())
    names = story.names
    header = "".join(f'<th class="n">{escape(name)}</th>' for name in names)
    rows = []
    for i, name in enumerate(names):
        cells = "".join(_heat_cell(sums.get((i, j), 0), highest, i == j) for j in range(len(names)))
        rows.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    caption = f'<p class="small-text soft"><b>{what}</b>, GB from row to column.</p>'
    table = f'<table class="heat"><tr><th></th>{header}</tr>{"".join(rows)}</table>'
    return f'<div>{caption}<div class="scroll">{table}</div></div>'


def _heat_cell(size: int, highest: int, own: bool) -> str:
    if own or not size:
        return f'<td class="n none">{"" if own else "0"}</td>'
    return f'<td class="n cell" style="--v:{0.08 + 0.42 * size / highest:.3f}">{size / GB:,.1f}</td>'


def _faults(story: Story, chart: Chart) -> None:
    for time_s, what in story.faults:
        chart.moment(time_s, "fault", what)


def _from_zero(series: Series) -> Iterable[tuple[float, ...]]:
    yield (0.0, 0.0)
    yield from series.points
