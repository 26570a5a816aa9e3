"""Writes the report of a run: one self-contained HTML page, computed from its events alone."""

from pathlib import Path
from typing import TYPE_CHECKING

from ingest.core.durable import write_output
from ingest.core.errors import UsageError
from replay.log.run_log import RunReader
from replay.metrics import cost_time_points
from replay.report import (
    answer,
    bench_page,
    charts,
    cost_model,
    decisions,
    identity,
    kpi_table,
    provenance,
    queue_page,
    run_comparison,
    several_queues,
    time_breakdown,
    topology,
    training_curves,
)
from replay.report.drawing.section import document
from replay.report.run_data import fold_run
from replay.run import whatif
from replay.store import run_index
from replay.store.layout import REPORTS
from replay.store.run_header import NO_WORLD, QUEUE, from_payload

if TYPE_CHECKING:  # only named here: comparing is the caller's work
    from replay.bench.comparison import Comparison
    from replay.run.whatif import WhatIf


def write(
    store: Path,
    run_id: str,
    out: Path | None = None,
    comparison: "Comparison | None" = None,
    versus: "WhatIf | None" = None,
) -> Path:
    """Writes the page about a run and returns its path, `<store>/reports/<run>.html` unless `out` is given.

    Replaces an older page of the same name. `comparison` adds all policies of its world, `versus` one other
    run.

    Raises:
        NotFoundError: no such run, or it was stopped before anything was stored.
        DamageError: the log differs from what was written.
        StorageError: the page cannot be written.
    """
    target = out or store / REPORTS / f"{run_id}.html"
    write_output(target, render(store, run_id, comparison, versus).encode())
    return target


def render(
    store: Path, run_id: str, comparison: "Comparison | None" = None, versus: "WhatIf | None" = None
) -> str:
    """Returns the page as one HTML document."""
    reader = RunReader(run_index.folder(store, run_id))
    if reader.header()["policy"] == QUEUE:  # raises where nothing is stored
        if comparison is not None or versus is not None:
            raise UsageError(f"{run_id}: {NO_WORLD}")
        return queue_page.render(store, run_id, several_queues.beside_parent(store, run_id))
    if reader.header()["policy"] == run_index.BENCH and comparison is None and versus is None:
        return bench_page.render(store, run_id)
    run, kpis = fold_run(reader.events())
    header, branch, parent = from_payload(reader.header()), None, None
    if header.branch is not None:
        parent = whatif.beside_parent(store, run_id)
        changed = whatif.changes(header, whatif.parent_of(store, header))
        branch = identity.Branch(str(header.branch["run"]), parent is not None, changed)
        versus = versus or parent
    readings = cost_model.readings(store, reader, len(run.decisions))
    points = cost_time_points.points(store, run_id)
    savings = answer.savings(store, run_id, run, answer.runs_of_world(points, comparison))
    parts = (
        identity.head(run, run_id, branch),
        answer.answer(run, run_id, kpis, savings, comparison, parent) if run.is_replay else None,
        topology.topology(run),
        charts.plan_over_time(run),
        *training_curves.curves(run),
        run_comparison.policies(comparison, run_id, kpi_table.saved(store, comparison)),
        run_comparison.versus(versus, run.domains, run.origin_s, parent=versus is parent),
        run_comparison.front(points, run_id, _bound(comparison)),
        charts.iterations(run),
        time_breakdown.time_spent(run, readings),
        time_breakdown.binding(run, readings),
        charts.links(run),
        topology.traffic(run),
        charts.power(run),
        charts.cost(run),
        kpi_table.table(store, run_id, run, kpis) if run.is_replay else None,
        decisions.decisions(run),
        provenance.scenario(run, run_id),
        identity.verification(run, run_id, reader.digest(), reader.chain_head()),
    )
    title = run_id if branch is None else f"{branch.title(run.header['scenario']['name'])} ({run_id})"
    return document(title, parts, run.origin_s)


def _bound(comparison: "Comparison | None") -> tuple[float, float] | None:
    """(USD, seconds) per token of the clairvoyant bound."""
    bound = comparison.bound if comparison is not None else None
    if comparison is None or bound is None or not bound.tokens:
        return None
    return bound.egress_usd / bound.tokens, comparison.wall_s / bound.tokens
