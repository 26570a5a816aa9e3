"""Orders learned on the first 60 % of a log, judged on its later 40 % and on logs never trained on:

python -m benchmarks.queue.learned ../shared --kept learned.jsonl --page docs/measured/learned-queue.md

Each judgement is a line of the file that is kept; one that is there is not made again.
"""

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from benchmarks.queue.inputs import traces
from benchmarks.queue.published import table
from ingest.core.durable import replace
from policy.hippo.queue.rollout import starts
from policy.hippo.queue.training import Method, train
from policy.hippo.queue.windows import PoolPart, log_slowdowns, split
from policy.queue.registry import recipe
from twin.queue.jobs import Int, QueueJobs
from twin.queue.recipe import OrderKeys, QueueRecipe
from twin.queue.simulation import simulate

TRAINED = ("KTH-SP2", "SDSC-SP2", "Lublin-256", "ITP 08")
UNSEEN = ("ITP 02", "ITP 04")
SEEDS, WINDOWS, SHARE = 5, 12, 0.6
STEPS: dict[Method, int] = {"ppo": 25, "evolution": 40, "dd-ppo": 25, "sla-morl": 25}
ORDERS = ("fcfs", "sjf", "saf", "f1", "wfp3", "unicef", "hrrn", "las")
AGED = "aged-sjf"


def aged_sjf(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
    """Predicted run time minus wait: all waits grow alike, so that this is run time plus submission."""
    return OrderKeys.fixed((predicted_ns + jobs.submit_ns) / 1e9)


def recipes() -> Iterator[QueueRecipe]:
    """Yields what the learned orders have to beat."""
    for name in (*ORDERS, "easy-sjbf", "conservative", *(f"{order}+easy" for order in ORDERS)):
        yield recipe(name)
    yield QueueRecipe(AGED, aged_sjf, "none", "", "")
    yield QueueRecipe(f"{AGED}+easy", aged_sjf, "easy", "", "")


@dataclass(frozen=True, eq=False)
class Judge:
    """A log in two parts, and the schedule of the second by the scheduler that is best on the first."""

    name: str
    first: PoolPart
    later: PoolPart
    best: str
    start_ns: Int

    @classmethod
    def of(cls, name: str, part: PoolPart) -> "Judge":
        first, later = split(part, SHARE)
        means = {
            one.name: log_slowdowns(first, simulate(first.jobs, first.processors, one).start_ns).mean()
            for one in recipes()
        }
        best = next(one for one in recipes() if one.name == min(means, key=means.__getitem__))
        return cls(name, first, later, best.name, simulate(later.jobs, later.processors, best).start_ns)

    def judge(self, start_ns: Int) -> dict[str, Any]:
        """Returns log ratios of geometric means, one a window, and those of tails, of a schedule."""
        own, base = log_slowdowns(self.later, start_ns), log_slowdowns(self.later, self.start_ns)
        submit = self.later.jobs.submit_ns
        longest = [float((at - submit).max()) / 3.6e12 for at in (start_ns, self.start_ns)]
        return {
            "windows": [float(part.mean()) for part in np.array_split(own - base, WINDOWS)],
            "all": float((own - base).mean()),
            "p95": float(np.percentile(own, 95) - np.percentile(base, 95)),
            "longest_h": longest,
        }


def judges(shared: Path) -> dict[str, Judge]:
    """Returns the logs, each with what is best on its first part."""
    found = {}
    for trace in traces(shared):
        if trace.name in (*TRAINED, *UNSEEN):
            found[trace.name] = Judge.of(trace.name, PoolPart(trace.jobs.cut_at_estimate(), trace.processors))
            print(f"{trace.name}: best on the first part is {found[trace.name].best}", flush=True)
        if len(found) == len(TRAINED) + len(UNSEEN):
            break
    return found


def measure(known: dict[str, Judge], kept: Path, seeds: int) -> list[dict[str, Any]]:
    """Returns all judgements, and adds those that are missing to the file."""
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.is_file() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["method"], row["trained"], row["seed"]) for row in rows}
    for seed in range(seeds):
        for name in TRAINED:
            for method, steps in STEPS.items():
                if (method, name, seed) in done:
                    continue
                began = time.process_time()
                order = train([known[name].first], method, seed=seed, steps=steps)
                row = {"method": method, "trained": name, "seed": seed, **order.provenance}
                row["cpu_s"], row["judged"] = time.process_time() - began, {}
                for other, judge in known.items():
                    row["judged"][other] = judge.judge(starts(judge.later, order.scorer))
                rows.append(row)
                with kept.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(row) + "\n")
                print(
                    name,
                    method,
                    seed,
                    f"{row['cpu_s']:.0f} s",
                    _ratio(row["judged"][name]["all"]),
                    flush=True,
                )
    return rows


