"""Published results of schedulers beside ours, and queueing theory beside the simulator:

python -m benchmarks.queue.published ../shared --page docs/measured/jobs.md
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

from benchmarks.queue.page_command import write_or_print
from ingest.readers.clusters import swf_log
from policy.queue.registry import recipe
from replay.logqueue import recorded
from replay.logqueue.published import PublishedCell, easy_cells, heuristic_cells, recorded_runs
from replay.logqueue.sequences import judged
from tests.support.queue_mutants import MUTANTS, uncompiled
from twin.queue import theory
from twin.queue.jobs import Float, QueueJobs
from twin.queue.metrics import bounded_slowdowns, waits_s
from twin.queue.rules import PREDICTSIM, RLSCHEDULER
from twin.queue.simulation import QueueSchedule, simulate
from twin.workload.selection import select

HEAD = """# Queues of jobs: published results

Written by `python -m benchmarks.queue.published ../shared --page docs/measured/jobs.md`. The logs and the
published figures lie beside the repository; the rules that give them are data (`twin/queue/rules.py`).
[Queues of jobs](../guides/queue.md) says how to use the simulator; [placement.md](placement.md) has published
figures of placement on nodes.
"""
RECORDED = "res_easy_prediction_backfill_scheduler_predictorclairvoyant_throw_an_error.swf.gz"
SEEDS, JOBS = 20, 50_000


def table(heads: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    """Returns a Markdown table, the first two columns left, the others right."""
    lines = [heads, ("---", "---", *["---:"] * (len(heads) - 2)), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def starts(logs: Path) -> str:
    rows = (
        (run.log, run.policy, run.prediction, f"{run.jobs:,}", run.other_starts)
        for run in recorded_runs(logs)
    )
    return table(("log", "scheduler", "prediction", "jobs", "starts that differ"), rows)


def easy(cells: list[PublishedCell]) -> str:
    def rows() -> Iterator[tuple[object, ...]]:
        for key, group in groupby(cells, key=lambda one: (one.log, one.policy, one.prediction)):
            found = {one.figure: one for one in group}
            shown = found["avg_bounded_slowdown"]
            equal = sum(one.equal for one in found.values())
            yield (*key, shown.published, f"{shown.ours:.12g}", f"{equal} of {len(found)}")

    heads = ("log", "scheduler", "prediction", "average bounded slowdown", "ours", "figures equal")
    return table(heads, rows())


def heuristics(cells: list[PublishedCell]) -> str:
    rows = (
        (one.log, one.policy, one.figure, one.published, ours(one), "yes" if one.equal else "no")
        for one in cells
    )
    return table(("log", "scheduler", "figure", "published", "ours", "equal"), rows)


def ours(cell: PublishedCell) -> str:
    """Returns our figure, two digits longer if it is not equal."""
    digits = int(cell.digits[1]) + (0 if cell.equal else 2)
    return f"{cell.ours:.{digits}f}"


def errors(logs: Path) -> str:
    """Returns the table of errors put into the kernel, on KTH with exact predictions."""
    run = recorded.read(logs / "swf-easy-runs/KTH-SP2" / RECORDED)
    predicted, easy = run.jobs.predicted_ns("actual"), recipe("easy")
    keys = easy.keys(run.jobs, predicted)

    def rows() -> Iterator[tuple[object, ...]]:
        for put_in in ((), *((error,) for error in MUTANTS), tuple(MUTANTS)):
            kernel = uncompiled(run.jobs.estimate_ns, *put_in)
            start_ns, backfilled = kernel.play(run.jobs, predicted, run.processors, keys, "easy", PREDICTSIM)
            done = QueueSchedule(run.jobs, run.processors, start_ns, backfilled)
            name = "all four" if len(put_in) > 1 else put_in[0] if put_in else "none"
            wrong = run.other_starts(done)
            yield (
                name, f"{wrong:,}", f"{100 * wrong / len(run.jobs):.0f}",
                f"{bounded_slowdowns(done).mean():.2f}", f"{waits_s(done).mean():,.0f}",
            )  # fmt: skip

    heads = ("error", "wrong starts", "%", "average bounded slowdown", "mean wait, s")
    return table(heads, rows())


def right_formulas(logs: Path) -> str:
    log = select(swf_log.read(logs / "swf/lublin_256.swf"), RLSCHEDULER)

    def rows() -> Iterator[tuple[object, ...]]:
        for name, slip in (("wfp3", "wfp3-slip"), ("unicef", "unicep-slip")):
            for backfill in ("", "+easy"):
                pair = [judged(log.jobs, log.processors, recipe(one + backfill)) for one in (name, slip)]
                right, wrong = (sum(one for one, _ in found) / len(found) for found in pair)
                yield name, "easy" if backfill else "none", f"{right:.2f}", f"{wrong:.2f}"

    return table(("order", "backfill", "with the wait", "as published"), rows())


def queueing() -> str:
    def mean_wait(interval_s: float, servers: int, runs_s: Callable[[np.random.Generator], Float]) -> str:
        waits = []
        for seed in range(SEEDS):
            random = np.random.default_rng(seed)
            arrivals = random.exponential(interval_s, JOBS).cumsum()
            jobs = QueueJobs.of_seconds(arrivals, runs_s(random), np.ones(JOBS, np.int64))
            waits.append(waits_s(simulate(jobs, servers, recipe("fcfs"))).mean())
        return f"{np.mean(waits):.2f} +- {np.std(waits, ddof=1) / SEEDS**0.5:.2f}"

    def rows() -> Iterator[tuple[object, ...]]:
        for servers, load in ((1, 0.5), (4, 0.7), (16, 0.8), (64, 0.9)):
            found = mean_wait(100 / (servers * load), servers, lambda random: random.exponential(100.0, JOBS))
            yield f"M/M/{servers}", load, f"{theory.mmc_wait(servers, servers * load / 100, 0.01):.2f}", found
        for load in (0.3, 0.6, 0.8):
            found = mean_wait(100 / load, 1, lambda random: random.uniform(0.0, 200.0, JOBS))
            yield "M/G/1, uniform", load, f"{theory.mg1_wait(load / 100, 100, 200**2 / 3):.2f}", found

    return table(("queue", "load", "mean wait by formula, s", "simulated, s"), rows())


def page(shared: Path) -> str:
    """Returns the page."""
    logs, results = shared / "jobs", shared / "validation" / "jobs"
    of_easy, of_heuristics = list(easy_cells(logs, results)), list(heuristic_cells(logs, results))
    equal, same = sum(one.equal for one in of_easy), sum(one.equal for one in of_heuristics)
    return f"""{HEAD}
