"""Writes the report of several runs of policies: their figures side by side, and their curves in one chart
each. Runs of a queue have a page of their own, `several_queues`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ingest.core.durable import write_output
from ingest.core.errors import UsageError
from replay.log.events import canonical
from replay.log.run_log import RunReader
from replay.metrics import cost_time_points
from replay.metrics.kpis import Kpis
from replay.report import charts, kpi_table, run_comparison, several_queues
from replay.report.drawing.formatting import NONE, percent, plain, scaled
from replay.report.drawing.plot import LiveChart, variable
from replay.report.drawing.section import Section, chart_section, document, section
from replay.report.run_data import ChartSeries, RunData, fold_run
from replay.store import run_index
from replay.store.layout import REPORTS
from replay.store.run_header import from_payload
from replay.store.run_kind import require_one_family

MOST = 8
"""Runs on a page; there are no more colours."""
TITLES = ("run", "µs/token", "saved", kpi_table.INTERVAL, "tokens", "tokens/s", "utilisation", "MFU",
          "USD/10⁹ tokens", "egress, USD", "moves")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShownRun:
    """One run of the page: `label` names it in charts, `world` is equal for runs that can be paired."""

    run_id: str
    label: str
    run: RunData
    kpis: Kpis
    world: str


def write(store: Path, run_ids: Sequence[str], out: Path | None = None) -> Path:
    """Writes the page about several runs and returns its path, in `<store>/reports/` unless `out` is given.

    Raises:
        UsageError: one twice, more than `MOST`, or the log of an operation.
        NotFoundError, DamageError, StorageError: as for the page of one run.
    """
    target = out or store / REPORTS / f"{run_ids[0]}-beside-{len(run_ids) - 1}.html"
    write_output(target, render(store, run_ids).encode())
    return target


def render(store: Path, run_ids: Sequence[str]) -> str:
    """Returns the page as one HTML document; the first run is the one that the others are held against."""
    if len(set(run_ids)) < len(run_ids) or len(run_ids) > MOST:
        raise UsageError(f"a report takes up to {MOST} different runs; twin compare takes more")
    if require_one_family(store, run_ids, "a report of several runs") == "queue":
        return several_queues.render(store, run_ids)
    shown = _shown(store, run_ids)
    colours = [(one.label, variable(k)) for k, one in enumerate(shown)]
    parts = (
        _head(shown),
        _answer(store, shown),
        _overlaid(shown, colours),
        _plans(shown),
        run_comparison.front(cost_time_points.points(store, run_ids[0]), run_ids[0])
        if _one_world(shown)
        else None,
        _figures(shown),
    )
    dated = len({one.run.origin_s for one in shown}) == 1
    return document(" beside ".join(run_ids), parts, shown[0].run.origin_s if dated else None)


def side_by_side(store: Path, run_ids: Sequence[str]) -> list[Section | None]:
    """Returns the sections that overlay runs of one world: curves, plans, time against money, figures."""
    shown = _shown(store, run_ids)
    colours = [(one.label, variable(k)) for k, one in enumerate(shown)]
    front = run_comparison.front(cost_time_points.points(store, run_ids[0]), run_ids[0])
    return [_overlaid(shown, colours), _plans(shown), front, _figures(shown)]


def _shown(store: Path, run_ids: Sequence[str]) -> list[ShownRun]:
    found = []
    for run_id in run_ids:
        reader = RunReader(run_index.folder(store, run_id))
        header = from_payload(reader.header())
        run, kpis = fold_run(reader.events())
        found.append((run_id, run, kpis, canonical([dict(header.world), header.engine])))
    named = Counter(run.header["policy"] for _, run, *_ in found)
    return [
        ShownRun(run_id, policy if named[policy := run.header["policy"]] == 1 else run_id, run, kpis, world)
        for run_id, run, kpis, world in found
    ]


def _one_world(shown: Sequence[ShownRun]) -> bool:
    return len({one.world for one in shown}) == 1


def _head(shown: Sequence[ShownRun]) -> Section:
    worlds = [
        (one.run_id, one.run.header["scenario"]["name"], one.run.dataset, one.run.synthetic, one.run.finished)
        for one in shown
    ]
    return section("several_head", runs=worlds, one_world=_one_world(shown))


def _answer(store: Path, shown: Sequence[ShownRun]) -> Section:
    """The figures of every run, and what it saves against the first where both had the same world."""
    base = shown[0]
    rows = []
    for one in shown:
        paired = one is not base and one.world == base.world and one.run.finished and base.run.finished
        saved = NONE, NONE
        if paired:
            blocks = [kpi_table.blocks(store, each.run_id, one.run.end_s) for each in (base, one)]
            found = kpi_table.saving(blocks[0], blocks[1], one.run.header["seed"])
            around = f"{kpi_table.spread(found, 100.0, '+')}\u202f%" if found.estimated else NONE
            saved = percent(found.mean, sign="+"), around
        kpis = one.kpis
        rows.append((
            one.label, scaled(kpis.time_per_token_s, 1e6), *saved, plain(kpis.tokens),
            scaled(kpis.tokens_per_s), percent(kpis.utilisation), percent(kpis.mfu),
            ("≥ " if kpis.unpriced else "") + scaled(kpis.total_usd_per_token, 1e9),
            f"{kpis.egress_usd:,.2f}", f"{kpis.moves}",
        ))  # fmt: skip
    return section("several_answer", "The answer", titles=TITLES, rows=rows, base=base.label)


def _overlaid(shown: Sequence[ShownRun], colours: Sequence[tuple[str, str]]) -> Section:
    """Tokens, iterations, egress and GPU time of all runs over the same time."""
    tokens = [one.run.tokens for one in shown]
    lengths = [_joined(one.run) for one in shown]
    drawn = [
        _curves(shown, tokens, "tokens", "Tokens trained", step=True),
        _curves(shown, lengths, "s", "Time per iteration", step=False),
        _curves(shown, [one.run.egress_usd for one in shown], "USD", "Egress, cumulated", step=True),
        _curves(shown, [one.run.gpu_usd for one in shown], "USD", "GPU time held, cumulated", step=True),
    ]
    return chart_section("Runs over time", [one for one in drawn if one.marks], "pair", colours=colours)


def _joined(run: RunData) -> ChartSeries:
    """Iterations of all jobs of a run in order of time."""
    series = ChartSeries()
    series.points = sorted(point for one in run.iteration_s.values() for point in one.points)
    return series


def _curves(
    shown: Sequence[ShownRun], series: Sequence[ChartSeries], unit: str, title: str, *, step: bool
) -> LiveChart:
    values = sorted(point[1] for one in series for point in one.points)
    top = (values[-1] if step else values[int(0.995 * (len(values) - 1))]) if values else 0.0
    chart = LiveChart(max(one.run.end_s for one in shown), top * 1.05 or 1.0, unit, title)
    for k, (one, points) in enumerate(zip(shown, series, strict=True)):
        if not step:
            chart.dots(points.points, one.label, variable(k))
        elif top:
            chart.line([(0.0, 0.0), *points.points], one.label, variable(k), step=True)
    return chart


def _plans(shown: Sequence[ShownRun]) -> Section | None:
    """The plans of each run, one below the other."""
    jobs = []
    for one in shown:
        used = {share["domain"] for span in one.run.spans for share in span.plan["shares"]}
        for job in one.run.jobs:
            chart, last = charts.plans(one.run, job, f"{one.label} {job}".strip())
            chart.legend = [(name, variable(k)) for k, name in enumerate(one.run.domains) if k in used]
            jobs.append((chart, last))
    return section("plan_over_time", "Plans over time", colours=[], jobs=jobs) if jobs else None


def _figures(shown: Sequence[ShownRun]) -> Section:
    values = [one.kpis.to_json() for one in shown]
    rows = [
        (text, *(scaled(one[name], factor) for one in values)) for name, text, factor in kpi_table.FIGURES
    ]
    return section(
        "several_figures", "Key figures", titles=("figure", *(one.label for one in shown)), rows=rows
    )
