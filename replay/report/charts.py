"""The charts of the report: each function takes a story and returns a section (HTML), or "" without data."""

import math
from collections.abc import Iterable
from html import escape
from itertools import groupby

from ingest.core.units import GB
from replay.report.run_data import Pair, Series, Span, Story
from replay.report.decisions import plan_line
from replay.report.svg import Chart, colour, legend, size

LINKS_SHOWN = 12
LINKS_MOST = 60
"""Links drawn at all: more would be a page that a phone does not open."""
PLANS_DRAWN = 500
"""Plans of a job that are drawn; a chart is not finer."""
JOB_COLOUR = 7
"""Jobs take colours from the far end: domains begin at the other."""
Z80 = 1.2816
"""Standard deviations on either side that hold 80 % of a normal distribution."""


def plan_over_time(story: Story) -> str:
    """Layers per domain, stacked in pipeline order, as the plans changed; a chart for each job."""
    if not story.spans:
        return ""
    used = {share["domain"] for span in story.spans for share in span.plan["shares"]}
    names = legend((name, k) for k, name in enumerate(story.names) if k in used)
    if story.unfinished or any(span.pause_s for span in story.spans):
        names += '<div class="legend"><span class="still"><i></i>standing still for a move</span></div>'
    body = "".join(_plans(story, job) for job in story.jobs)
    return f'<h2>Plan over time</h2><div class="legends">{names}</div>{body}{_NOTATION}'


_NOTATION = (
    '<p class="small-text soft">How plans are written: domains in pipeline order with their layers; tp, pp, '
    "dp: tensor, pipeline and data parallel; last the micro-batches and their size in sequences.</p>"
)


def _plans(story: Story, job: str) -> str:
    played = [span for span in story.spans if span.job == job]
    spans = _drawn(played, story.end_s)
    layers = max(sum(share["layers"] for share in span.plan["shares"]) for span in spans)
    chart = Chart(story.end_s, layers, "layers")
    for span in spans:
        low = 0
        for share in span.plan["shares"]:
            split = f"tp {share['tp']}, pp {share['pp']}"
            title = f"{story.names[share['domain']]}: {share['layers']} layers, {split}"
            css = colour(share["domain"])
            chart.box(span.start_s, span.end_s, low, low + share["layers"], css, title)
            low += share["layers"]
        if span.pause_s:
            title = f"moved {size(span.moved_bytes)} in {span.pause_s:.1f} s"
            chart.box(span.start_s - span.pause_s, span.start_s, 0, layers, "pause", title)
    for whom, start_s, end_s in story.unfinished:
        if whom == job:
            chart.box(start_s, end_s, 0, layers, "pause", "a move that did not come to its end")
    whose = f"<strong>{escape(job)}</strong>: layers" if job else "<strong>Layers</strong>"
    replicas = spans[-1].plan.get("sync") is not None
    order = "each domain holds a replica of the model" if replicas else "first stage at the bottom"
    drawn = chart.html(f"{whose} per domain, {order}", label=f"layers per domain over time {job}".strip())
    last = f"Last plan: {plan_line(played[-1].plan, story.names)}"
    thin = f" Of {len(played):,} plans {len(spans):,} are drawn." if len(spans) < len(played) else ""
    return f'{drawn}<p class="small-text soft">{last}.{thin}</p>'


def _drawn(spans: list[Span], end_s: float) -> list[Span]:
    """All plans, or where they are many the longest of each stretch of time."""
    if len(spans) <= PLANS_DRAWN:
        return spans
    longest: dict[int, Span] = {}
    for span in spans:
        stretch = int(PLANS_DRAWN * span.start_s / end_s)
        longest[stretch] = max(longest.get(stretch, span), span, key=lambda one: one.end_s - one.start_s)
    return list(longest.values())


def links(story: Story) -> str:
    """Bandwidth of each link: telemetry, filter, 80 % band, outages; the links that carried bytes first."""
    used = story.used_links
    rest = sorted(pair for pair in story.observed if pair not in used)
    first = (used + rest)[:LINKS_SHOWN]
    more = (used + rest)[len(first) : LINKS_MOST]
    left_out = len(used + rest) - len(first) - len(more)
    if not first:
        return ""
    intro = (
        '<p class="small-text soft">Grey: what telemetry reported, of many samples those furthest from '
        "the mean. Line and band: the filter at each "
        "decision and its 80 % interval. Red area: link down. Dashed: an alarm, the filter starts anew. "
        "Busiest links first.</p>"
    )
    grid = "".join(_link(story, pair) for pair in first)
    hidden = "".join(_link(story, pair) for pair in more)
    tail = (
        f'<details><summary>{len(more)} more links</summary><div class="many">{hidden}</div></details>'
        if more
        else ""
    )
    if left_out:
        tail += (
            f'<p class="small-text soft">{left_out:,} further links are not drawn; they are in '
            "<span class='mono'>twin sql \"select * from links\"</span>.</p>"
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
    for alive, part in groupby(zip(filtered, band, strict=True), key=lambda pair: pair[0][1] > 0):
        if alive:  # of a dead link nothing is estimated
            seen = list(part)
            chart.band([area for _, area in seen], "")
            chart.line([point for point, _ in seen], "")
    chart.moments(story.alarms.get(pair, ()), "alarm", "filter alarm")
    name = f"{story.names[pair[0]]} → {story.names[pair[1]]}"
    sent = story.traffic.get(pair, 0) + story.moved.get(pair, 0)
    load = f"{size(sent)} sent" if sent else "unused"
    return chart.html(f"<strong>{escape(name)}</strong> · {load}", small=True, label=f"bandwidth {name}")


def iterations(story: Story) -> str:
    """Seconds of an iteration, and utilisation of each domain while it is in the plan."""
    lengths = sorted(value for series in story.iteration_s.values() for _, value in series.points)
    if not lengths:
        return ""
    time_chart = Chart(story.end_s, lengths[int(0.995 * (len(lengths) - 1))] * 1.1, "s")
    several = len(story.iteration_s) > 1
    for k, series in enumerate(story.iteration_s.values()):
        time_chart.dots(series.points, colour(JOB_COLOUR - k) if several else "")
    _faults(story, time_chart)
    over = sum(value > time_chart.top for value in lengths)
    cut = f" ({over} longer ones at the upper edge)" if over else ""
    use = Chart(story.end_s, 1.0, "share")
    used = []
    for k, series in enumerate(story.utilisation):
        if series.points:
            use.dots(series.points, colour(k))
            used.append((story.names[k], k))
    whose = legend((job, JOB_COLOUR - k) for k, job in enumerate(story.iteration_s)) if several else ""
    left = time_chart.html(f"<strong>Time per iteration</strong>{cut}{whose}", label="time per iteration")
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
        chart.moments([time_s], "fault", what)


def _from_zero(series: Series) -> Iterable[tuple[float, ...]]:
    yield (0.0, 0.0)
    yield from series.points
