"""Key figures of the run: the table with intervals of the means over time, and savings between runs."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from replay.log.run_log import RunReader
from replay.metrics import paired_comparison
from replay.metrics.kpis import Kpis
from replay.metrics.paired_comparison import BLOCKS, RESAMPLES, STRETCH, PairedDifference, TimeBlocks
from replay.report.drawing.formatting import NONE, plain, scaled
from replay.report.drawing.section import Section, section
from replay.report.run_data import RunData
from replay.store import run_index

if TYPE_CHECKING:  # only named here: comparing is the caller's work
    from replay.bench.comparison import Comparison

FIGURES = (
    ("time_per_token_s", "time per token, µs", 1e6),
    ("tokens", "tokens, millions", 1e-6),
    ("progress_tokens", "the same with the iteration under way at the end", 1e-6),
    ("utilisation", "utilisation of the domains in the plan, %", 100.0),
    ("tokens_per_s", "tokens per second", 1.0),
    ("mfu", "MFU of the GPUs held, %", 100.0),
    ("mean_iteration_s", "mean iteration, s", 1.0),
    ("egress_usd", "egress, USD", 1.0),
    ("usd_per_token", "egress, USD per 10⁹ tokens", 1e9),
    ("gpu_usd", "GPU time held, USD", 1.0),
    ("rent_usd_per_token", "GPU time held, USD per 10⁹ tokens", 1e9),
    ("total_usd", "GPU time and egress, USD", 1.0),
    ("total_usd_per_token", "GPU time and egress, USD per 10⁹ tokens", 1e9),
    ("energy_j", "energy, kWh", 1 / 3.6e6),
    ("wan_bytes", "sent for training, GB", 1e-9),
    ("moved_bytes", "sent for moves, GB", 1e-9),
    ("moves", "moves", 1.0),
    ("turns", "changes of relays or warm-up depth", 1.0),
    ("paused_s", "paused by moves, s", 1.0),
    ("lost_s", "without progress, s", 1.0),
    ("queued_s", "waited for first GPUs, s", 1.0),
    ("load_stability", "load stability, %", 100.0),
    ("decision_p99_s", "decision latency p99, ms", 1e3),
)
"""(key figure, name on the page, factor)."""
INTERVAL = "95 % interval"
METHOD = (
    f"Intervals: bootstrap over {BLOCKS} time blocks of equal length, resampled {RESAMPLES:,} times in "
    f"stretches of {STRETCH}. They show how much a figure depends on single hours of this window, not how it "
    "differs between worlds; twin bench shows that."
)


def blocks(store: Path, run_id: str, end_s: float) -> TimeBlocks:
    """Work of a run in equal stretches of its `end_s` seconds."""
    events = RunReader(run_index.folder(store, run_id)).events()
    return paired_comparison.blocks_of(events, round(end_s * 1e9))


def intervals(store: Path, run_id: str, end_s: float, seed: int) -> dict[str, PairedDifference]:
    """Intervals of the key figures that are ratios over time, by the name of the figure."""
    done = blocks(store, run_id, end_s)
    length_s = end_s / len(done.tokens)
    whole = (
        ("time_per_token_s", done.tokens * 0 + length_s, done.tokens),
        ("utilisation", done.compute_s, done.active_s),
        ("usd_per_token", done.usd, done.tokens),
    )
    return {name: paired_comparison.ratio(name, part, of, seed) for name, part, of in whole}


def table(store: Path, run_id: str, run: RunData, kpis: Kpis) -> Section:
    """Every key figure of the run, in two columns."""
    values, found = kpis.to_json(), intervals(store, run_id, run.end_s, run.header["seed"])
    rows = [
        (text, scaled(values[name], factor), _interval(values[name], found.get(name), factor))
        for name, text, factor in FIGURES
    ]
    if kpis.unpriced:
        rows.append(("GPUs without a price, not in the totals", ", ".join(kpis.unpriced), ""))
    half = (len(rows) + 1) // 2
    titles = ("figure", "value", INTERVAL)
    return section(
        "kpi_table", "Key figures", titles=titles, halves=(rows[:half], rows[half:]), method=METHOD
    )


def _interval(value: float | None, found: PairedDifference | None, factor: float) -> str:
    return "" if found is None or value is None else spread(found, factor)


def spread(found: PairedDifference, factor: float, sign: str = "") -> str:
    """An interval as text, its ends times `factor`; of a single value there is none."""
    if not found.estimated:
        return NONE
    ends = (found.low, found.high)
    return " … ".join("∞" if math.isinf(end) else plain(end * factor, 3, sign) for end in ends)


def saved(store: Path, result: "Comparison | None") -> dict[str, PairedDifference]:
    """Share of the time per token that each run of a comparison saves against `static`, paired over blocks of
    time, by run; nothing without a run of `static`."""
    if result is None:
        return {}
    run_ids = {row.policy: row.run_id for row in result.rows if row.kpis is not None and row.run_id}
    static = run_ids.pop("static", None)
    if static is None:
        return {}
    base = blocks(store, static, result.wall_s)
    return {run: saving(base, blocks(store, run, result.wall_s), result.seed) for run in run_ids.values()}


def saving(base: TimeBlocks, other: TimeBlocks, seed: int) -> PairedDifference:
    """Returns 1 - (time per token) / (the base's): over equal times, 1 - (the base's tokens) / (tokens)."""
    kept = paired_comparison.ratio("saved", base.tokens, other.tokens, seed)
    return PairedDifference("saved", 1 - kept.mean, 1 - kept.high, 1 - kept.low)
