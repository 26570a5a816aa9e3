"""The report's words and tables: head, key figures, comparison, and how to check the run."""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING

from replay.metrics.paired_comparison import Verdict
from replay.metrics.kpis import Kpis
from replay.report.run_data import Story
from replay.report.kpi_table import INTERVAL, spread
from replay.report.svg import number, percent, plain, size, time_unit

if TYPE_CHECKING:  # only named here: comparing is the caller's work
    from replay.bench.comparison import Comparison, Row


def head(story: Story, run: str) -> str:
    """Title, what kind of data it is, and how it was made."""
    header = story.header
    scenario = header["scenario"]
    scale, unit = time_unit(story.end_s)
    title, length = (
        f"{scenario['name']} under {header['policy']}",
        f"{story.end_s / scale:.3g} {unit} of training ",
    )
    if not story.played:
        title, length = f"{scenario['name']}: log of {header['policy']}", ""
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{length}'
        f"{escape(scenario['model'])} over {len(story.names)} domains ({escape(', '.join(story.names))}); "
        f"links from <b>{escape(story.dataset)}</b>, window {escape(header['window'])}, "
        f"seed {header['seed']}, {escape(header['engine'])} engine. "
        f"Run <span class='mono'>{escape(run)}</span>.</p>",
    ]
    if story.synthetic:
        parts.append(
            '<p class="label"><b>Synthetic data.</b> The links of this run were generated from statistics of '
            "public measurements; they were not measured. The figures show how the tool works, not what a "
            "real network gives.</p>"
        )
    if not story.finished:
        parts.append(
            '<p class="label"><b>Unfinished run.</b> What is shown ends with its last durable event; '
            f"<span class='mono'>twin replay --resume {escape(run)}</span> goes on.</p>"
        )
    return "".join(parts)


def cards(kpis: Kpis) -> str:
    """The key figures."""
    figures = [
        (
            _or(kpis.time_per_token_s, lambda v: f"{plain(v * 1e6)} µs"),
            "time per token, moves and waits included",
        ),
        (number(kpis.tokens), f"tokens in {kpis.iterations:,} iterations"),
        (percent(kpis.utilisation), "utilisation of the domains in the plan"),
        (_or(kpis.mean_iteration_s, lambda v: f"{plain(v)} s"), "mean iteration"),
        (f"${kpis.egress_usd:,.2f}", "egress between domains"),
        (size(kpis.wan_bytes + kpis.moved_bytes), "sent between domains"),
        (f"{kpis.moves}", f"moves after the first plan, in {kpis.decisions} decisions"),
        (f"{kpis.turns}", "turns of relays and warm-up depth, which stop nothing"),
        (f"{plain(kpis.paused_s)} s", "training stood still for moves"),
        (_or(kpis.decision_p99_s, lambda v: f"{plain(v * 1e3, 3)} ms"), "decision latency, 99th percentile"),
        (percent(kpis.load_stability, 2), "of the time not lost to changes of plan (load stability)"),
    ]
    cells = (
        f'<div class="card"><b>{value}</b><span>{escape(meaning)}</span></div>' for value, meaning in figures
    )
    return f'<div class="cards">{"".join(cells)}</div>'


def comparison(result: "Comparison | None", run: str, saved: Mapping[str, Verdict] | None = None) -> str:
    """All policies of one world and the bound above them; this run in bold. `saved`: by run, the share of
    static's time per token that it saves, with its interval."""
    if result is None:
        return ""
    single = any(row.reduction_vs_single is not None for row in result.rows if row.kpis is not None)
    titles = ("µs/token", "vs static", INTERVAL, *(["vs single"] if single else []), *REST)
    rows = [_compared(row, run, (saved or {}).get(row.run_id or ""), single) for row in result.rows]
    rows += _bound_row(result, len(titles))
    note = (
        '<p class="small-text soft">The newest finished run of each policy that the store has of this world. '
        "Vs <i>static</i>, <i>single</i>: share of their time per token that is saved, positive is faster; "
        "the interval is paired over blocks of time. Regret: share of the clairvoyant bound's tokens that "
        "was missed.</p>"
    )
    heads = f"<tr><th>policy</th>{_cells(titles, 'th')}</tr>"
    return (
        "<h2>All policies in this world</h2>"
        f'<div class="scroll"><table>{heads}{"".join(rows)}</table></div>{note}'
    )


