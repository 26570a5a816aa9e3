"""Runs the policies over the synthetic and, where they lie beside the repository, the measured traces, and
writes docs/results.md.

    python benchmarks/results.py [--seeds 3] [--store .twin/results] [--out docs/results.md]

The store is kept: interrupted, or with more seeds, the next call runs what is missing. Ten to fifteen minutes
on two idle cores with three seeds, most of it in `mpc` and its fronts (`--no-pareto` leaves those out).
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != HERE)]

from ingest import resources  # noqa: E402
from ingest.durable import replace  # noqa: E402
from ingest.ingestion import ingest  # noqa: E402
from replay import bench_table, options  # noqa: E402
from replay.bench import bench  # noqa: E402
from replay.bench_result import Bench, Chapter  # noqa: E402
from replay.bench_runs import cores  # noqa: E402
from replay.bench_stats import SEED  # noqa: E402
from replay.header import code_version  # noqa: E402
from replay.judge import Verdict, bootstrap  # noqa: E402
from replay.kpis import Kpis  # noqa: E402
from replay.show import milliseconds, percent  # noqa: E402

MEASURED = HERE.parents[1] / "shared" / "traces" / "wan" / "cloudpilot-iperf3"
POLICIES = ("static", "single", "mpc", "hippo")
JUDGED = ("hippo", "mpc")


@dataclass(frozen=True)
class Group:
    """One scenario on one data set. `deep` ones also get noise and fronts: their runs are short."""

    scenario: str
    dataset: str
    measured: bool = False
    deep: bool = False

    @property
    def title(self) -> str:
        """Heading of its section and column."""
        return f"{self.scenario} on {self.dataset}"


GROUPS = (
    Group("tri-7b", "synthetic-tri", deep=True),
    Group("quad-70b", "synthetic-quad"),
    Group("quad-70b", "cloudpilot-iperf3", measured=True),
    Group("storm", "cloudpilot-iperf3", measured=True),
)


def played(group: Group, given: argparse.Namespace) -> Bench:
    """The benchmark of a group, out of the store as far as it is there."""
    return bench(
        given.store,
        given.policies.split(","),
        [options.scenario(group.scenario)],
        seeds=given.seeds,
        noises=options.parse_noises(given.perturb) if group.deep and given.perturb else (),
        pareto=group.deep and given.pareto,
        dataset=group.dataset,
        jobs=given.jobs,
    )


Figure = Callable[[Kpis], float | None]


def change(chapter: Chapter, policy: str, base: str, figure: Figure) -> Verdict | None:
    """Relative change of a figure against another policy, paired by world, with its interval."""
    ratios = []
    for own, other in zip(chapter.of(policy), chapter.of(base), strict=True):
        values = [figure(o.kpis) if o.kpis else None for o in (own, other)]
        if values[0] is None or not values[1]:
            return None
        ratios.append(values[0] / values[1] - 1)
    return bootstrap("change", np.array(ratios), SEED)


def told(verdict: Verdict | None, sign: float = 1.0) -> str:
    """A relative change in per cent with its interval."""
    if verdict is None:
        return "-"
    low, high = sorted((sign * verdict.low, sign * verdict.high))
    return f"{100 * sign * verdict.mean:+.1f} % [{100 * low:+.1f}, {100 * high:+.1f}]"


def reached(chapter: Chapter, policy: str) -> list[str]:
    """What one policy reached of each row of `ASKED`."""
    if policy not in chapter.policies or not any(o.kpis for o in chapter.of(policy)):
        return ["did not run"] * len(ASKED)
    standing = chapter.standing(policy)
    pairs = [(b, change(chapter, policy, b, seconds)) for b in ("static", "mpc") if b in chapter.policies]
    faster = "; ".join(f"{told(v)} vs {b}" for b, v in pairs if b != policy)
    used = [(b, change(chapter, policy, b, busy)) for b in ("static", "single") if b in chapter.policies]
    return [
        front(chapter, policy),
        latency(chapter, policy),
        f"{faster}; regret {percent(standing['regret'])}",
        "; ".join(f"{told(v)} vs {b}" for b, v in used) + possible(chapter, policy),
        f"{told(change(chapter, policy, 'static', egress))} vs static"
        if "static" in chapter.policies
        else "-",
        robust(chapter, policy),
        f"{milliseconds(standing['coordination_max_s'])} ms",
        f"{percent(standing['load_stability'])} (the job alone; other jobs' load is not in this table)",
        "see fidelity.md",
    ]


ASKED = (
    ("Pareto coverage", ">= 85 %", ">= 97 %, hypervolume >= 0.98"),
    ("decision p99, both levels", "<= 1 s + 100 ms", "<= 6 ms"),
    ("time per token", "-25 %", "-25 % vs static, never worse than mpc, regret <= 2 %"),
    ("utilisation", "+35 %", "+35 % vs static and single where the bound allows"),
    ("egress per token", "-30 %", "-30 % at no loss of time"),
    ("loss at +-30 % WAN", "< 10 %", "< 3 % beyond the bound's"),
    ("coordination, largest", "<= 2 s", "<= 50 ms"),
    ("load stability, worst", ">= 99 %", ">= 99.9 %"),
    ("peak memory", "error < 10 %", "<= 6 % mean"),
)


def seconds(kpis: Kpis) -> float | None:
    """Time per token."""
    return kpis.time_per_token_s


def busy(kpis: Kpis) -> float | None:
    """Utilisation of active domains."""
    return kpis.utilisation


def egress(kpis: Kpis) -> float | None:
    """Egress per token."""
    return kpis.usd_per_token


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


def kpi_table(results: Sequence[tuple[Group, Bench]], policy: str) -> str:
    """Asked, aimed at, and reached in every group."""
    columns = [reached(result.chapters[0], policy) for _, result in results]
    rows = [(*asked, *(column[k] for column in columns)) for k, asked in enumerate(ASKED)]
    return table(("KPI", "asked", "aimed at", *(group.title for group, _ in results)), rows)


def section(group: Group, chapter: Chapter) -> str:
    """Everything about one group."""
    standings = [chapter.standing(policy) for policy in chapter.policies]
    parts = [
        f"### {group.title}",
        table(bench_table.STANDING, [bench_table.standing_row(row) for row in standings if row["worlds"]]),
        *(f"`{row['policy']}` did not run: {row['problem']}" for row in standings if row["problem"]),
        table(bench_table.AGAINST, bench_table.against_rows(standings)),
        bound_line(chapter),
    ]
    robust_rows = bench_table.robustness_rows(chapter)
    if robust_rows:
        levels = [f"{what} at +-{100 * clip:.0f} %" for clip in chapter.noisy for what in ("median", "worst")]
        parts += ["Time per token lost to added noise:", table(("policy", *levels), robust_rows)]
    if chapter.front is not None:
        rows = [(r.policy, r.points, percent(r.coverage), f"{r.volume:.3f}") for r in chapter.front.reaches]
        parts.append(table(("policy", "points", "coverage of the front", "hypervolume"), rows))
    return "\n\n".join([*parts, f"Links: {chapter.note}."])


def bound_line(chapter: Chapter) -> str:
    """What the bound is worth here."""
    found = chapter.worlds[0].bound
    if found is None:
        return "No bound: nothing ran."
    kind = "exact over every plan" if found.exact else f"over {found.candidates} candidate plans, not all"
    gain = f"{100 * (found.tokens / found.static_tokens - 1):.1f} %" if found.static_tokens else "-"
    return f"Bound: {kind}; it trains {gain} more than the best fixed plan in hindsight."


def losses(results: Sequence[tuple[Group, Bench]]) -> str:
    """Wins and losses of everybody, in all groups."""
    rows = [
        (policy, v.base, group.title, v.wins, v.losses, v.ties, v.verdict)
        for policy in results[0][1].policies
        for group, result in results
        for v in result.chapters[0].versus(policy)
    ]
    return table(("policy", "against", "where", "wins", "losses", "ties", "verdict"), rows)


PAGE = """# Results: policies in the same worlds, under the bound

