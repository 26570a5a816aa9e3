"""Every scheduler on every job trace given, with intervals, beside the optimum of small queues and formulas:

    nice python -m benchmarks.queue.traces ../shared --page docs/measured/queues.md

Each trace is a JSON file below `.twin/queues`, and so are the optimum and the formulas: what is there and was
made by the same sources is not computed again, so that the command can be interrupted.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.queue import formulas, fragments, genetic, optimum
from benchmarks.queue.inputs import LOAD, Trace, traces
from benchmarks.queue.page_command import write_or_print
from benchmarks.queue.published import table
from ingest.core.durable import replace
from policy.queue.registry import ACCOUNTS, recipe
from replay.logqueue.windowed import BLOCK, DRAWS, WINDOWS, Ranged, Windowed, fragmentation, ratio
from replay.store.run_header import code_version
from twin.queue.jobs import UNKNOWN
from twin.queue.simulation import simulate

ORDERS = ("fcfs", "sjf", "ljf", "saf", "f1", "wfp3", "unicef", "hrrn", "las", "fair-tree", ACCOUNTS, "drf")
POLICIES = (
    *ORDERS, "easy", "easy-sjbf", "conservative", *(f"{order}+easy" for order in ORDERS if order != "fcfs"),
)  # fmt: skip
BASE = "easy"
SMALL_OF = "KTH-SP2"
SLOW, MOST_SLOW = "conservative", 60_000
"""Every waiting job has a reservation there: a pass costs the square of the queue."""
KEPT = Path(__file__).parents[2] / ".twin" / "queues"
Json = dict[str, Any]

HEAD = f"""# Queues of jobs: schedulers on all traces

Written by `python -m benchmarks.queue.traces ../shared --page docs/measured/queues.md`. The traces lie
beside the repository. [jobs.md](jobs.md) holds the comparison with published schedules,
[Queues of jobs](../guides/queue.md) says what the schedulers are.

Rules `predictsim`, prediction `estimate`: schedulers know what users asked for; where a trace has no
estimates the run times stand for them, so that its figures are those of a perfect prediction. In brackets
95 % intervals over {WINDOWS} windows of the trace: moving-block bootstrap, blocks of {BLOCK} windows,
{DRAWS} draws. They say how much a figure depends on the part of the trace; a trace in which the queue grows
from end to end has no stable mean, and its intervals are wide. `x EASY`: mean bounded slowdown over that of
EASY, paired by window; below 1 is better. `{SLOW}` is left out above {MOST_SLOW:,} jobs, where it takes
minutes, and `{ACCOUNTS}` where no job has an account. Where no job has a user `las`, `fair-tree` and `drf`
are `fcfs`: all jobs count as those of one.
"""


def played(trace: Trace) -> list[str]:
    """Returns the schedulers of a trace."""
    accounts = bool((trace.jobs.account != UNKNOWN).any())
    return [
        name
        for name in POLICIES
        if (name != SLOW or len(trace.jobs) <= MOST_SLOW) and (accounts or not name.startswith(ACCOUNTS))
    ]


def kept(name: str, make: Callable[[], Any], asked: Json) -> Any:
    """Returns what was kept of an earlier call by the same sources that asked for the same, else makes it."""
    path, by = KEPT / f"{name}.json", asked | {"code": code_version()["sources"]}
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["by"] == by:
            return found["made"]
    made = make()
    replace(path, json.dumps({"by": by, "made": made}).encode())
    print(f"{name}: done", flush=True)
    return made


def cell(trace: Trace) -> Json:
    """Returns the figures of each scheduler on a trace; on nodes its fragmentation, and placements."""
    found = {name: Windowed(simulate(trace.jobs, trace.processors, recipe(name))) for name in played(trace)}
    on_nodes = fragments.laid_out(trace)
    policies = {}
    for name, one in found.items():
        fair, lost = one.fairness(), None
        if on_nodes and name != SLOW:
            lost = fragmentation(fragments.on_nodes(trace, name)).to_json()
        policies[name] = {
            "wait": one.wait().to_json(), "p95": one.p95().to_json(), "slowdown": one.slowdown().to_json(),
            "utilisation": one.utilisation().to_json(), "fairness": fair and fair.to_json(),
            "ratio": ratio(one, found[BASE]).to_json(), "fragmentation": lost,
        }  # fmt: skip
    return {
        "sized": trace.sized, "jobs": len(trace.jobs), "processors": trace.processors, "load": _load(trace),
        "policies": policies, "gpus": fragments.layout(trace.processors).total_gpus if on_nodes else None,
        "placements": fragments.placements(trace) if on_nodes else None,
    }  # fmt: skip


HEADS = (
    "scheduler", "mean wait, s", "p95 wait, s", "bounded slowdown", "utilisation, %", "Jain of users",
    "x EASY", "fragmentation, %",
)  # fmt: skip


def rows(found: Json) -> Iterator[tuple[object, ...]]:
    """Yields a row a scheduler."""
    for name, one in found["policies"].items():
        said = (Ranged(*one[figure]).said() for figure in ("wait", "p95", "slowdown", "utilisation"))
        fair, lost = one["fairness"], one["fragmentation"]
        yield (
            name, *said, Ranged(*fair).said(2) if fair else "-", Ranged(*one["ratio"]).said(),
            Ranged(*lost).said() if lost else "-",
        )  # fmt: skip


def summary(ratios: dict[str, dict[str, Ranged]]) -> str:
    """Returns the table of wins and losses against EASY over all traces."""

    def lines() -> Iterator[tuple[object, ...]]:
        for policy in POLICIES:
            given = {name: one[policy] for name, one in ratios.items() if policy in one}
            if policy == BASE or not given:
                continue
            mean = np.exp(np.mean([np.log(one.value) for one in given.values()]))
            wins = sum(one.high < 1 for one in given.values())
            losses = sum(one.low > 1 for one in given.values())
            worst = max(given, key=lambda name: given[name].value)
            yield (
                policy, f"{worst} ({given[worst].value:,.3g} x)", f"{mean:,.3g}", wins, losses,
                len(given) - wins - losses,
            )  # fmt: skip

    heads = ("scheduler", "worst trace", "geometric mean x EASY", "wins", "losses", "neither")
    return table(heads, lines())


def page(shared: Path) -> str:
    """Returns the page."""
    cells: dict[str, Json] = {}
    small = ""
    for trace in traces(shared):
        asked = {"policies": played(trace), "placements": list(fragments.PLACEMENTS)}
        cells[trace.name] = kept(trace.name, lambda trace=trace: cell(trace), asked)
        if trace.name == SMALL_OF:
            small = kept("optimum", lambda trace=trace: _optimum(trace), {"policies": POLICIES_OF_ONE})
    ratios = {
        name: {policy: Ranged(*one["ratio"]) for policy, one in found["policies"].items()}
        for name, found in cells.items()
    }
    sizes = (
        (name, one["sized"], f"{one['jobs']:,}", f"{one['processors']:,}", one["load"])
        for name, one in cells.items()
    )
    heads = ("trace", "size of the pool", "jobs", "processors", "offered load")
    parts = [f"### {name}\n{table(HEADS, rows(found))}\n" for name, found in cells.items()]
    laid = {name: found for name, found in cells.items() if found["placements"]}
    return f"""{HEAD}
