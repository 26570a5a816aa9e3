"""When a waiting job starts, seen from one moment: what is known, and how runs fall short of estimates.

The run is played again up to that moment, which gives the same queue and the same running jobs; from there on
runs are drawn. A run is the estimate times a ratio run / estimate of a job that had ended by then, of the
user where there are enough; jobs of one user are alike, and take the same quantile in one draw. A running job
draws among the ratios that are longer than it has run; where there is none it runs to its estimate. Nobody
submits after the moment: a scheduler that lets later jobs go first may start the job later than said.

A node that is out comes back after as long as an outage of its kind took that was over by then and took
longer than this one has so far, drawn for each; where there is none it takes as long again. No node goes out
after the moment, so that a forecast is early where nodes often fail.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ingest.core.units import NS_PER_S
from replay.logqueue.logged_run import LoggedQueue, played
from twin.nodes.outages import NodeOutages
from twin.queue.jobs import Float, Int, QueueJobs
from twin.queue.rules import rule_set

DRAWS = 100
LEVEL = 0.9
"""Share of the draws that the interval holds."""
LATEST_ENDED = 1_000
"""Ratios are of so many jobs that ended last."""
OF_USER = 20
"""Least number of a user's jobs whose ratios are taken for themselves."""
SEED = 0
LENGTHS_S = tuple(60 * minutes for minutes in (1, 5, 15, 30, 60, 120, 240, 480, 720, 1440, 2880, 5760))
"""Estimates that are tried for what would start now."""


@dataclass(frozen=True, slots=True)
class StartForecast:
    """Start of a job as predicted at `at_s`, seconds of the log; `low_s`, `high_s` end the interval.

    `ended`: jobs that had ended, whose ratios are drawn from.
    """

    at_s: float
    low_s: float
    median_s: float
    high_s: float
    ended: int

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name, and the level of the interval."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "level": LEVEL}


def forecast(run: LoggedQueue, job: int, at_ns: int) -> StartForecast:
    """Returns when the job at this place starts, as it could be known at `at_ns`, while it waits."""
    past, generator = _Past(run, at_ns), np.random.default_rng(SEED)
    known = past.known()
    draws = DRAWS if len(known) and run.choices.prediction != "actual" else 1
    ratios = past.ratios(known)
    draws = DRAWS if past.nodes_out else draws
    found = [past.start_ns(job, past.drawn(ratios, generator), past.outages(generator)) for _ in range(draws)]
    low, median, high = np.quantile(np.array(found, np.float64), ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2))
    return StartForecast(
        at_ns / NS_PER_S, float(low / NS_PER_S), float(median / NS_PER_S), float(high / NS_PER_S), len(known)
    )


def fits_now(run: LoggedQueue, at_ns: int) -> list[tuple[int, int]]:
    """Returns (processors, longest estimate in seconds of `LENGTHS_S`) of jobs that would start at once.

    Sizes are the powers of two up to the free processors, and these; a size that never starts is left out.
    On nodes and over sites there are none: what would fit depends on what else such a job asks for.
    """
    if run.nodes is not None or run.sites is not None:
        return []
    past = _Past(run, at_ns)
    sizes = sorted({2**k for k in range(past.free.bit_length()) if 2**k <= past.free} | {past.free} - {0})
    found = []
    for size in sizes:
        length = next((one for one in reversed(LENGTHS_S) if past.starts_now(size, one)), None)
        if length is not None:
            found.append((size, length))
    return found