Generated by `python benchmarks/results.py` ({command}) on {machine}, sources {sources}. Test windows only:
the last 30 % of each trace. A seed changes the noise of the telemetry and, where links are perturbed, the
links; it does not retrain anything: `hippo` is the one checkpoint that ships. {missing}

How to read it: *time saved* is 1 - time per token / that of the other policy in the same world, moving and
waiting included, with the 95 % bootstrap interval over the worlds; with {seeds} worlds that is little more
than their range. *Middle half* is the interquartile mean. Worlds without perturbation share one trace, so the
*interval over time* draws the hours of the window again; it alone decides what is called better or worse.
*Regret* is the share of the clairvoyant bound's tokens that was not trained. Decision times are wall times
of processes that shared this machine ({jobs} at once, load {load:.1f}), and the first decision of a process,
which compiles and loads, is among them: they show the order of magnitude, not what a running controller
needs.

## What was asked, and what was reached
{kpis}

## Wins and losses
{losses}

## In full

{sections}
"""


def left_out(chosen: Sequence[Group], measured: bool) -> str:
    """Which groups the page lacks, and why."""
    missing = [group.title for group in GROUPS if group not in chosen]
    why = "to save time" if measured else "the measured traces were not at hand, or to save time"
    return f"Left out ({why}): {', '.join(missing)}." if missing else ""


def page(given: argparse.Namespace) -> str:
    """The whole text."""
    measured = MEASURED.is_dir()
    ingest([resources.traces(), *([MEASURED] if measured else [])], given.store)
    chosen = [
        g
        for g in GROUPS
        if (measured or not g.measured) and any(part in g.title for part in given.only.split(","))
    ]
    results = []
    for group in chosen:
        print(group.title, file=sys.stderr, flush=True)
        results.append((group, played(group, given)))
    kpis = "".join(
        f"\n`{policy}`:\n\n{kpi_table(results, policy)}\n"
        for policy in JUDGED
        if policy in given.policies.split(",")
    )
    return PAGE.format(
        command=f"{given.seeds} seeds; on tri-7b also noise ({given.perturb or 'not this time'}) and fronts "
        f"({'a grid of weights' if given.pareto else 'not this time'})",
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        sources=code_version()["sources"][:12],
        missing=left_out(chosen, measured),
        seeds=given.seeds,
        jobs=given.jobs,
        load=os.getloadavg()[0],
        kpis=kpis,
        losses=losses(results),
        sections="\n\n".join(section(group, result.chapters[0]) for group, result in results),
    )


def main() -> None:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--perturb", default="0.3", help="Levels of noise, on tri-7b; empty for none.")
    parser.add_argument("--pareto", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--only", default="", help="Groups with one of these, A,B, in their titles.")
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--store", type=Path, default=HERE.parent / ".twin" / "results")
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "results.md")
    given = parser.parse_args()
    replace(given.out, page(given).encode())


if __name__ == "__main__":
    main()
