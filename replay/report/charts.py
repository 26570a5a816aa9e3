"""Sections of charts over time: plans, links, iterations and cost; None where there are no data."""

import math

from replay.report.drawing.formatting import size
from replay.report.drawing.plot import LiveChart, variable
from replay.report.drawing.section import Section, chart_section, section
from replay.report.run_data import PlanSpan, RunData
from twin.core.domain import Pair
from twin.core.plan_text import plan_text

LINKS_SHOWN = 12
LINKS_MOST = 60
"""Links drawn at all: a page of more is too large for a phone."""
PLANS_DRAWN = 500
"""Plans of a job that are drawn; a chart is not finer."""
JOB_COLOUR = 7
"""Colours of jobs count down from the last, those of domains up from the first."""
Z80 = 1.2816
"""Standard deviations on either side that hold 80 % of a normal distribution."""
Estimate = tuple[float, float | None, float | None, float | None]
"""(time, value, low, high); of a dead link nothing is estimated."""


def plan_over_time(run: RunData) -> Section | None:
    """Layers per domain, stacked in pipeline order, plan after plan; a chart for each job."""
    if not run.spans:
        return None
    used = {share["domain"] for span in run.spans for share in span.plan["shares"]}
    colours = [(name, variable(k)) for k, name in enumerate(run.domains) if k in used]
    if run.aborted_moves or any(span.pause_s for span in run.spans):
        colours.append(("paused for a move", "ink"))
    jobs = [plans(run, job) for job in run.jobs]
    return section("plan_over_time", "Plan over time", colours=colours, jobs=jobs)


def plans(run: RunData, job: str, title: str = "") -> tuple[LiveChart, str]:
    """Returns the chart of one job, and its last plan in words."""
    every = [span for span in run.spans if span.job == job]
    spans = _drawn(every, run.end_s)
    layers = max(sum(share["layers"] for share in span.plan["shares"]) for span in spans)
    replicas = spans[-1].plan.get("sync") is not None
    order = "each domain holds a replica of the model" if replicas else "first stage at the bottom"
    name = title or job
    chart = LiveChart(
        run.end_s, layers, "layers", name or "Layers", f"{': layers' if name else ''} per domain, {order}"
    )
    for span in spans:
        _draw(chart, run, span, layers)
    for moving_job, start_s, end_s in run.aborted_moves:
        if moving_job == job:
            chart.box(start_s, end_s, 0, layers, "ink", "a move that was not completed")
    last = f"Last plan: {plan_text(every[-1].plan, run.domains)}."
    chart.words = [f"{len(every)} plans", last.rstrip(".")]
    thinned = f" {len(spans):,} of {len(every):,} plans are drawn." if len(spans) < len(every) else ""
    return chart, last + thinned


def _draw(chart: LiveChart, run: RunData, span: PlanSpan, layers: int) -> None:
    low = 0
    for share in span.plan["shares"]:
        split = f"tp {share['tp']}, pp {share['pp']}"
        title = f"{run.domains[share['domain']]}: {share['layers']} layers, {split}"
        high = low + share["layers"]
        chart.box(span.start_s, span.end_s, low, high, variable(share["domain"]), title)
        low = high
    if span.pause_s:
        title = f"moved {size(span.moved_bytes)} in {span.pause_s:.1f} s"
        chart.box(span.start_s - span.pause_s, span.start_s, 0, layers, "ink", title)


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
        "links", "Wide-area links", first=drawn[:LINKS_SHOWN], more=drawn[LINKS_SHOWN:], left_out=left_out,
        synthetic=run.synthetic,
    )  # fmt: skip