## Traces
A pool whose size is not known has an offered load of {LOAD}. Gavel's run times are steps over the throughput
alone on V100s. Sia's and Pollux' lists hold no run times and are not here. NASA's submit times are start
times.

{table(heads, sizes)}

## Wins and losses against EASY
A win is an interval of the ratio below 1, a loss one above it.

{summary(ratios)}

## Fragmentation
{fragments.section(laid)}

## The optimum of small queues
{small}

## Formulas
{kept("formulas", formulas.text, {})}

## Each trace
{chr(10).join(parts)}"""


def _load(trace: Trace) -> str:
    return "all at once" if np.isinf(trace.load) else f"{trace.load:.2f}"


POLICIES_OF_ONE = [name for name in POLICIES if not name.startswith(ACCOUNTS)]
"""Schedulers of the small queues, whose jobs have no account."""


def _optimum(trace: Trace) -> str:
    """Returns the table of gaps."""
    found = optimum.gaps(trace.jobs, tuple(POLICIES_OF_ONE))
    lines = (
        (name, same, f"{value:.3f} [{low:.3f}, {high:.3f}]")
        for name, (value, low, high, same) in sorted(found.items(), key=lambda one: one[1][0])
    )
    text = table(("scheduler", "optimal", "sum of waits over the least"), lines)
    return f"""{optimum.INSTANCES} queues of {optimum.JOBS} jobs drawn from {trace.name} (runs up to 4 h, in
slots of 10 minutes; submitted within 2 h) on {optimum.POOL} processors. A mixed-integer programme (HiGHS)
gives the least sum of waits; it knows the future, the schedulers know run times but no later submissions.
Beside them two solvers: a genetic search over orders (pymoo, {genetic.GENERATIONS} generations of
{genetic.POPULATION}), which knows the future, and the knapsack over processors of LOS (Shmueli and Feitelson,
JPDC 2005), which does not.
Intervals over queues.

{text}"""


if __name__ == "__main__":
    write_or_print(page, __doc__)
