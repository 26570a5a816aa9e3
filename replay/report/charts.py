"""Sections of charts: plans, links, iterations, traffic and cost; None where there are no data."""

import math
from collections.abc import Mapping
from itertools import groupby

from ingest.core.units import GB
from replay.report.formatting import plan_line, size
from replay.report.run_data import PlanSpan, RunData
from replay.report.section import Section, chart_section, section
from replay.report.svg import Chart, colour
from twin.core.domain import Pair

LINKS_SHOWN = 12
LINKS_MOST = 60
"""Links drawn at all: a page of more is too large for a phone."""
PLANS_DRAWN = 500
"""Plans of a job that are drawn; a chart is not finer."""
JOB_COLOUR = 7
"""Colours of jobs count down from the last, those of domains up from the first."""
Z80 = 1.2816
"""Standard deviations on either side that hold 80 % of a normal distribution."""


def plan_over_time(run: RunData) -> Section | None:
    """Layers per domain, stacked in pipeline order, plan after plan; a chart for each job."""
    if not run.spans:
        return None
    used = {share["domain"] for span in run.spans for share in span.plan["shares"]}
    colours = [(name, colour(k)) for k, name in enumerate(run.domains) if k in used]
    if run.aborted_moves or any(span.pause_s for span in run.spans):
        colours.append(("paused for a move", "still"))
    return section(
        "plan_over_time", "Plan over time", colours=colours, jobs=[_plans(run, job) for job in run.jobs]
    )


def _plans(run: RunData, job: str) -> tuple[Chart, str]:
    """The chart of one job, and its last plan in words."""
    every = [span for span in run.spans if span.job == job]
    spans = _drawn(every, run.end_s)
    layers = max(sum(share["layers"] for share in span.plan["shares"]) for span in spans)
    replicas = spans[-1].plan.get("sync") is not None
    order = "each domain holds a replica of the model" if replicas else "first stage at the bottom"
    note = f"{': layers' if job else ''} per domain, {order}"
    chart = Chart(
        run.end_s, layers, "layers", job or "Layers", note, f"layers per domain over time {job}".strip()
    )
    for span in spans:
        low = 0
        for share in span.plan["shares"]:
            split = f"tp {share['tp']}, pp {share['pp']}"
            title = f"{run.domains[share['domain']]}: {share['layers']} layers, {split}"
            chart.box(span.start_s, span.end_s, low, low + share["layers"], colour(share["domain"]), title)
            low += share["layers"]
        if span.pause_s:
            title = f"moved {size(span.moved_bytes)} in {span.pause_s:.1f} s"
            chart.box(span.start_s - span.pause_s, span.start_s, 0, layers, "pause", title)
    for moving_job, start_s, end_s in run.aborted_moves:
        if moving_job == job:
            chart.box(start_s, end_s, 0, layers, "pause", "a move that was not completed")
    thinned = f" {len(spans):,} of {len(every):,} plans are drawn." if len(spans) < len(every) else ""
    return chart, f"Last plan: {plan_line(every[-1].plan, run.domains)}.{thinned}"


def _drawn(spans: list[PlanSpan], end_s: float) -> list[PlanSpan]:
    """All plans, or where they are many the longest of each stretch of time."""
    if len(spans) <= PLANS_DRAWN:
        return spans
    longest: dict[int, PlanSpan] = {}
    for span in spans:
        stretch = int(PLANS_DRAWN * span.start_s / end_s)
        longest[stretch] = max(longest.get(stretch, span), span, key=lambda one: one.end_s - one.start_s)
    return list(longest.values())


def links(run: RunData) -> Section | None:
    """Bandwidth of each link: telemetry, filter, 80 % band, outages; the links that carried bytes first."""
    used = run.used_links
    pairs = used + sorted(pair for pair in run.observed_bps if pair not in used)
    if not pairs:
        return None
    drawn = [_link(run, pair) for pair in pairs[:LINKS_MOST]]
    left_out = len(pairs) - len(drawn)
    return section(
        "links", "Wide-area links", first=drawn[:LINKS_SHOWN], more=drawn[LINKS_SHOWN:], left_out=left_out
    )


