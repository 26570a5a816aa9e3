"""The tables of docs/measured/results.md that answer what was asked for: one fact a cell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from replay.bench.load import LoadStability
from replay.bench.paired_statistics import Versus
from replay.bench.result import Json, ScenarioResult
from replay.metrics.formatting import milliseconds, per_billion, per_token, percent
from replay.metrics.kpis import Kpis
from replay.metrics.paired_comparison import PairedDifference, student

JUDGED = ("hippo", "mpc")
Figure = Callable[[Kpis], float | None]


@dataclass(frozen=True)
class Result:
    """Results of one group of runs, and the number of its complete seeds."""

    title: str
    asked: bool
    measured: bool
    bench: ScenarioResult
    seeds: int

    @property
    def summaries(self) -> dict[str, Json]:
        """Mean figures of every policy that ran."""
        found = (self.bench.policy_summary(policy) for policy in self.bench.policies)
        return {row["policy"]: row for row in found if row["worlds"]}


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a Markdown table; columns after the first are aligned right."""
    if not rows:
        return "No run of this kind was made."
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def alone(results: Sequence[Result]) -> list[Result]:
    """Returns the results with one job, which have a bound and a time per token."""
    return [result for result in results if not result.bench.scenario.several_jobs]


def asked(results: Sequence[Result]) -> list[Result]:
    """Returns the results that were asked for; all where none of them ran."""
    return [result for result in alone(results) if result.asked] or alone(results)


def signed(share: float | None) -> str:
    """A relative change in per cent."""
    return "-" if share is None else f"{100 * share:+.1f} %"


def interval(verdict: PairedDifference | None) -> str:
    """The interval of a relative change in per cent."""
    return "-" if verdict is None else f"{100 * verdict.low:+.1f} to {100 * verdict.high:+.1f} %"


def saved(found: Versus | None) -> str:
    """Time saved against the other policy."""
    return "-" if found is None or found.mean is None else signed(found.mean.mean)


def change(bench: ScenarioResult, policy: str, base: str, figure: Figure) -> PairedDifference | None:
    """Relative change of a figure against another policy, paired by world, with its interval."""
    if base not in bench.policies or policy not in bench.policies:
        return None
    ratios = []
    for own, other in zip(bench.of(policy), bench.of(base), strict=True):
        values = [figure(o.kpis) if o.kpis else None for o in (own, other)]
        if values[0] is None or not values[1]:
            return None
        ratios.append(values[0] / values[1] - 1)
    return student("change", np.array(ratios))


def middle(verdict: PairedDifference | None) -> float | None:
    """The mean of a change."""
    return None if verdict is None else verdict.mean


def rival(result: Result) -> str | None:
    """Returns the fastest policy other than `hippo`, `mpc` and those that train by local SGD."""
    local = {p for p in result.bench.policies if any(o.local_sgd for o in result.bench.of(p))}
    others = {p: row["time_per_token_s"] for p, row in result.summaries.items() if p not in (*JUDGED, *local)}
    known = {p: value for p, value in others.items() if value is not None}
    return min(known, key=known.__getitem__, default=None)


def headline(results: Sequence[Result]) -> str:
    """Returns a row a set of links: `hippo` against static, mpc and the best other policy."""
    rows = []
    for result in alone(results):
        bench, best = result.bench, rival(result)
        against = bench.against("hippo", "mpc")
        rows.append((
            result.title, per_token(result.summaries["hippo"]["time_per_token_s"]),
            saved(bench.against("hippo", "static")), saved(against),
            against.verdict if against else "-",
            f"`{best}`" if best else "-", saved(bench.against("hippo", best)) if best else "-",
            *(percent(result.summaries[policy]["regret"]) for policy in JUDGED),
        ))  # fmt: skip
    columns = (
        "links", "hippo, us/token", "saves vs static", "vs mpc", "so it is", "best of the others",
        "vs that", "regret hippo", "regret mpc",
    )  # fmt: skip
    return table(columns, rows)


def ms(seconds: float) -> str:
    """A latency with its unit."""
    return f"{milliseconds(seconds)} ms"


def fine(share: float) -> str:
    """A share close to one."""
    return f"{100 * share:.2f} %"


def reach(result: Result, policy: str, what: str) -> float | None:
    """Coverage or volume of a policy's front."""
    if result.bench.front is None:
        return None
    return next((getattr(r, what) for r in result.bench.front.reaches if r.policy == policy), None)