REST = ("regret", "utilisation", "egress, USD", "moves", "p99, ms")
"""Titles of the columns after those of time."""


def _compared(row: "Row", run: str, saved: Verdict | None, single: bool) -> str:
    name = escape(row.policy)
    if row.kpis is None:
        columns = 3 + single + len(REST)
        return f"<tr><td>{name}</td><td colspan='{columns}'>{escape(row.problem or '')}</td></tr>"
    k = row.kpis
    cells = (
        _or(k.time_per_token_s, lambda v: plain(v * 1e6)),
        percent(row.reduction_vs_static if row.policy != "static" else None, sign="+"),
        "–" if saved is None else f"{spread(saved, 100.0, '+')}\u202f%",
        *([percent(row.reduction_vs_single if row.policy != "single" else None, sign="+")] * single),
        percent(row.regret),
        percent(k.utilisation),
        f"{k.egress_usd:,.2f}",
        f"{k.moves}",
        _or(k.decision_p99_s, lambda v: plain(v * 1e3, 3)),
    )
    css = ' class="this"' if row.run_id == run else ""
    return f"<tr{css}><td>{name}</td>{_cells(cells)}</tr>"


def _bound_row(result: "Comparison", columns: int) -> list[str]:
    bound = result.bound
    if bound is None:
        return []
    cells = (
        plain(result.wall_s / bound.tokens * 1e6) if bound.tokens else "–",
        *("–",) * (columns - 1 - len(REST)),
        "0",
        percent(bound.utilisation),
        f"{bound.egress_usd:,.2f}",
        f"{max(0, len(bound.timeline) - 1)}",
        "–",
    )
    name = "clairvoyant bound" if bound.exact else "clairvoyant bound (plans tried)"
    return [f'<tr class="bound"><td>{name}</td>{_cells(cells)}</tr>']


def proof(story: Story, run: str, digest: str, chain_head: str) -> str:
    """What identifies the run and how to check it; the modelling steps behind its links."""
    header = story.header
    facts = [
        ("digest of the events", f"<span class='mono'>{digest}</span>"),
        ("chain head", f"<span class='mono'>{chain_head}</span>"),
        ("events", f"{story.events:,}"),
        ("configuration", f"<span class='mono'>{escape(header['config_digest'])}</span>"),
        ("code", f"<span class='mono'>{escape(' '.join(map(str, header['code'].values())))}</span>"),
        (
            "checkpoint",
            f"<span class='mono'>{escape(header['checkpoint'] or 'none: not a learned policy')}</span>",
        ),
        *(
            (f"traces: {escape(name)}", f"<span class='mono'>{escape(str(d))}</span>")
            for name, d in header["traces"].items()
        ),
        ("modelling of the links", escape(header.get("note", "") or "none")),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)
    how = (
        f"<p class='small-text soft'>Everything on this page is computed from the run's events. "
        f"<span class='mono'>twin audit {escape(run)}</span> checks every event against this chain head and "
        "makes the run again; keep the chain head elsewhere, and nobody can change the run unnoticed.</p>"
    )
    return f"<h2>How to check this</h2><dl>{listed}</dl>{how}"


def _cells(values: Iterable[str], tag: str = "td") -> str:
    return "".join(f'<{tag} class="n">{value}</{tag}>' for value in values)


def _or(value: float | None, form: Callable[[float], str]) -> str:
    return "–" if value is None else form(value)
