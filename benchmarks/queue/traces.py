"""Every scheduler on every job trace given, with intervals, beside the optimum of small queues and formulas:

python -m benchmarks.queue.traces ../shared --page docs/measured/queues.md
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.queue import formulas, genetic, optimum
from benchmarks.queue.inputs import LOAD, Trace, traces
from benchmarks.queue.page_command import write_or_print
from benchmarks.queue.published import table
from policy.queue.registry import recipe
from replay.logqueue.windowed import BLOCK, DRAWS, WINDOWS, Ranged, Windowed, ratio
from twin.queue.simulation import simulate

ORDERS = ("fcfs", "sjf", "ljf", "saf", "f1", "wfp3", "unicef", "hrrn", "las")
POLICIES = (
    *ORDERS, "easy", "easy-sjbf", "conservative", *(f"{order}+easy" for order in ORDERS if order != "fcfs"),
)  # fmt: skip
BASE = "easy"
SMALL_OF = "KTH-SP2"
SLOW, MOST_SLOW = "conservative", 60_000
"""Every waiting job has a reservation there: a pass costs the square of the queue."""

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
minutes.
"""


def windowed(trace: Trace) -> dict[str, Windowed]:
    """Returns the schedule of each scheduler."""
    return {
        name: Windowed(simulate(trace.jobs, trace.processors, recipe(name)))
        for name in POLICIES
        if name != SLOW or len(trace.jobs) <= MOST_SLOW
    }


def rows(found: dict[str, Windowed]) -> Iterator[tuple[object, ...]]:
    """Yields a row a scheduler."""
    for name, one in found.items():
        fair = one.fairness()
        yield (
            name, one.wait().said(), one.p95().said(), one.slowdown().said(), one.utilisation().said(),
            fair.said(2) if fair else "-", ratio(one, found[BASE]).said(),
        )  # fmt: skip


HEADS = (
    "scheduler", "mean wait, s", "p95 wait, s", "bounded slowdown", "utilisation, %", "Jain of users",
    "x EASY",
)  # fmt: skip


def summary(ratios: dict[str, dict[str, Ranged]]) -> str:
    """Returns the table of wins and losses against EASY over all traces."""

    def lines() -> Iterator[tuple[object, ...]]:
        for policy in POLICIES:
            if policy == BASE:
                continue
            given = [one[policy] for one in ratios.values() if policy in one]
            mean = np.exp(np.mean([np.log(one.value) for one in given]))
            wins = sum(one.high < 1 for one in given)
            losses = sum(one.low > 1 for one in given)
            played = [name for name, one in ratios.items() if policy in one]
            worst = max(played, key=lambda name: ratios[name][policy].value)
            yield (
                policy, f"{worst} ({ratios[worst][policy].value:,.3g} x)", f"{mean:,.3g}", wins, losses,
                len(given) - wins - losses,
            )  # fmt: skip

    heads = ("scheduler", "worst trace", "geometric mean x EASY", "wins", "losses", "neither")
    return table(heads, lines())


def page(shared: Path) -> str:
    """Returns the page."""
    ratios: dict[str, dict[str, Ranged]] = {}
    parts, sizes, small = [], [], ""
    for trace in traces(shared):
        found = windowed(trace)
        ratios[trace.name] = {name: ratio(one, found[BASE]) for name, one in found.items()}
        sizes.append((trace.name, trace.sized, f"{len(trace.jobs):,}", f"{trace.processors:,}", _load(trace)))
        print(f"{trace.name}: done", flush=True)
        parts.append(f"### {trace.name}\n{table(HEADS, rows(found))}\n")
        if trace.name == SMALL_OF:
            small = _optimum(trace)
    heads = ("trace", "size of the pool", "jobs", "processors", "offered load")
    return f"""{HEAD}
## Traces
A pool whose size is not known has an offered load of {LOAD}. Gavel's run times are steps over the throughput
alone on V100s. Sia's and Pollux' lists hold no run times and are not here. NASA's submit times are start
times.

{table(heads, iter(sizes))}

## Wins and losses against EASY
A win is an interval of the ratio below 1, a loss one above it.

{summary(ratios)}

## The optimum of small queues
{small}

## Formulas
{formulas.text()}

## Each trace
{chr(10).join(parts)}"""


def _load(trace: Trace) -> str:
    return "all at once" if np.isinf(trace.load) else f"{trace.load:.2f}"


def _optimum(trace: Trace) -> str:
    """Returns the table of gaps."""
    found = optimum.gaps(trace.jobs, POLICIES)
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
