"""The text of docs/results.md: what was asked for and reached, wins and losses, everything by group."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from policy.hippo import checkpoint as checkpoints
from policy.hippo.agent import shipped_checkpoint
from replay import bench_table
from replay.bench_result import Chapter
from replay.bench_stats import SEED
from replay.judge import Verdict, bootstrap
from replay.kpis import Kpis
from replay.words import milliseconds, percent

JUDGED = ("hippo", "mpc")
Figure = Callable[[Kpis], float | None]


@dataclass(frozen=True)
class Result:
    """One group of runs: its chapter, and how many seeds are whole."""

    title: str
    asked: bool
    measured: bool
    chapter: Chapter
    seeds: int


@dataclass(frozen=True)
class About:
    """How the page was made."""

    minutes: float
    jobs: int
    machine: str
    sources: str
    done: str


ASKED = (
    ("Pareto coverage", ">= 85 %", ">= 97 %, hypervolume >= 0.98"),
    ("decision p99, both levels", "<= 1 s + 100 ms", "<= 6 ms at K = 8"),
    ("time per token", "-25 %", "-25 % vs static, never worse than mpc, regret <= 2 %"),
    ("utilisation", "+35 %", "+35 % vs static and single where the bound allows"),
    ("egress per token", "-30 %", "-30 % at no loss of time"),
    ("loss at +-30 % WAN", "< 10 %", "< 3 % beyond the bound's"),
    ("coordination, largest", "<= 2 s", "<= 50 ms"),
    ("load stability, worst", ">= 99 %", ">= 99.9 %"),
)


def reached(chapter: Chapter, policy: str) -> list[str]:
    """What one policy reached of each row of `ASKED`."""
    if not any(outcome.kpis for outcome in chapter.of(policy)):
        return ["did not run"] * len(ASKED)
    standing = chapter.standing(policy)
    faster = [(b, change(chapter, policy, b, lambda k: k.time_per_token_s)) for b in ("static", "mpc")]
    used = [(b, change(chapter, policy, b, lambda k: k.utilisation)) for b in ("static", "single")]
    return [
        front(chapter, policy),
        latency(chapter, policy),
        "; ".join(f"{told(v)} vs {b}" for b, v in faster if b != policy)
        + f"; regret {percent(standing['regret'])}",
        "; ".join(f"{told(v)} vs {b}" for b, v in used) + possible(chapter, policy),
        f"{told(change(chapter, policy, 'static', lambda k: k.usd_per_token))} vs static",
        robust(chapter, policy),
        f"{milliseconds(standing['coordination_max_s'])} ms",
        f"{percent(standing['load_stability'])} (the job alone)",
    ]


def change(chapter: Chapter, policy: str, base: str, figure: Figure) -> Verdict | None:
    """Relative change of a figure against another policy, paired by world, with its interval."""
    ratios = []
    for own, other in zip(chapter.of(policy), chapter.of(base), strict=True):
        values = [figure(o.kpis) if o.kpis else None for o in (own, other)]
        if values[0] is None or not values[1]:
            return None
        ratios.append(values[0] / values[1] - 1)
    return bootstrap("change", np.array(ratios), SEED)


def told(verdict: Verdict | None) -> str:
    """A relative change in per cent with its interval."""
    if verdict is None:
        return "-"
    return f"{100 * verdict.mean:+.1f} % [{100 * verdict.low:+.1f}, {100 * verdict.high:+.1f}]"


def latency(chapter: Chapter, policy: str) -> str:
    """Median and 99th percentile of the decisions, those of the slowest run."""
    kpis = [outcome.kpis for outcome in chapter.of(policy) if outcome.kpis]
    middle = max((k.decision_p50_s for k in kpis if k.decision_p50_s is not None), default=None)
    high = max((k.decision_p99_s for k in kpis if k.decision_p99_s is not None), default=None)
    return f"median {milliseconds(middle)} ms, p99 {milliseconds(high)} ms"


def front(chapter: Chapter, policy: str) -> str:
    """Coverage and hypervolume."""
    reaches = {} if chapter.front is None else {reach.policy: reach for reach in chapter.front.reaches}
    if policy not in reaches:
        return "-"
    return f"{percent(reaches[policy].coverage)}, hypervolume {reaches[policy].volume:.3f}"


def possible(chapter: Chapter, policy: str) -> str:
    """Utilisation beside that of the bound's path."""
    bounds = [entry.bound.utilisation for entry in chapter.worlds if entry.bound]
    own = chapter.standing(policy)["utilisation"]
    return f" ({percent(own)}; the bound's path {percent(float(np.mean(bounds)))})" if bounds else ""