def times(results: Sequence[Result]) -> str:
    """Time per token of `hippo` and `mpc` against `static` and each other."""
    rows = []
    for result in asked(results):
        for policy in JUDGED:
            first = change(result.bench, policy, "static", lambda k: k.time_per_token_s)
            second = change(result.bench, policy, "mpc", lambda k: k.time_per_token_s)
            row = result.summaries[policy]
            own = [signed(middle(second)), interval(second)] if policy != "mpc" else ["", ""]
            rows.append((
                result.title, policy, per_token(row["time_per_token_s"]), signed(middle(first)),
                interval(first), *own, percent(row["regret"]),
            ))  # fmt: skip
    heads = ("links", "policy", "us/token", "vs static", "95 %", "vs mpc", "95 %", "regret")
    return table(heads, rows)


def utilisation(results: Sequence[Result]) -> str:
    """Shares of time in which GPUs compute: of the domains in the plan, and of all owned."""
    rows = []
    for result in asked(results):
        bounds = [entry.bound.utilisation for entry in result.bench.worlds if entry.bound]
        for policy in (*JUDGED, "static", "single"):
            row = result.summaries.get(policy)
            if row is None:
                continue
            changes = (
                middle(change(result.bench, policy, base, figure))
                for base, figure in (
                    ("static", lambda k: k.utilisation),
                    ("single", lambda k: k.utilisation),
                    ("single", lambda k: k.utilisation_owned),
                )
            )
            cells = ("" if policy in ("static", "single") else signed(value) for value in changes)
            rows.append((
                result.title, policy, percent(row["utilisation"]), percent(row["utilisation_owned"]), *cells,
            ))  # fmt: skip
        if bounds:
            rows.append((result.title, "the bound's path", percent(float(np.mean(bounds))), *[""] * 4))
    heads = (
        "links", "policy", "of domains in the plan", "of all GPUs", "plan's, vs static", "plan's, vs single",
        "all GPUs', vs single",
    )  # fmt: skip
    return table(heads, rows)


def money(results: Sequence[Result]) -> str:
    """Egress per token."""
    rows = []
    for result in asked(results):
        for policy in JUDGED:
            found = change(result.bench, policy, "static", lambda k: k.usd_per_token)
            usd = per_billion(result.summaries[policy]["usd_per_token"])
            rows.append((result.title, policy, usd, signed(middle(found)), interval(found)))
    return table(("links", "policy", "USD per 1e9 tokens", "vs static", "95 %"), rows)


def fronts(results: Sequence[Result]) -> str:
    """Coverage and hypervolume of each policy's runs over the grid of weights."""
    rows = [
        (result.title, r.policy, r.points, percent(r.coverage), f"{r.volume:.3f}",
         "all fixed plans, and runs" if front.exact else "runs")
        for result in results
        if (front := result.bench.front) is not None
        for r in (*sorted(front.reaches, key=lambda r: -r.volume), front.supported)
        if r is not None and (r.points > 1 or r.volume > 0)
    ]  # fmt: skip
    return table(("links", "policy", "runs", "coverage", "hypervolume", "reference"), rows)


def delays(results: Sequence[Result]) -> str:
    """Decision times and coordination; the slowest seed's."""
    rows = []
    for result in asked(results):
        for policy in JUDGED:
            kpis = [outcome.kpis for outcome in result.bench.of(policy) if outcome.kpis]
            usual = max((k.decision_p50_s for k in kpis if k.decision_p50_s is not None), default=None)
            row = result.summaries[policy]
            values = (usual, row["decision_p99_s"], row["coordination_max_s"])
            rows.append((result.title, policy, *(milliseconds(value) for value in values)))
    return table(("links", "policy", "median, ms", "p99, ms", "coordination, slowest, ms"), rows)


def load(results: Sequence[Result]) -> str:
    """Load stability at each arrival rate of jobs."""

    def cells(row: LoadStability) -> tuple[object, ...]:
        ends = f"{fine(row.stability.low)} to {fine(row.stability.high)}"
        shares = (percent(row.queued), percent(row.utilisation_owned))
        return (
            f"x {row.load:g}",
            row.policy,
            row.worlds,
            fine(row.stability.mean),
            ends,
            fine(row.worst),
            *shares,
        )

    rows = [(result.title, *cells(row)) for result in results for row in result.bench.under_load()]
    heads = (
        "jobs", "load", "policy", "seeds", "stability", "95 %", "worst seed", "time in the queue",
        "GPUs computing",
    )  # fmt: skip
    return table(heads, rows)
