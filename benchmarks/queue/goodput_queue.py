"""Pollux and Sia on the lists of their authors, beside schedulers that keep GPUs and batch of the list:

python -m benchmarks.queue.goodput_queue ../shared --page docs/measured/goodput-queue.md
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log, sqrt
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.queue.page_command import write_or_print
from benchmarks.queue.published import table
from benchmarks.queue.sharing import ratio
from ingest.readers.clusters.profiled_runs import RunProfiles
from policy.sharing.registry import RECIPES
from replay.queueing import goodput_jobs
from replay.queueing.changing import by_goodput
from replay.queueing.node_models import NodesAsked
from twin.queue.jobs import Float
from twin.sharing import engine
from twin.sharing.changes import FREE, PAID, STEADY, ChangeRules
from twin.sharing.engine import SharingWorld
from twin.sharing.figures import SharingFigures, sharing_figures

HEAD = """# Pollux and Sia on a queue

Written by `python -m benchmarks.queue.goodput_queue ../shared --page docs/measured/goodput-queue.md`. Lists
and profiles of Sia and Pollux lie beside the repository, the profiles of three of their six applications: the
other jobs are left out, so that no figure of the papers can come out here. JCT is end minus submission.
[The guide](../guides/sharing.md) says what each scheduler does, and what goodput is.

`srtf`, `tiresias` and `gavel` run each job on the GPUs and with the batch of the list, which its
authors tuned; `, batch tuned` gives it the batch of the most goodput on these GPUs, as Pollux and Sia do.
`srtf` knows the run times. `elasticflow` and `edf-elastic` need deadlines, which these lists do not have.
The ratios are mean JCT over that of the first row, the best of those that keep the GPUs of the list. Rules
`paid`: a change pauses its job for the restart that Sia's authors measured, 50 to 250 s. Intervals of a
list: 2,000 draws of 20 blocks of consecutive jobs; over lists: Student's t on the logarithms of the three
ratios, which is wide, as there are three.
"""
SIA_NODES, POLLUX_NODES = "6 x 4 aws, 3 x 8 rtx, 2 x 8 dgx-ext", "16 x 4 aws"
LISTS = (1, 2, 3)
RUNS = (
    ("srtf", True), ("srtf", False), ("tiresias", False), ("gavel", True), ("gavel", False), ("pollux", True),
    ("sia", True),
)  # fmt: skip
"""Schedulers, and whether jobs tune their batch; the first is the base of the ratios."""
T_95 = 4.303
"""Two degrees of freedom."""


@dataclass(frozen=True)
class Played:
    """One scheduler on one list: its figures, JCT of each job, and the seconds that it took."""

    figures: SharingFigures
    jct_s: Float
    took_s: float


@cache
def jobs_of(path: Path, profiles: Path, nodes: str) -> goodput_jobs.GoodputJobs:
    """Returns the jobs of a list on nodes."""
    return goodput_jobs.read(path, RunProfiles(profiles), NodesAsked.parse(nodes))


@cache
def world_of(path: Path, profiles: Path, nodes: str, rules: ChangeRules) -> SharingWorld:
    """Returns the world of a list."""
    return by_goodput(jobs_of(path, profiles, nodes), NodesAsked.parse(nodes), rules, "estimate")[1]


@cache
def played(world: SharingWorld, name: str, tuned: bool) -> Played:
    """Returns what a scheduler makes of a world."""
    if world.goodput is not None:
        world = replace(world, goodput=replace(world.goodput, tuned=tuned))
    began = perf_counter()
    done = engine.play(world, RECIPES[name].make())
    took_s = perf_counter() - began
    return Played(sharing_figures(done), (done.states.ended - world.jobs.submit_ns) / 1e9, took_s)


HEADS = (
    "scheduler", "jobs", "mean JCT, h", "p95, h", "makespan, h", "GPUs held, %", "changes a job",
    "GPU-h in pauses",
)  # fmt: skip


def compared(paths: list[Path], profiles: Path, nodes: str) -> str:
    """Returns the table of all schedulers on these lists."""
    ratios = tuple(f"{path.stem}: over the first row's [95 %]" for path in paths)
    return table((*HEADS, *ratios, *(["all lists [95 %]"] * (len(paths) > 1))), rows(paths, profiles, nodes))


def rows(paths: list[Path], profiles: Path, nodes: str) -> Iterator[tuple[str, ...]]:
    """Yields a row a scheduler: means over the lists, and its mean JCT over the first one's on each."""
    worlds = [world_of(path, profiles, nodes, PAID) for path in paths]
    print(f"{paths[0]}: {len(paths)} lists", file=sys.stderr)
    base = list[Played]()
    for name, tuned in RUNS:
        each = [played(world, name, tuned) for world in worlds]
        print(f"{name}: {[round(one.took_s) for one in each]} s", file=sys.stderr)
        base = base or each
        ratios = [one.jct_s.mean() / other.jct_s.mean() for one, other in zip(each, base, strict=True)]
        yield (
            name + (", batch tuned" if tuned and not RECIPES[name].tunes else ""),
            *_figures(each),
            *(ratio(one.jct_s, other.jct_s) for one, other in zip(each, base, strict=True)),
            *([_over_lists(ratios)] * (len(ratios) > 1)),
        )


