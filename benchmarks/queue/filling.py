"""FGD's cluster filling up under six placements, published percent by percent and ours:

python -m benchmarks.queue.filling ../shared --page docs/measured/placement.md
"""

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.queue.page_command import write_or_print
from replay.logqueue.filling_published import FIGURES, PLACED, FilledRun, filled_runs

HEAD = """# Placement on nodes: published results

Written by `python -m benchmarks.queue.filling ../shared --page docs/measured/placement.md`. The pods, the
nodes and the published figures lie beside the repository. [Queues of jobs](../guides/queue.md) says how to
use the placements, `replay/logqueue/filling_published.py` which rules give the figures.

Weng et al., "Beware of Fragmentation", USENIX ATC 2023: pods arrive one by one at 1,213 nodes with 6,212
GPUs, in the order of a seed, and none leaves; one that fits nowhere is dropped. Allocation and fragmentation,
percent of all GPUs, at each percent of arrived demand from 0 to 130, ten seeds, two lists of pods.
"""
RANDOM = "01-Random"


def table(heads: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    """Returns a Markdown table, the first two columns left, the others right."""
    lines = [heads, ("---", "---", *["---:"] * (len(heads) - 2)), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def equal(runs: list[FilledRun]) -> str:
    """Returns how many figures are equal, a row for each list, policy and figure."""

    def rows() -> Iterator[tuple[object, ...]]:
        for (workload, policy), group in grouped(runs).items():
            if policy != RANDOM:
                counts = [sum(run.equal(figure) for run in group) for figure in FIGURES]
                whole = sum(len(run.published[next(iter(FIGURES))]) for run in group)
                yield workload, PLACED[policy], f"{whole:,}", *(f"{count:,}" for count in counts)

    heads = ("pods", "placement", "figures each", "allocation equal", "fragmentation equal")
    return table(heads, rows())


def others(runs: list[FilledRun]) -> str:
    """Returns the runs that differ anywhere, Random's aside."""

    def rows() -> Iterator[tuple[object, ...]]:
        for run in runs:
            gaps = {figure: np.abs(run.ours[figure] - run.published[figure]) for figure in FIGURES}
            if run.policy != RANDOM and any(gap.any() for gap in gaps.values()):
                first = min(int(np.flatnonzero(gap)[0]) for gap in gaps.values() if gap.any())
                counts = [int((gap > 0).sum()) for gap in gaps.values()]
                most = max(float(gap.max()) for gap in gaps.values())
                yield run.workload, PLACED[run.policy], run.seed, *counts, first, f"{most:.2f}"

    heads = ("pods", "placement", "seed", "allocation", "fragmentation", "from %", "most points")
    return table(heads, rows())


def summary(runs: list[FilledRun], path: Path) -> tuple[str, int, int]:
    """Returns the published summary with our means beside it, and how many rows are equal, Random's aside,
    of how many."""
    groups, shown, same, count = grouped(runs), [], 0, 0
    with path.open(encoding="utf-8", newline="") as lines:
        published = list(csv.DictReader(lines))
    for row in published:
        policy = next(name for name in PLACED if name.endswith(f"-{row['policy']}"))
        group = groups[row["workload"], policy]
        at = int(row["arrived_pct_of_gpu_capacity"])
        ours = np.array([run.ours[row["metric"]][at] for run in group])
        printed = f"{ours.mean():.3f}", f"{ours.min():.2f}", f"{ours.max():.2f}"
        alike = [float(one) for one in printed] == [float(row[name]) for name in ("mean", "min", "max")]
        if policy != RANDOM:
            same, count = same + alike, count + 1
        if at == 130 or policy == RANDOM:
            band = f"{row['mean']} ({row['min']} to {row['max']})"
            found = "{} ({} to {})".format(*printed)
            shown.append((row["workload"], PLACED[policy], row["metric"], at, band, found))
    heads = ("pods", "placement", "figure", "arrived %", "published: mean (range)", "ours")
    return table(heads, iter(shown)), same, count


def grouped(runs: list[FilledRun]) -> dict[tuple[str, str], list[FilledRun]]:
    found = defaultdict(list)
    for run in runs:
        found[run.workload, run.policy].append(run)
    return found


def page(shared: Path) -> str:
    """Returns the page."""
    runs = list(filled_runs(shared))
    text, same, count = summary(runs, shared / "validation/jobs/fgd_summary.csv")
    return f"""{HEAD}
## Percent by percent
Pods are shuffled and nodes ordered by the published seeds, with the random numbers of Go
(`replay/logqueue/go_random.py`).

{equal(runs)}

The runs that differ, in how many figures, from which percent on, and by how many points at most. The
published simulator adds shares of jobs as floating-point numbers, ours counts jobs; scores are cut to whole
numbers, so that a last digit can move a pod. That this is the reason was not checked pod by pod.

{others(runs)}

## Summary
Of the {count} rows of the published summary that are not Random's, {same} are equal: mean, least and most of
ten seeds at 80, 90, 100, 110, 120 and 130 % of arrived demand. Random draws from numbers that threads of the
published simulator share, so its runs cannot be repeated: of it all rows are shown, of the others those at
130 %.

{text}
"""


if __name__ == "__main__":
    write_or_print(page, __doc__)
