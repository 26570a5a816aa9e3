"""One self-contained HTML page about a run, computed from its events alone; it opens without a network."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.core.durable import replace
from replay.metrics import cost_time_points as front
from replay.report import (
    decisions as report_decisions,
    kpi_table as report_kpis,
    time_breakdown as report_time,
    training_curves as report_training,
    run_comparison as report_versus,
)
from replay.store import run_index as runs
from replay.report import charts
from replay.report import page_sections as page
from replay.log.run_log import RunReader
from replay.report.run_data import tell
from replay.report.cost_model import looks

if TYPE_CHECKING:  # only named here: comparing is the caller's work
    from replay.bench.comparison import Comparison
    from replay.run.whatif import WhatIf

HERE = Path(__file__).parent
REPORTS = "reports"


def write(
    store: Path,
    run_id: str,
    out: Path | None = None,
    comparison: "Comparison | None" = None,
    versus: "WhatIf | None" = None,
) -> Path:
    """Write the page about a run and return its path, `<store>/reports/<run>.html` unless `out` is given.

    An older page of the same name is replaced: it can always be made again. `comparison` sets all policies
    of its world beside it, `versus` one other run.

    Raises:
        NotFoundError: there is no such run, or it was stopped before anything was stored.
        DamageError: its log is not as it was written.
        StorageError: the page cannot be written.
    """
    target = out or store / REPORTS / f"{run_id}.html"
    replace(target, render(store, run_id, comparison, versus).encode())
    return target


def render(
    store: Path, run_id: str, comparison: "Comparison | None" = None, versus: "WhatIf | None" = None
) -> str:
    """The page as one HTML document."""
    reader = RunReader(runs.folder(store, run_id))
    reader.header()  # says what is wrong where nothing is stored
    story, kpis = tell(reader.events())
    spreads = report_kpis.intervals(store, run_id, story.end_s, story.header["seed"]) if story.played else {}
    looked = looks(store, reader, len(story.choices))
    sections = (
        page.head(story, run_id),
        page.cards(kpis) if story.played else "",
        report_training.curves(story),
        page.comparison(comparison, run_id, report_kpis.saved(store, comparison)),
        report_versus.versus(versus, story.names),
        report_versus.front(front.points(store, run_id), run_id, _bound(comparison)),
        charts.plan_over_time(story),
        charts.iterations(story),
        report_time.time_spent(story, looked),
        report_time.binding(story, looked),
        charts.links(story),
        charts.traffic(story),
        charts.money(story),
        report_kpis.table(kpis, spreads) if story.played else "",
        report_decisions.decisions(story),
        page.proof(story, run_id, reader.digest(), reader.chain_head()),
    )
    style = (HERE / "report.css").read_text(encoding="utf-8")
    script = (HERE / "report.js").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(run_id)}</title><style>{style}</style></head>"
        f"<body><main>{''.join(sections)}</main><script>{script}</script></body></html>\n"
    )


def _bound(comparison: "Comparison | None") -> tuple[float, float] | None:
    """(USD, seconds) per token of the clairvoyant bound."""
    bound = comparison.bound if comparison is not None else None
    if comparison is None or bound is None or not bound.tokens:
        return None
    return bound.egress_usd / bound.tokens, comparison.wall_s / bound.tokens
