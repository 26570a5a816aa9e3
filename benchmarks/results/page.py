"""The text of docs/measured/results.md: what was asked for and reached, wins and losses, everything by
group."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.policy.long_search import Better, Search, Start
from benchmarks.results import tables as tables
from benchmarks.results.kpis import kpis, summary
from benchmarks.results.plots import PLOTS
from benchmarks.results.tables import JUDGED, Result, alone, saved, table
from benchmarks.results.text import PAGE
from commands.show import bench_table
from policy.hippo.agent.agent import shipped_checkpoint
from policy.hippo.networks import checkpoint
from replay.bench.plots import Written
from replay.bench.result import ScenarioResult
from replay.metrics.formatting import percent


@dataclass(frozen=True)
class About:
    """Time, machine and code behind the page."""

    minutes: float
    jobs: int
    machine: str
    sources: str
    done: str


def losses(results: Sequence[Result]) -> str:
    """Returns wins and losses of `hippo` and `mpc` against every policy, world by world."""
    rows = []
    for result in alone(results):
        for base in result.bench.policies:
            for policy in JUDGED:
                found = None if base == policy else result.bench.against(policy, base)
                if found is not None and (base not in JUDGED or policy == JUDGED[0]):
                    counts = (found.wins, found.losses, found.ties)
                    rows.append((result.title, base, policy, saved(found), *counts, found.verdict))
    return table(("links", "against", "policy", "time saved", "wins", "losses", "ties", "verdict"), rows)


def tally(results: Sequence[Result]) -> str:
    """Returns on how many sets of links `hippo` and `mpc` are better, equal or worse than each policy."""
    rows = []
    for base in dict.fromkeys(policy for result in alone(results) for policy in result.bench.policies):
        cells: list[str] = []
        for policy in JUDGED:
            met = [r.bench.against(policy, base) for r in alone(results) if base in r.bench.policies]
            verdicts = [found.verdict for found in met if found is not None and base != policy]
            counts = (verdicts.count(verdict) for verdict in ("better", "equal", "worse"))
            cells += [str(count) for count in counts] if verdicts else ["-"] * 3
        rows.append((base, *cells))
    heads = [f"{policy} {verdict}" for policy in JUDGED for verdict in ("better", "equal", "worse")]
    return table(("against", *heads), rows)


def generalisation(results: Sequence[Result]) -> str:
    """Returns a row a set of links: whether `hippo` was trained on it, its regret and the time it saves."""
    data = checkpoint.load(shipped_checkpoint()).provenance["data"]
    seen, names = {digest for _, digest, _ in data}, {name for name, _, _ in data}
    rows = []
    for result in alone(results):
        bench, found = result.bench, result.bench.against("hippo", "mpc")
        sources = {outcome.source for outcome in bench.of("hippo") if outcome.source}
        known = (
            "yes"
            if sources & seen
            else "the scenario, on other links"
            if bench.scenario.name in names
            else "no"
        )
        size = f"{len(bench.scenario.domains)}, {bench.scenario.model}"
        regret = percent(bench.policy_summary("hippo")["regret"])
        verdict = "-" if found is None else found.verdict
        rows.append((result.title, size, known, regret, saved(found), verdict))
    columns = ("where", "domains, model", "trained on it", "regret", "time saved against mpc", "verdict")
    return table(columns, rows)


def section(result: Result) -> str:
    """Returns the section of one group."""
    bench = result.bench
    summaries = [bench.policy_summary(policy) for policy in bench.policies]
    ran = sorted(
        (row for row in summaries if row["worlds"]), key=lambda row: row["time_per_token_s"] or np.inf
    )
    parts = [
        f"### {result.title}{'' if result.measured else ' (synthetic links)'}",
        table(bench_table.SUMMARY_COLUMNS, [bench_table.summary_row(row) for row in ran]),
        *(f"`{row['policy']}` has no plan: {row['problem']}." for row in summaries if row["problem"]),
        folded(
            "Against mpc and static", table(bench_table.PAIRED_COLUMNS, bench_table.paired_rows(summaries))
        ),
        bound_line(bench),
    ]
    robust_rows = bench_table.robustness_rows(bench)
    if robust_rows:
        levels = [f"{what} at +-{100 * clip:.0f} %" for clip in bench.noisy for what in ("median", "worst")]
        shown = [row for row in robust_rows if set(row[1:]) != {"-"}]
        parts += ["Time per token lost to added noise:", table(("policy", *levels), shown)]
    return "\n\n".join([*parts, f"Links: {bench.note}."])


def bound_line(bench: ScenarioResult) -> str:
    """Returns a sentence on the quality of the bound."""
    found = bench.worlds[0].bound
    if found is None:
        several = bench.scenario.several_jobs
        return "No bound: it is not known for several jobs." if several else "No bound: nothing ran."
    kind = (
        "exact over plans at the job's schedule"
        if found.exact
        else f"over {found.candidates} candidate plans, not all"
    )
    gain = f"{100 * (found.tokens / found.kept_tokens - 1):.1f} %" if found.kept_tokens else "-"
    knobs = f"{100 * (found.kept_tokens / found.static_tokens - 1):.1f} %" if found.static_tokens else "-"
    fixed = (
        f"the best of {found.enumerated:,} enumerated" if found.static_exact else "the best of the candidates"
    )
    line = (
        f"Bound: {kind}; it trains {gain} more than the best plan that is never left and turns its "
        f"knobs, which trains {knobs} more than the best plan with direct links ({fixed})."
    )
    if found.synchronous_tokens < found.tokens:
        share = percent(1 - found.synchronous_tokens / found.tokens)
        line += f" Without local SGD the bound is {share} lower; regret of synchronous runs is against that."
    if found.ceiling_tokens is not None and not found.exact:
        above = percent(found.ceiling_tokens / found.synchronous_tokens - 1)
        line += f" Its ceiling: no sequence of plans with shared sizes is more than {above} above it."
    return line


def folded(title: str, text: str) -> str:
    """Returns Markdown that opens on a click."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def search_text(searches: Sequence[Search]) -> str:
    """Returns the best plans of long searches, and the distance of the first plans of `hippo` and `mpc`."""
    if not searches:
        return "Not run in this store: `python -m benchmarks.policy.long_search --store .twin/results`."
    parts = []
    for search in searches:
        first, last = search.found[0], search.found[-1]
        rows: list[tuple[object, ...]] = [
            ("one search", f"{first.at_s:.2f}", *priced(first), ""),
            (f"{search.searches} searches", f"{search.seconds:.0f}", *priced(last), ""),
        ]
        for start in search.starts:
            over, took = tables.signed(search.over(start)), f"{start.after_s:.2f}"
            rows.append((f"`{start.policy}` starts with", took, *priced(start), over))
        heads = (
            search.scenario, "after, s", "us/token", "us/token if it ran to the end", "longer than the best",
        )  # fmt: skip
        parts += [table(heads, rows), f"Sources {search.sources}."]
    return "\n\n".join(parts)