def _figures(each: list[Played]) -> tuple[str, ...]:
    """Means over lists."""
    jobs = sum(one.figures.jobs for one in each)

    def mean(name: str, scale: float) -> float:
        return float(np.mean([getattr(one.figures, name) for one in each])) / scale

    changes = sum(one.figures.changes for one in each)
    return (
        f"{jobs:,}", f"{mean('avg_jct_s', 3600):.3f}", f"{mean('p95_jct_s', 3600):.2f}",
        f"{mean('makespan_s', 3600):.1f}", f"{100 * mean('utilisation', 1):.0f}", f"{changes / jobs:.2f}",
        f"{mean('lost_gpu_h', 1):,.0f}",
    )  # fmt: skip


def _over_lists(ratios: list[float]) -> str:
    """Geometric mean of the ratios of all lists, with its interval."""
    logs = [log(one) for one in ratios]
    mean, wide = float(np.mean(logs)), T_95 * float(np.std(logs, ddof=1)) / sqrt(len(logs))
    return f"{exp(mean):.2f} [{exp(mean - wide):.2f}, {exp(mean + wide):.2f}]"


def rules_table(path: Path, profiles: Path) -> str:
    """Sia and gavel on one list under three sets of rules."""
    found = []
    for rules in (PAID, STEADY, FREE):
        world = world_of(path, profiles, SIA_NODES, rules)
        for name in ("sia", "gavel"):
            one = played(world, name, RECIPES[name].tunes)
            figures = one.figures
            found.append(
                (
                    rules.name, name, f"{figures.avg_jct_s / 3600:.3f}", f"{figures.p95_jct_s / 3600:.2f}",
                    f"{figures.preemptions:,}", f"{figures.changes / figures.jobs:.2f}",
                    f"{figures.lost_gpu_h:,.0f}",
                )
            )  # fmt: skip
    heads = ("rules", "scheduler", "mean JCT, h", "p95, h", "preemptions", "changes a job", "GPU-h in pauses")
    return table(heads, iter(found))


def page(shared: Path) -> str:
    """Returns the page."""
    home = shared / "jobs/sia-pollux"
    profiles = home / "profiles"
    new = [home / f"workloads-newtrace/workload-{one}.csv" for one in LISTS]
    old = [home / f"workloads-pollux/workload-{one}.csv" for one in LISTS]
    first, second = compared(new, profiles, SIA_NODES), compared(old, profiles, POLLUX_NODES)
    return f"""{HEAD}
## Sia's lists on Sia's cluster: GPUs of three models
`workloads-newtrace`, 48 hours each, on {SIA_NODES}. Figures are means over the three lists.

{first}

## Pollux's lists on equal nodes
`workloads-pollux`, 8 hours each, on {POLLUX_NODES}, the 16 nodes of four GPUs of Pollux's testbed.

{second}

## What the rules do
`workloads-newtrace/workload-1.csv` on {SIA_NODES}.

{rules_table(new[0], profiles)}

`steady` leaves a job alone until it has run ten times its pause, twenty minutes for BERT, and preempts no
job more than 20 times; `free` takes nothing for a change, a bound. Gavel's rounds of six minutes move jobs
often: where every move is paid it loses much of the cluster to restarts.

## What the papers leave open
`policy/sharing/pollux.py` and `policy/sharing/sia.py` say at their top which choices were made: the value of
a job without GPUs, crossover and mutation of Pollux, what Pollux does with several GPU models,
ties, and that a first start is not paid. Both know goodput exactly here, from the models fitted to the
profiles; in the papers they estimate it from what a job has run so far.
"""


if __name__ == "__main__":
    write_or_print(page, __doc__)