## Every start
Schedules recorded by the simulator of Gaussier et al. (SC 2015), rules `predictsim`.

{starts(logs)}

Starts are compared because averages tell little. Errors that were found in another simulator, put into our
kernel one at a time (`tests/support/queue_mutants.py`; KTH-SP2, EASY, actual run times):

{errors(logs)}

## EASY and EASY-SJBF
The same paper: average, maximum and root mean square of flow time, slowdown and bounded slowdown, twelve
digits each. {equal} of {len(of_easy)} figures are equal. `SDSC-SP2-cln` is the cleaned log, whose figures
come from an independent simulator, not from the paper.

{easy(of_easy)}

## RLScheduler's heuristics
Zhang et al. (SC 2020), rules `rlscheduler`. {same} of {len(of_heuristics)} cells are equal to all printed
digits.

{heuristics(of_heuristics)}

Its WFP3 and UNICEP take `-1 - submit` for the wait of a job; the orders `wfp3-slip` and `unicep-slip` do the
same. With the wait (Lublin-1, average bounded slowdown, the same sequences):

{right_formulas(logs)}

## Queueing theory
Poisson arrivals, mean service 100 s, `fcfs`, {SEEDS} runs of {JOBS:,} jobs, with one standard error of their
mean. Each run starts empty, which takes a little off the mean.

{queueing()}
"""


if __name__ == "__main__":
    write_or_print(page, __doc__)