def priced(plan: Better | Start) -> tuple[str, str]:
    """Returns microseconds a token under the links of the moment, and of the whole window."""
    return f"{plan.us_per_token:.3f}", f"{plan.window_us:.3f}"


def page(
    results: Sequence[Result], about: About, plots: Sequence[Written], searches: Sequence[Search]
) -> str:
    """Returns the whole text; `plots` are files in the folder of the page."""
    drawn = {f"{plot.plot}_plot": f"![{plot.shows}]({plot.path.name})\n\n{plot.shows}." for plot in plots}
    absent = {f"{what}_plot": "No run of this kind was made." for what in PLOTS}
    others = dict.fromkeys(p for r in alone(results) for p in r.bench.policies if p not in JUDGED)
    return PAGE.format(
        minutes=about.minutes,
        done=about.done,
        machine=about.machine,
        sources=about.sources,
        jobs=about.jobs,
        load_now=os.getloadavg()[0],
        others=len(others),
        headline=tables.headline(results),
        summary=summary(results),
        kpis=kpis(results),
        times=tables.times(results),
        utilisation=tables.utilisation(results),
        money=tables.money(results),
        fronts=tables.fronts(results),
        load=tables.load(results),
        delays=tables.delays(results),
        search=search_text(searches),
        general=generalisation(results),
        tally=tally(results),
        losses=folded("Each pair on each set of links", losses(results)),
        sections="\n\n".join(section(result) for result in results),
        **{**absent, **drawn},
    )
