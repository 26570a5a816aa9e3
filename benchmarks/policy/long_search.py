"""What minutes of search find beyond the milliseconds of one.

    nice python -m benchmarks.policy.long_search --store .twin/results [--scenario planet-405b] [--minutes 10]

The links are those at the start of the scenario's test window. The long search repeats the short one under
links with random factors (each of a log-normal distribution, wider and narrower by turns), which leads it to
other paths, times what it came across under the true links, and climbs from the best. A line for each better
plan, and at the end how far the plans that `hippo` and `mpc` start with are from the last one.

`hippo` and `mpc` do not look for the fastest plan under the links of the moment but for the best one in
expectation of what comes, so every plan is also priced as if it ran to the end of the window.

Where it stands is kept in the store after every search: killed or with more `--minutes`, the next call goes
on with the search after the last one, as long as the code stays. docs/measured/results.md shows it.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.policy.planners import first_view, microseconds, timed
from ingest.core import durable
from policy.bound.time_grid import grid
from policy.search.plan_search import TimedPlans, best_plans, build, explore
from replay.store.decision_codec import plan_from_json, plan_to_json
from replay.store.run_header import code_version
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.scenario import prepare

SPREADS = (0.05, 0.1, 0.2, 0.4)
TAKEN = 40
"""Plans of every search that are timed under the true links."""
JUDGED = ("hippo", "mpc")


@dataclass(frozen=True)
class Better:
    """A plan that was better than all before: when it was found, seconds of search, and what it takes."""

    at_s: float
    us_per_token: float
    window_us: float  # the same if it ran to the end of the window
    plan: dict[str, Any]


@dataclass(frozen=True)
class Start:
    """The plan that a policy starts with."""

    policy: str
    after_s: float  # wall seconds of the decision, tables made
    us_per_token: float
    window_us: float


@dataclass(frozen=True)
class Search:
    """How far a long search came; `found[0]` is the short one's."""

    scenario: str
    sources: str
    searches: int = 0
    seconds: float = 0.0
    found: tuple[Better, ...] = ()
    starts: tuple[Start, ...] = ()

    def over(self, start: Start) -> float:
        """How much longer the plan of a start takes than the best one found, as a share."""
        return start.us_per_token / self.found[-1].us_per_token - 1


def kept(store: Path) -> list[Search]:
    """The searches in the store, by scenario."""
    found = []
    for path in sorted((store / "long_search").glob("*.json")):
        fields = json.loads(path.read_text())
        better = tuple(Better(**row) for row in fields.pop("found"))
        starts = tuple(Start(**row) for row in fields.pop("starts"))
        found.append(Search(**fields, found=better, starts=starts))
    return found


def keep(store: Path, search: Search) -> None:
    """Put a search where `kept` finds it."""
    durable.make_directory(store / "long_search")
    text = json.dumps(asdict(search), indent=1)
    durable.replace(store / "long_search" / f"{search.scenario}.json", text.encode())


class Hunt:
    """The links of one moment, and the best plan for them so far."""

    def __init__(self, scenario: str, store: Path) -> None:
        self.setup = prepare.prepare(prepare.load(scenario), store, window="test", seed=0)
        self.view, self.estimator = first_view(self.setup), self.setup.estimator()
        self.links = self.view.forecast.links()
        self._window = grid(self.setup.wan, [], self.setup.scenario.moving.restart_s)
        self._where: Any = {"free_gpus": self.view.free_gpus, "slowdown": self.view.slowdown}

    def short(self) -> Better:
        """The plan of one search, tables made."""
        best_plans(self.estimator, self.links, **self._where)  # compiles, and makes the tables
        began = time.perf_counter()
        (best, _), *_ = best_plans(self.estimator, self.links, **self._where, top=1)
        return self.better(time.perf_counter() - began, best)

    def better(self, at_s: float, plan: Plan) -> Better:
        """A plan with its price."""
        written = plan_to_json(plan)
        assert written is not None
        return Better(at_s, *self.priced(plan), written)

    def priced(self, plan: Plan) -> tuple[float, float]:
        """Microseconds a token under the links of the moment, and of the whole window."""
        lengths, rate = self._window.lengths_s, self._window.rate(self.estimator, plan)
        tokens = float(lengths @ rate) * self.estimator.tokens_per_iteration
        return microseconds(self.estimator, self.view, plan), 1e6 * float(lengths.sum()) / tokens

    def long(self, number: int) -> Plan:
        """The best plan of the long search's n-th round; each has random factors of its own."""
        rng, sd_log = generator(0, f"long search {number}"), SPREADS[number % len(SPREADS)]
        factors = np.exp(sd_log * rng.standard_normal(self.links.bandwidth_bps.shape))
        other = LinkState(self.links.bandwidth_bps * factors, self.links.latency_s)
        found = explore(self.estimator, other, **self._where).fastest(TAKEN)
        true = TimedPlans(self.estimator, self.links, self.view.free_gpus, self.view.slowdown)
        true.add(found)
        true.climb(true.finalists())
        (_, shape, cuts), *_ = true.ranked(1)
        return build(self.estimator, shape, cuts)

    def start(self, name: str) -> Start:
        """What a policy starts with, asked twice: the first time compiles and makes tables."""
        timed(name, self.setup, self.estimator, self.view)
        seconds, plan = timed(name, self.setup, self.estimator, self.view)
        assert not isinstance(plan, str), plan
        return Start(name, seconds, *self.priced(plan))


def told(better: Better) -> None:
    """A line for a plan."""
    plan = plan_from_json(better.plan)
    pace = f"{better.us_per_token:9.3f} us/token, {better.window_us:9.3f} over the window"
    print(f"{better.at_s:8.2f} s  {pace}  {plan}", flush=True)


def main() -> None:
    """Search, print what is found when, and keep it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True, help="one in which the scenario's links are")
    parser.add_argument("--scenario", default="planet-405b")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of search, those of earlier calls included"
    )
    given = parser.parse_args()
    hunt, sources = Hunt(given.scenario, given.store), code_version()["sources"][:12]
    known = [s for s in kept(given.store) if (s.scenario, s.sources) == (given.scenario, sources)]
    search = known[0] if known else Search(given.scenario, sources, found=(hunt.short(),))
    for better in search.found:
        told(better)
    while search.seconds < 60 * given.minutes:
        began = time.perf_counter()
        plan = hunt.long(search.searches)
        seconds = search.seconds + time.perf_counter() - began
        better = hunt.better(seconds, plan)
        search = replace(search, searches=search.searches + 1, seconds=seconds)
        if better.us_per_token < search.found[-1].us_per_token:
            told(better)
            search = replace(search, found=(*search.found, better))
        keep(given.store, search)
    search = replace(search, starts=tuple(hunt.start(name) for name in JUDGED))
    keep(given.store, search)
    first, last = search.found[0].us_per_token, search.found[-1].us_per_token
    over = 100 * (first / last - 1)
    print(f"{search.searches} searches; the first plan takes {over:.2f} % longer than the last")
    for start in search.starts:
        away = f"{100 * search.over(start):+.2f} % from it, {start.window_us:.3f} us/token over the window"
        print(f"{start.policy} starts after {start.after_s:.2f} s, {away}")


if __name__ == "__main__":
    main()
