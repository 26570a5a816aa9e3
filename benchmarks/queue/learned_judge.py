"""The judge of learned orders: the best scheduler on the first 60 % of a log, to be beaten on the rest."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.queue.inputs import traces
from policy.hippo.queue.windows import PoolPart, log_slowdowns, split
from policy.queue.registry import recipe
from twin.queue.jobs import Int, QueueJobs
from twin.queue.recipe import OrderKeys, QueueRecipe
from twin.queue.simulation import simulate

TRAINED = ("KTH-SP2", "SDSC-SP2", "Lublin-256", "ITP 08")
UNSEEN = ("ITP 02", "ITP 04")
SEEDS, WINDOWS, SHARE = 5, 12, 0.6
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


def ratio(log: float) -> str:
    """Returns a log ratio as a change."""
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
            f"{ratio(self.mean)} [{ratio(self.low)}, {ratio(self.high)}]",
            f"{ratio(low)} to {ratio(high)}", ratio(self.p95), ratio(self.longest),
        )  # fmt: skip
