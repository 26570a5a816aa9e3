"""The report's table of key figures, with intervals where a figure is a mean over time."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from replay.metrics import paired_comparison as judge
from replay.store import run_index as runs
from replay.metrics.paired_comparison import Blocks, Verdict
from replay.metrics.kpis import Kpis
from replay.log.run_log import RunReader
from replay.report.svg import plain

if TYPE_CHECKING:  # only named here: comparing is the caller's work
    from replay.bench.comparison import Comparison

FIGURES = (
    ("time_per_token_s", "time per token, µs", 1e6),
    ("tokens", "tokens, millions", 1e-6),
    ("utilisation", "utilisation of the domains in the plan, %", 100.0),
    ("mean_iteration_s", "mean iteration, s", 1.0),
    ("egress_usd", "egress, USD", 1.0),
    ("usd_per_token", "egress, USD per 10⁹ tokens", 1e9),
    ("gpu_usd", "GPU time held, USD", 1.0),
    ("energy_j", "energy, kWh", 1 / 3.6e6),
    ("wan_bytes", "sent for training, GB", 1e-9),
    ("moved_bytes", "sent for moves, GB", 1e-9),
    ("moves", "moves", 1.0),
    ("turns", "turns of free knobs", 1.0),
    ("paused_s", "paused by moves, s", 1.0),
    ("lost_s", "without progress, s", 1.0),
    ("queued_s", "waited for first GPUs, s", 1.0),
    ("load_stability", "load stability, %", 100.0),
    ("decision_p99_s", "decision latency p99, ms", 1e3),
)
"""(key figure, words, factor)."""
INTERVAL = "95 % interval"
HOW = (
    f"Intervals: the run is cut into {judge.BLOCKS} blocks of equal length, drawn anew in stretches of "
    f"{judge.STRETCH}, {judge.RESAMPLES:,} times (bootstrap). They tell how much a figure hangs on single "
    "hours of this window, not how it differs from one world to the next: that is what twin bench is for."
)


def blocks(store: Path, run_id: str, end_s: float) -> Blocks:
    """What a run did in equal stretches of its `end_s` seconds."""
    return judge.blocks_of(RunReader(runs.folder(store, run_id)).events(), round(end_s * 1e9))


def intervals(store: Path, run_id: str, end_s: float, seed: int) -> dict[str, Verdict]:
    """Intervals of the key figures that are ratios over time, by the name of the figure."""
    done = blocks(store, run_id, end_s)
    length_s = end_s / len(done.tokens)
    whole = (
        ("time_per_token_s", done.tokens * 0 + length_s, done.tokens),
        ("utilisation", done.compute_s, done.active_s),
        ("usd_per_token", done.usd, done.tokens),
    )
    return {name: judge.ratio(name, part, of, seed) for name, part, of in whole}


def table(kpis: Kpis, found: dict[str, Verdict]) -> str:
    """Every key figure of the run (HTML)."""
    values = kpis.to_json()
    rows = "".join(_row(words, values[name], found.get(name), scale) for name, words, scale in FIGURES)
    heads = f'<tr><th>figure</th><th class="n">value</th><th class="n">{INTERVAL}</th></tr>'
    body = f'<div class="scroll snug"><table class="wrap">{heads}{rows}</table></div>'
    return f'<h2>Key figures</h2>{body}<p class="small-text soft">{HOW}</p>'


def _row(words: str, value: float | None, found: Verdict | None, scale: float) -> str:
    shown = "–" if value is None else plain(value * scale)
    between = "" if found is None or value is None else spread(found, scale)
    return f'<tr><td>{words}</td><td class="n">{shown}</td><td class="n">{between}</td></tr>'


def spread(found: Verdict, scale: float, sign: str = "") -> str:
    """An interval as people read it."""
    return " … ".join(
        "∞" if math.isinf(end) else plain(end * scale, 3, sign) for end in (found.low, found.high)
    )


def saved(store: Path, result: "Comparison | None") -> dict[str, Verdict]:
    """Share of the time per token that each run of a comparison saves against `static`, paired over blocks of
    time, by run; nothing without a run of `static`."""
    if result is None:
        return {}
    named = {row.policy: row.run_id for row in result.rows if row.kpis is not None and row.run_id}
    static = named.pop("static", None)
    if static is None:
        return {}
    base = blocks(store, static, result.wall_s)
    return {run: _saving(base, blocks(store, run, result.wall_s), result.seed) for run in named.values()}


def _saving(base: Blocks, other: Blocks, seed: int) -> Verdict:
    """1 - (time per token) / (static's): over equal times, 1 - (static's tokens) / (tokens)."""
    kept = judge.ratio("saved", base.tokens, other.tokens, seed)
    return Verdict("saved", 1 - kept.mean, 1 - kept.high, 1 - kept.low)
