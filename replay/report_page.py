"""The report's words and tables: head, key figures, comparison, and how to check the run."""

from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING

from replay.kpis import Kpis
from replay.report_data import Story
from replay.report_svg import number, plain, time_unit

if TYPE_CHECKING:  # only named here: comparing is the caller's work
    from replay.compare import Comparison


def head(story: Story, run: str) -> str:
    """Title, what kind of data it is, and how it was made."""
    header = story.header
    scenario = header["scenario"]
    scale, unit = time_unit(story.end_s)
    parts = [
        f"<h1>{escape(scenario['name'])} under {escape(header['policy'])}</h1>",
        f'<p class="soft">{story.end_s / scale:.3g} {unit} of training '
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
        (_or(kpis.utilisation, lambda v: f"{v:.1%}"), "utilisation of the domains in the plan"),
        (_or(kpis.mean_iteration_s, lambda v: f"{plain(v)} s"), "mean iteration"),
        (f"${kpis.egress_usd:,.2f}", "egress between domains"),
        (f"{number(kpis.wan_bytes + kpis.moved_bytes)}B", "sent between domains"),
        (f"{kpis.moves}", f"moves after the first plan, in {kpis.decisions} decisions"),
        (f"{plain(kpis.paused_s)} s", "training stood still for moves"),
        (_or(kpis.decision_p99_s, lambda v: f"{plain(v * 1e3, 3)} ms"), "decision latency, 99th percentile"),
        (f"{kpis.load_stability:.2%}", "load stability"),
    ]
    cells = (
        f'<div class="card"><b>{value}</b><span>{escape(meaning)}</span></div>' for value, meaning in figures
    )
    return f'<div class="cards">{"".join(cells)}</div>'


def comparison(result: "Comparison | None", run: str) -> str:
    """All policies of one world and the bound above them; this run in bold."""
    if result is None:
        return ""
    rows = []
    for row in result.rows:
        if row.kpis is None:
            rows.append(
                f"<tr><td>{escape(row.policy)}</td><td colspan='8'>{escape(row.problem or '')}</td></tr>"
            )
            continue
        k = row.kpis
        cells = (
            _or(k.time_per_token_s, lambda v: plain(v * 1e6)),
            _or(row.reduction_vs_static, lambda v: f"{v:+.1%}"),
            _or(row.reduction_vs_single, lambda v: f"{v:+.1%}"),
            _or(row.regret, lambda v: f"{v:.2%}"),
            _or(k.utilisation, lambda v: f"{v:.1%}"),
            f"{k.egress_usd:,.2f}",
            f"{k.moves}",
            _or(k.decision_p99_s, lambda v: plain(v * 1e3, 3)),
        )
        css = ' class="this"' if row.run_id == run else ""
        rows.append(f"<tr{css}><td>{escape(row.policy)}</td>{_cells(cells)}</tr>")
    rows += _bound_row(result)
    heads = _cells(
        (
            "µs/token",
            "less than static",
            "less than single",
            "regret",
            "utilisation",
            "egress, USD",
            "moves",
            "p99, ms",
        ),
        "th",
    )
    note = (
        '<p class="small-text soft">Less time per token than <i>static</i> or <i>single</i>: positive is '
        "faster. Regret: share of the clairvoyant bound's tokens that was missed.</p>"
    )
    table = f'<div class="scroll"><table><tr><th>policy</th>{heads}</tr>{"".join(rows)}</table></div>'
    return f"<h2>All policies in this world</h2>{table}{note}"


def _bound_row(result: "Comparison") -> list[str]:
    bound = result.bound
    if bound is None:
        return []
    cells = (
        plain(result.wall_s / bound.tokens * 1e6) if bound.tokens else "–",
        *("–",) * 2,
        "0",
        _or(bound.utilisation, lambda v: f"{v:.1%}"),
        f"{bound.egress_usd:,.2f}",
        f"{max(0, len(bound.timeline) - 1)}",
        "–",
    )
    name = "clairvoyant bound" if bound.exact else "clairvoyant bound (of the plans tried)"
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