def _link(run: RunData, pair: Pair) -> LiveChart:
    observed = run.observed_bps[pair].points
    band = [_estimate(*point) for point in run.filtered_bps[pair].points]
    highest = max([v for _, v in observed] + [high for *_, high in band if high is not None] + [1.0])
    name = f"{run.domains[pair[0]]} → {run.domains[pair[1]]}"
    sent = run.sent_bytes(pair)
    load = f" · {size(sent)}" if sent else " · unused"
    chart = LiveChart(run.end_s, highest * 1.05, "bit/s", name, load, size="small", synthetic=run.synthetic)
    for down, start_s, end_s in run.outages:
        if down == pair:
            chart.box(start_s, end_s, 0, chart.top, "bad", f"down for {end_s - start_s:.0f} s")
    chart.dots(observed, "telemetry", "soft")
    chart.band(band, "filter")
    chart.ticks(run.alarms.get(pair, ()), "wait", "filter alarm")
    return chart


def _estimate(time_s: float, value: float, sd_log: float) -> Estimate:
    """(time, estimate, low, high) of a point of the filter; of a dead link nothing is estimated."""
    if value <= 0:
        return time_s, None, None, None
    return time_s, value, value * math.exp(-Z80 * sd_log), value * math.exp(Z80 * sd_log)


def iterations(run: RunData) -> Section | None:
    """Seconds of an iteration, and utilisation of each domain while it is in the plan."""
    lengths = sorted(value for series in run.iteration_s.values() for _, value in series.points)
    if not lengths:
        return None
    top = lengths[int(0.995 * (len(lengths) - 1))] * 1.1
    over = sum(value > top for value in lengths)
    note = f" ({over} longer ones above the upper edge)" if over else ""
    time = LiveChart(run.end_s, top, "s", "Time per iteration", note)
    several = len(run.iteration_s) > 1
    for k, (job, series) in enumerate(run.iteration_s.items()):
        colour = variable(JOB_COLOUR - k) if several else "strong"
        time.dots(series.points, job or "iteration", colour)
    if several:
        time.legend = [(job, variable(JOB_COLOUR - k)) for k, job in enumerate(run.iteration_s)]
    for time_s, text in run.faults:
        time.moments([time_s], "bad", text)
    use = LiveChart(run.end_s, 1.0, "share", "Utilisation", " while in the plan")
    colours = []
    for k, series in enumerate(run.utilisation):
        if series.points:
            use.dots(series.points, run.domains[k], variable(k))
            colours.append((run.domains[k], variable(k)))
    return chart_section("Iterations", [time, use], "pair", colours=colours)


def power(run: RunData) -> Section | None:
    """Power of the GPUs held, PUE included: the mean of each stretch between events; a line for each job."""
    highest = max((value for series in run.power_w.values() for _, value in series.points), default=0.0)
    if highest <= 0:
        return None
    scale, unit = (1e6, "MW") if highest >= 1e6 else (1e3, "kW")
    kwh = run.energy_j / 3.6e6
    note = f", the area is {kwh:,.4g} kWh"
    chart = LiveChart(run.end_s, highest / scale * 1.05, unit, "Power of the GPUs held", note)
    several = len(run.power_w) > 1
    for k, (job, series) in enumerate(run.power_w.items()):
        points = [(time_s, watts / scale) for time_s, watts in series.points]
        colour = variable(JOB_COLOUR - k) if several else "strong"
        last = [(run.end_s, points[-1][1])] if not several else []
        chart.line([*points, *last], job or "power", colour, step=True)
    if several:
        chart.legend = [(job, variable(JOB_COLOUR - k)) for k, job in enumerate(run.power_w)]
    return chart_section("Power", [chart], "")


def cost(run: RunData) -> Section | None:
    """Cumulated cost of egress and of the GPU time held."""
    charts = []
    for series, name in ((run.egress_usd, "Egress"), (run.gpu_usd, "GPU time held")):
        total = series.points[-1][1] if series.points else 0.0
        if total > 0:
            chart = LiveChart(run.end_s, total * 1.05, "USD", name, f", cumulated: ${total:,.2f}")
            chart.line([(0.0, 0.0), *series.points], name, step=True)
            charts.append(chart)
    return chart_section("Cost", charts, "pair") if charts else None