def robust(chapter: Chapter, policy: str) -> str:
    """Loss at 30 %, and the bound's."""
    rows = {row["policy"]: row for row in chapter.robustness() if row["clip"] == 0.3}
    if policy not in rows or "bound" not in rows:
        return "-"
    own, best = rows[policy], rows["bound"]
    return (
        f"median {percent(own['median'])}, worst {percent(own['worst'])} "
        f"(bound: {percent(best['median'])}, {percent(best['worst'])})"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def kpi_table(results: Sequence[Result], policy: str) -> str:
    """Asked, aimed at, and reached in every group that counts."""
    chosen = [result for result in results if result.asked] or list(results)
    columns = [reached(result.chapter, policy) for result in chosen]
    rows = [(*asked, *(column[k] for column in columns)) for k, asked in enumerate(ASKED)]
    heads = (f"{r.title}, {r.seeds} seed{'s' if r.seeds > 1 else ''}" for r in chosen)
    return table(("KPI", "asked", "aimed at", *heads), rows)


def losses(results: Sequence[Result]) -> str:
    """How `hippo` and `mpc` stand against everybody, world by world."""
    rows = []
    for result in results:
        for policy in JUDGED:
            for base in result.chapter.policies:
                found = None if base == policy else result.chapter.against(policy, base)
                if found is not None and (base not in JUDGED or policy == JUDGED[0]):
                    saved = "-" if found.mean is None else f"{100 * found.mean.mean:+.1f} %"
                    wins = f"{found.wins}/{found.losses}/{found.ties}"
                    rows.append((policy, base, result.title, saved, wins, found.verdict))
    return table(("policy", "against", "where", "time saved", "wins/losses/ties", "verdict"), rows)


def generalisation(results: Sequence[Result]) -> str:
    """Where `hippo` was trained on the links, and where it knows neither links nor size."""
    data = checkpoints.load(shipped_checkpoint()).provenance["data"]
    seen, names = {digest for _, digest, _ in data}, {name for name, _, _ in data}
    rows = []
    for result in results:
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
        saved = "-" if found is None or found.mean is None else f"{100 * found.mean.mean:+.1f} %"
        verdict = "-" if found is None else found.verdict
        rows.append((result.title, size, known, regret, saved, verdict))
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
        "Against `mpc` and `static`:",
        table(bench_table.AGAINST, bench_table.against_rows(standings)),
        bound_line(chapter),
    ]
    robust_rows = bench_table.robustness_rows(chapter)
    if robust_rows:
        levels = [f"{what} at +-{100 * clip:.0f} %" for clip in chapter.noisy for what in ("median", "worst")]
        shown = [row for row in robust_rows if set(row[1:]) != {"-"}]
        parts += ["Time per token lost to added noise:", table(("policy", *levels), shown)]
    if chapter.front is not None:
        rows = [(r.policy, r.points, percent(r.coverage), f"{r.volume:.3f}") for r in chapter.front.reaches]
        parts += [
            "Front of time, money and utilisation over a grid of weights, first seed:",
            table(("policy", "points", "coverage of the front", "hypervolume"), rows),
        ]
    return "\n\n".join([*parts, f"Links: {chapter.note}."])


def bound_line(chapter: Chapter) -> str:
    """What the bound is worth here."""
    found = chapter.worlds[0].bound
    if found is None:
        return "No bound: nothing ran."
    kind = "exact over every plan" if found.exact else f"over {found.candidates} candidate plans, not all"
    gain = f"{100 * (found.tokens / found.static_tokens - 1):.1f} %" if found.static_tokens else "-"
    fixed = (
        f"the best of {found.enumerated:,} enumerated" if found.static_exact else "the best of the candidates"
    )
    line = f"Bound: {kind}; it trains {gain} more than the best fixed plan in hindsight ({fixed})."
    if found.synchronous_tokens < found.tokens:
        share = percent(1 - found.synchronous_tokens / found.tokens)
        line += f" Without local SGD the bound is {share} lower; regret of synchronous runs is against that."
    return line


PAGE = """# Results: policies in the same worlds, under the bound

Generated by `python -m benchmarks.results --minutes {minutes:g}`: {done}, on {machine}, sources {sources}.
Test windows only: the last 30 % of each trace. A seed changes the noise of the telemetry and, where links are
perturbed (`storm`, added noise), the links; `hippo` runs a checkpoint from a training of its own with each,
first the one that ships. Policies other than `static`, `single`, `mpc` and `hippo` have one seed.

How to read it: *time saved* is 1 - time per token / that of the other policy in the same world, moving and
waiting included, with the 95 % bootstrap interval over the worlds. *Middle half* is the interquartile mean.
Worlds without perturbation share one trace, so the *interval over time* draws the hours of the window again;
it alone decides what is called better or worse. *Regret* is the share of the clairvoyant bound's tokens that
was not trained; `diloco` trains by local SGD and is held to a bound of its own. Decision times are wall times
of processes that shared this machine ({jobs} at once, load {load:.1f}), and the first decision of a process,
which compiles and loads, is among them: they show the order of magnitude, not what a running controller
needs.

## What was asked, and what was reached
{kpis}

Peak memory: see fidelity.md.

{plots}

## Generalisation

The shipped network was trained on the links that say so; everything else is new to it.

{general}

## Wins and losses
{losses}

## In full

{sections}
"""


def page(results: Sequence[Result], about: About, plots: Sequence[tuple[str, str]]) -> str:
    """The whole text; `plots` are file names beside the page and what they show."""
    return PAGE.format(
        minutes=about.minutes,
        done=about.done,
        machine=about.machine,
        sources=about.sources,
        jobs=about.jobs,
        load=os.getloadavg()[0],
        kpis="".join(f"\n`{policy}`:\n\n{kpi_table(results, policy)}\n" for policy in JUDGED),
        plots="\n\n".join(f"![{text}]({name})\n\n{text}" for name, text in plots),
        general=generalisation(results),
        losses=losses(results),
        sections="\n\n".join(section(result) for result in results),
    )