def _link(run: RunData, pair: Pair) -> Chart:
    observed = run.observed_bps[pair].points
    filtered = run.filtered_bps[pair].points
    band = [(t, v * math.exp(-Z80 * sd), v * math.exp(Z80 * sd)) for t, v, sd in filtered]
    highest = max([v for _, v in observed] + [high for *_, high in band] + [1.0])
    name = f"{run.domains[pair[0]]} → {run.domains[pair[1]]}"
    sent = run.training_bytes.get(pair, 0) + run.moved_bytes.get(pair, 0)
    load = f" · {size(sent)}" if sent else " · unused"
    chart = Chart(run.end_s, highest * 1.05, "bit/s", name, load, f"bandwidth {name}", size="small")
    for down, start_s, end_s in run.outages:
        if down == pair:
            chart.box(start_s, end_s, 0, chart.top, "down", f"down for {end_s - start_s:.0f} s")
    chart.dots(observed, "raw")
    for alive, part in groupby(zip(filtered, band, strict=True), key=lambda both: both[0][1] > 0):
        if alive:  # of a dead link nothing is estimated
            estimates, areas = zip(*part, strict=True)
            chart.band(areas)
            chart.line(estimates)
    chart.moments(run.alarms.get(pair, ()), "alarm", "filter alarm")
    return chart


def iterations(run: RunData) -> Section | None:
    """Seconds of an iteration, and utilisation of each domain while it is in the plan."""
    lengths = sorted(value for series in run.iteration_s.values() for _, value in series.points)
    if not lengths:
        return None
    top = lengths[int(0.995 * (len(lengths) - 1))] * 1.1
    over = sum(value > top for value in lengths)
    note = f" ({over} longer ones at the upper edge)" if over else ""
    time = Chart(run.end_s, top, "s", "Time per iteration", note, "time per iteration")
    if len(run.iteration_s) > 1:
        time.legend = [(job, colour(JOB_COLOUR - k)) for k, job in enumerate(run.iteration_s)]
    for k, series in enumerate(run.iteration_s.values()):
        time.dots(series.points, colour(JOB_COLOUR - k) if time.legend else "")
    for time_s, text in run.faults:
        time.moments([time_s], "fault", text)
    use = Chart(run.end_s, 1.0, "share", "Utilisation", " while in the plan", "utilisation per domain")
    colours = []
    for k, series in enumerate(run.utilisation):
        if series.points:
            use.dots(series.points, colour(k))
            colours.append((run.domains[k], colour(k)))
    return chart_section("Iterations", [time, use], "pair", colours=colours)


def cost(run: RunData) -> Section | None:
    """Cumulated cost of egress and of the GPU time held."""
    charts = []
    for series, name in ((run.egress_usd, "Egress"), (run.gpu_usd, "GPU time held")):
        total = series.points[-1][1] if series.points else 0.0
        if total > 0:
            chart = Chart(
                run.end_s, total * 1.05, "USD", name, f", cumulated: ${total:,.2f}", f"{name} in USD"
            )
            chart.line([(0.0, 0.0), *series.points], step=True)
            charts.append(chart)
    return chart_section("Cost", charts, "pair") if charts else None


def traffic(run: RunData) -> Section | None:
    """Bytes between domains: a heat map of training and one of moves."""
    maps = [
        (name, _heat_map(sums, len(run.domains)))
        for name, sums in (("Training", run.training_bytes), ("Moves", run.moved_bytes))
        if any(sums.values())
    ]
    return section("traffic", "Traffic between domains", maps=maps, domains=run.domains) if maps else None


def _heat_map(sums: Mapping[Pair, int], domains: int) -> list[list[tuple[str, float]]]:
    """(GB, shade) of every cell, from row to column; shade 0 without traffic."""
    highest, count = max(sums.values()), range(domains)
    cells = {pair: (f"{sent / GB:,.1f}", 0.08 + 0.42 * sent / highest) for pair, sent in sums.items() if sent}
    return [[cells.get((i, j), ("" if i == j else "0", 0.0)) for j in count] for i in count]