class _Past:
    """The jobs submitted up to a moment, in the order of their submissions, with the runs known at it."""

    def __init__(self, run: LoggedQueue, at_ns: int) -> None:
        done = run.schedule
        self.run, self.at_ns = run, at_ns
        self.count = int(np.searchsorted(done.jobs.submit_ns, at_ns, side="right"))
        self.jobs = run.logged.jobs.select(slice(0, self.count))
        self.begun, self.ended = (times[: self.count] for times in (done.start_ns, done.end_ns))
        self.over = self.ended <= at_ns
        running = (self.begun <= at_ns) & ~self.over
        self.free = int(done.processors - done.jobs.processors[: self.count][running].sum())
        self.least_ns = np.where(running, at_ns - self.begun + 1, 1)
        self.nodes_out = False
        if run.nodes is not None and run.node_runs is not None:
            self.least_ns = run.node_runs.done_ns(len(done.jobs), at_ns)[: self.count] + 1
            out = run.nodes.outages
            self.nodes_out = bool(((out.down_ns <= at_ns) & (out.up_ns > at_ns)).any())

    def known(self) -> Int:
        """Jobs that had ended, the last one last."""
        ended = np.flatnonzero(self.over & (self.jobs.estimate_ns > 0))
        return ended[np.argsort(self.ended[ended], kind="stable")]

    def ratios(self, known: Int) -> dict[int, Float]:
        """Run over estimate of jobs that had ended, sorted, for every user of a job that had not."""
        ratio, user = self.jobs.run_ns[known] / self.jobs.estimate_ns[known], self.jobs.user[known]
        found = {}
        for one in np.unique(self.jobs.user[~self.over]).tolist():
            own = ratio[user == one]
            taken = own if len(own) >= OF_USER else ratio
            found[one] = np.sort(taken[-LATEST_ENDED:])
        return found

    def drawn(self, ratios: dict[int, Float], generator: np.random.Generator) -> Int:
        """One draw of all runs: those that are over as they were; a running job lasts longer than by now."""
        if self.run.choices.prediction == "actual":
            return self.jobs.run_ns
        run_ns = self.jobs.run_ns.copy()
        for user, ordered in ratios.items():
            run_ns = self._drawn_of(user, ordered, generator.random(), run_ns)
        return run_ns

    def _drawn_of(self, user: int, ordered: Float, quantile: float, run_ns: Int) -> Int:
        """Runs with those of a user's jobs that are not over at a quantile of what they may still be."""
        own = np.flatnonzero(~self.over & (self.jobs.user == user))
        estimate, least = self.jobs.estimate_ns[own], self.least_ns[own]
        shorter = np.searchsorted(ordered, least / np.maximum(estimate, 1))
        place = shorter + (quantile * (len(ordered) - shorter)).astype(np.int64)
        some = place < len(ordered)
        share = np.where(some, ordered[np.where(some, place, 0)], 1.0) if len(ordered) else np.ones(len(own))
        guess = np.maximum((share * estimate).astype(np.int64), least)
        cuts = rule_set(self.run.choices.rules).cuts
        run_ns[own] = np.minimum(guess, estimate) if cuts else guess
        return run_ns

    def outages(self, generator: np.random.Generator) -> NodeOutages | None:
        """One draw of the outages that have begun: those that are over as they were."""
        if self.run.nodes is None:
            return None
        out, at_ns = self.run.nodes.outages, self.at_ns
        up_ns, over = out.up_ns.copy(), out.up_ns <= at_ns
        for one in np.flatnonzero((out.down_ns <= at_ns) & ~over).tolist():
            so_far, alike = at_ns - out.down_ns[one], over & (out.drain == out.drain[one])
            took = (out.up_ns - out.down_ns)[alike]
            longer = took[took > so_far]
            lasts = generator.choice(longer) if len(longer) else 2 * max(so_far, 1)
            up_ns[one] = out.down_ns[one] + lasts
        return out.known_at(at_ns, up_ns)

    def start_ns(self, job: int, run_ns: Int, outages: NodeOutages | None) -> int:
        """Start of a job, the next one from the moment on, if runs and outages are these."""
        return int(self._played(replace(self.jobs, run_ns=run_ns), outages)[job])

    def starts_now(self, processors: int, estimate_s: int) -> bool:
        """True if a job of this size, submitted now, would start now."""
        estimate_ns = estimate_s * NS_PER_S
        known = self.drawn(self.ratios(self.known()), np.random.default_rng(SEED))
        new = {"number": len(self.run.schedule.jobs) + 1, "submit_ns": self.at_ns, "run_ns": estimate_ns,
               "processors": processors, "estimate_ns": estimate_ns, "user": -1, "priority": -1,
               "deadline_ns": -1, "account": -1}  # fmt: skip
        given = replace(self.jobs, run_ns=known)
        columns = {name: np.append(getattr(given, name), value) for name, value in new.items()}
        return bool(self._played(QueueJobs(**columns))[-1] == self.at_ns)

    def _played(self, jobs: QueueJobs, outages: NodeOutages | None = None) -> Int:
        on_pool = self.run.nodes is None and self.run.sites is None
        first = self._last_idle() if on_pool and not self.run.choices.policy.startswith("las") else 0
        done = played(self.run, jobs.select(slice(first, None)), outages=outages)
        return np.concatenate((self.begun[:first], done.start_ns))

    def _last_idle(self) -> int:
        """The last submission before which everything had ended: what came before it changes nothing."""
        latest = np.maximum.accumulate(self.ended)
        idle = np.flatnonzero(latest[:-1] < self.jobs.submit_ns[1:]) + 1
        return int(idle[-1]) if len(idle) else 0