def _ratio(log: float) -> str:
    return f"{np.exp(log) - 1:+.1%}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Changes against the best heuristic: of the geometric mean with its interval, over seeds from least to
    most, of the 95th percentile, and of the longest wait; means over seeds."""

    mean: float
    low: float
    high: float
    seeds: tuple[float, float]
    p95: float
    longest: float

    @classmethod
    def of(cls, found: list[dict[str, Any]]) -> "Verdict":
        windows = np.array([one["windows"] for one in found]).mean(axis=0)
        mean, error = float(windows.mean()), float(stats.sem(windows))
        half = float(stats.t.ppf(0.975, WINDOWS - 1)) * error
        alone = [one["all"] for one in found]
        longest = np.mean(
            [np.log(own / base) if base else 0.0 for own, base in (one["longest_h"] for one in found)]
        )
        return cls(
            mean, mean - half, mean + half, (min(alone), max(alone)),
            float(np.mean([one["p95"] for one in found])), float(longest),
        )  # fmt: skip

    @property
    def wins(self) -> bool:
        """At least 5 % lower with the interval off 0, and no longer tail."""
        tails = max(self.p95, self.longest) <= np.log(1.05)
        return bool(self.mean <= np.log(0.95) and self.high < 0 and tails)

    def cells(self) -> tuple[str, ...]:
        """Returns the cells of a row."""
        low, high = self.seeds
        return (
            f"{_ratio(self.mean)} [{_ratio(self.low)}, {_ratio(self.high)}]",
            f"{_ratio(low)} to {_ratio(high)}", _ratio(self.p95), _ratio(self.longest),
        )  # fmt: skip


NAMES: dict[Method, str] = {
    "ppo": "Hi-PPO", "evolution": "Evolution strategy", "dd-ppo": "DD-PPO", "sla-morl": "SLA-MORL"
}  # fmt: skip
ABOUT: dict[Method, str] = {
    "ppo": "Rewards beside the heuristic's (`policy/hippo/queue/ppo.py`).",
    "evolution": "The control, 67 weights, whole windows alone (`policy/hippo/queue/evolution.py`).",
    "dd-ppo": "After Sgambati, Vakanski and Anderson (arXiv:2505.03946), from its abstract: six workers, the "
    "mean of their\ngradients, late ones stopped early, rewards without a heuristic "
    "(`policy/hippo/queue/dd_ppo.py`).",
    "sla-morl": "After Mostafa, Mohan and Wang (arXiv:2508.03509), from its abstract, **an adaptation**: the "
    "jobs of logs are\nrigid, so that it chooses jobs, not GPUs; two objectives, time and agreements kept, "
    "whose weights follow\nviolations (`policy/hippo/queue/sla_morl.py`).",
}
"""What each method is, for its section."""
Rows = list[dict[str, Any]]
HEADS = (
    "trained on", "judged on", "best heuristic", "geometric mean slowdown", "least to most of seeds", "p95",
    "longest wait",
)  # fmt: skip


def verdicts(rows: Rows, method: str) -> dict[tuple[str, str], Verdict]:
    """Returns the verdict of each (trained on, judged on)."""
    found = defaultdict(list)
    for row in rows:
        if row["method"] == method:
            for name, one in row["judged"].items():
                found[row["trained"], name].append(one)
    return {pair: Verdict.of(given) for pair, given in found.items()}


def verdict_of(rows: Rows, method: Method) -> str:
    """Returns the verdict in a sentence."""
    found = verdicts(rows, method)
    own = [one for (trained, judged), one in found.items() if trained == judged]
    wins = sum(one.wins for one in own)
    worse = sum(one.mean > np.log(1.02) for one in found.values())
    clears = wins >= 4 and not worse and len(rows) == SEEDS * len(TRAINED) * len(STEPS)
    mean = _ratio(float(np.mean([one.mean for one in own])))
    return (
        f"**{NAMES[method]} {'clears' if clears else 'does not clear'} the bar**: it is at least 5 % lower, "
        f"with the interval off 0 and no longer tail, on {wins} of {len(own)} logs of its training (mean "
        f"{mean}), and more than 2 % worse in {worse} of {len(found)} judgements."
    )


def section(rows: Rows, known: dict[str, Judge], method: Method) -> str:
    """Returns the tables of a method."""
    found, used = verdicts(rows, method), [row for row in rows if row["method"] == method]
    minutes = np.array([row["cpu_s"] for row in used]) / 60
    kept = sum(row["validation"]["geometric_mean"] == row["validation"]["imitated"] for row in used)
    tables = [
        table(
            HEADS, ((a, b, known[b].best, *one.cells()) for (a, b), one in found.items() if (a == b) == same)
        )
        for same in (True, False)
    ]
    return f"""## {NAMES[method]}
{ABOUT[method]}
Imitation, then {STEPS[method]} steps: {minutes.mean():.1f} minutes of a core a training
({minutes.min():.1f} to {minutes.max():.1f}, judging included). {kept} of {len(used)} trainings found nothing
better on their validation part and kept the imitated order.

