"""The text of docs/results.md: what was asked for and reached, wins and losses, everything by group."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import results_tables as tables
from benchmarks.long_search import Better, Search, Start
from benchmarks.results_kpis import kpis, summary
from benchmarks.results_plots import PLOTS
from benchmarks.results_tables import JUDGED, Result, alone, saved, table
from benchmarks.results_text import PAGE
from policy.hippo.networks import checkpoint as checkpoints
from policy.hippo.agent.agent import shipped_checkpoint
from commands.show import bench_table
from replay.bench.plots import Written
from replay.bench.result import Chapter
from replay.metrics.formatting import percent

BEGIN = "<!-- written by `make results` -->"
END = "<!-- until here -->"
"""What stands around the tables that the README has from here."""


@dataclass(frozen=True)
class About:
    """How the page was made."""

    minutes: float
    jobs: int
    machine: str
    sources: str
    done: str


def losses(results: Sequence[Result]) -> str:
    """How `hippo` and `mpc` stand against everybody, world by world."""
    rows = []
    for result in alone(results):
        for base in result.chapter.policies:
            for policy in JUDGED:
                found = None if base == policy else result.chapter.against(policy, base)
                if found is not None and (base not in JUDGED or policy == JUDGED[0]):
                    counts = (found.wins, found.losses, found.ties)
                    rows.append((result.title, base, policy, saved(found), *counts, found.verdict))
    return table(("links", "against", "policy", "time saved", "wins", "losses", "ties", "verdict"), rows)


def tally(results: Sequence[Result]) -> str:
    """Over all sets of links: on how many somebody is better, equal or worse than everybody else."""
    rows = []
    for base in dict.fromkeys(policy for result in alone(results) for policy in result.chapter.policies):
        cells: list[str] = []
        for policy in JUDGED:
            met = [r.chapter.against(policy, base) for r in alone(results) if base in r.chapter.policies]
            verdicts = [found.verdict for found in met if found is not None and base != policy]
            counts = (verdicts.count(verdict) for verdict in ("better", "equal", "worse"))
            cells += [str(count) for count in counts] if verdicts else ["-"] * 3
        rows.append((base, *cells))
    heads = [f"{policy} {verdict}" for policy in JUDGED for verdict in ("better", "equal", "worse")]
    return table(("against", *heads), rows)


def generalisation(results: Sequence[Result]) -> str:
    """Where `hippo` was trained on the links, and where it knows neither links nor size."""
    data = checkpoints.load(shipped_checkpoint()).provenance["data"]
    seen, names = {digest for _, digest, _ in data}, {name for name, _, _ in data}
    rows = []
    for result in alone(results):
        chapter, found = result.chapter, result.chapter.against("hippo", "mpc")
        sources = {outcome.source for outcome in chapter.of("hippo") if outcome.source}
        known = (
            "yes"
            if sources & seen
            else "the scenario, on other links"
            if chapter.scenario.name in names
            else "no"
        )
        size = f"{len(chapter.scenario.domains)}, {chapter.scenario.model}"
        regret = percent(chapter.standing("hippo")["regret"])
        verdict = "-" if found is None else found.verdict
        rows.append((result.title, size, known, regret, saved(found), verdict))
    columns = ("where", "domains, model", "trained on it", "regret", "time saved against mpc", "verdict")
    return table(columns, rows)


def section(result: Result) -> str:
    """Everything about one group."""
    chapter = result.chapter
    standings = [chapter.standing(policy) for policy in chapter.policies]
    ran = sorted(
        (row for row in standings if row["worlds"]), key=lambda row: row["time_per_token_s"] or np.inf
    )
    parts = [
        f"### {result.title}{'' if result.measured else ' (synthetic links)'}",
        table(bench_table.STANDING, [bench_table.standing_row(row) for row in ran]),
        *(f"`{row['policy']}` has no plan: {row['problem']}." for row in standings if row["problem"]),
        folded("Against mpc and static", table(bench_table.AGAINST, bench_table.against_rows(standings))),
        bound_line(chapter),
    ]
    robust_rows = bench_table.robustness_rows(chapter)
    if robust_rows:
        levels = [f"{what} at +-{100 * clip:.0f} %" for clip in chapter.noisy for what in ("median", "worst")]
        shown = [row for row in robust_rows if set(row[1:]) != {"-"}]
        parts += ["Time per token lost to added noise:", table(("policy", *levels), shown)]
    return "\n\n".join([*parts, f"Links: {chapter.note}."])


def bound_line(chapter: Chapter) -> str:
    """What the bound is worth here."""
    found = chapter.worlds[0].bound
    if found is None:
        several = chapter.scenario.several_jobs
        return "No bound: it is not known for several jobs." if several else "No bound: nothing ran."
    kind = (
        "exact over plans at the job's schedule"
        if found.exact
        else f"over {found.candidates} candidate plans, not all"
    )
    gain = f"{100 * (found.tokens / found.static_tokens - 1):.1f} %" if found.static_tokens else "-"
    fixed = (
        f"the best of {found.enumerated:,} enumerated" if found.static_exact else "the best of the candidates"
    )
    line = f"Bound: {kind}; it trains {gain} more than the best fixed plan in hindsight ({fixed})."
    if found.synchronous_tokens < found.tokens:
        share = percent(1 - found.synchronous_tokens / found.tokens)
        line += f" Without local SGD the bound is {share} lower; regret of synchronous runs is against that."
    if found.ceiling_tokens is not None and not found.exact:
        above = percent(found.ceiling_tokens / found.synchronous_tokens - 1)
        line += f" Its ceiling: no sequence of plans with shared sizes is more than {above} above it."
    return line


def folded(title: str, text: str) -> str:
    """Text that is shown on a click."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def search_text(searches: Sequence[Search]) -> str:
    """What minutes of search found, and how far from it the judged start."""
    if not searches:
        return "Not run in this store: `python -m benchmarks.long_search --store .twin/results`."
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
    """Microseconds a token under the links of the moment, and of the whole window."""
    return f"{plan.us_per_token:.3f}", f"{plan.window_us:.3f}"


def readme(text: str, results: Sequence[Result]) -> str:
    """The README with the tables of the page between its two marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    shown = f"{tables.headline(results)}\n\n{summary(results)}"
    return f"{before}{BEGIN}\n{shown}\n{END}{after}"


def page(
    results: Sequence[Result],
    about: About,
    plots: Sequence[Written],
    searches: Sequence[Search],
) -> str:
    """The whole text; `plots` are files beside the page."""
    drawn = {f"{plot.plot}_plot": f"![{plot.shows}]({plot.path.name})\n\n{plot.shows}." for plot in plots}
    absent = {f"{what}_plot": "No run of this kind was made." for what in PLOTS}
    others = dict.fromkeys(p for r in alone(results) for p in r.chapter.policies if p not in JUDGED)
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