{tables[0]}

On logs never trained on:

{tables[1]}
"""


def imitated(rows: Rows, known: dict[str, Judge]) -> str:
    """Returns the table of the heuristics that trainings began at, themselves, inside EASY."""
    begun = {row["trained"]: row["heuristic"] for row in rows}
    lines = []
    for name, order in begun.items():
        judge = known[name]
        done = simulate(judge.later.jobs, judge.later.processors, recipe(f"{order}+easy"))
        lines.append((name, f"{order}+easy", judge.best, *Verdict.of([judge.judge(done.start_ns)]).cells()))
    return table(("log", "begun at", *HEADS[2:4], "whole part", *HEADS[5:]), iter(lines))


def page(rows: Rows, known: dict[str, Judge]) -> str:
    """Returns the page."""
    counts = Counter((row["method"], row["trained"]) for row in rows)
    fewest, most = min(counts.values()), max(counts.values())
    made = f"{most} seed{'s' * (most > 1)}" if fewest == most else f"{fewest} to {most} seeds"
    short = (
        "" if fewest == SEEDS else f" **{SEEDS} are asked for: the command makes those that are missing.**"
    )
    verdicts_said = "\n\n".join(verdict_of(rows, method) for method in NAMES)
    sections = "\n".join(section(rows, known, method) for method in NAMES)
    return f"""# A learned order of the queue, judged

Written by `python -m benchmarks.queue.learned ../shared --kept learned.jsonl --page
docs/measured/learned-queue.md`. The logs lie beside the repository;
[Queues of jobs](../guides/queue.md#a-learned-order) says what is learned.

{verdicts_said}

An order that does not clear it is not the default: `-p learned` has to be said.

The judge: of {len(list(recipes()))} schedulers (the orders
{", ".join(f"`{order}`" for order in (*ORDERS, AGED))}
alone and inside EASY, `easy-sjbf` and `conservative`) the one with the lowest geometric mean of bounded
slowdowns on the first 60 % of a log is to be beaten on the later 40 %. It may be one without backfilling,
which commits to the head of its queue; the learned orders stay inside EASY. Each method is trained with
{made} on the first 60 %, and plays the later 40 % without learning on.{short}

Cells are changes against the best heuristic, negative is better; in brackets 95 % intervals (Student's t)
over {WINDOWS} paired windows of the later part, each the mean over seeds. `p95` (of slowdowns) and `longest
wait` are those of the whole later part, mean over seeds. The bar: at least 5 % lower with the interval off 0
on four logs, nowhere worse than 2 %, p95 and longest wait at most 5 % longer.

{sections}
## The heuristics that trainings began at
{imitated(rows, known)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--kept", type=Path, required=True, help="file of judgements, one a line")
    parser.add_argument("--page", type=Path, help="file to write [standard output]")
    parser.add_argument("--shown", action="store_true", help="train nothing more")
    said = parser.parse_args()
    torch.set_num_threads(1)  # the cores are others' as well, and waiting threads would count as minutes
    known = judges(said.shared)
    text = page(measure(known, said.kept, 0 if said.shown else SEEDS), known)
    if said.page is None:
        print(text)
    else:
        replace(said.page, text.encode())


if __name__ == "__main__":
    main()
