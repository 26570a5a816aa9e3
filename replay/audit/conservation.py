"""Conservation: checks that time, tokens, bytes, GPU time, energy and money of a run's events add up."""

import math
from collections.abc import Iterable
from typing import Any

from ingest.core.units import GB, NS_PER_S
from replay.log.events import Event, Json
from replay.log.fold import Fold, fold

RELATIVE = 1e-9
"""Tolerance of floating-point sums (USD, J); integers must agree exactly."""


class Accounts(Fold):
    """Checks the figures of each event against those that follow from the others.

    Each of several jobs has its own accounts, from its submission to its end; their sums are the run's.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._accounted_ns = 0  # end of the last interval
        self._tokens_per_iteration: int | None = None
        self._prices: Json = {}
        self._domains: list[Json] = []
        self._gpus: list[int] = []
        self._ended = self._live = False
        self._jobs: dict[str, Accounts] = {}
        self._sums: dict[str, float] = dict.fromkeys(FLOATS + INTEGERS, 0)
        self._links: dict[str, dict[str, int]] = {"wan_bytes": {}, "moved_bytes": {}}

    def check(self, events: Iterable[Event]) -> list[str]:
        """Returns all mismatches of a finished run, each with its event."""
        return fold(events, self).problems

    def add(self, event: Event) -> None:
        """Adds one event to the accounts of its job."""
        if event.job and event.job not in self._jobs:
            self._jobs[event.job] = self._branch(event)
        Fold.add(self._jobs.get(event.job, self), event)

    def _branch(self, event: Event) -> "Accounts":
        """Accounts of one job, which begin with `event`."""
        accounts = Accounts()
        accounts.problems, accounts._domains, accounts._prices = self.problems, self._domains, self._prices
        accounts._gpus, accounts._accounted_ns = [0] * len(self._domains), event.sim_ns
        accounts._live = self._live
        return accounts

    def _on_job_finished(self, event: Event, finished: Json) -> None:
        self._expect(event, "accounted time", self._accounted_ns, event.sim_ns)
        self._ended = True

    def _on_run_started(self, event: Event, started: Json) -> None:
        cluster = started["scenario"]["cluster"]
        self._domains = [{**cluster["hardware"], **_without_none(domain)} for domain in cluster["domains"]]
        self._prices = cluster["usd_per_gb"]
        self._live = started.get("live") is not None
        self._gpus = [0] * len(self._domains)

    def _on_run_continued(self, event: Event, before: Json) -> None:
        self._accounted_ns = next((one["accounted_ns"] for one in before["jobs"] if not one["name"]), 0)

    def _on_plan_applied(self, event: Event, applied: Json) -> None:
        self._gpus = list(applied["gpus"])
        self._tokens_per_iteration = None  # local SGD counts an iteration for less
        placed = [0] * len(self._domains)
        for share in applied["plan"]["shares"]:
            placed[share["domain"]] = len(share["gpus"])
        self._expect(event, "gpus", applied["gpus"], placed)
        self._interval(event, applied["started_ns"], applied["pause_ns"])
        end_ns = applied["started_ns"] + applied["pause_ns"]
        if not (self._live and end_ns <= event.sim_ns):  # a service is told afterwards
            self._expect(event, "end of the pause", event.sim_ns, end_ns)
        self._charges(event, applied, applied["pause_ns"])
        self._sums["pause_ns"] += applied["pause_ns"]

    def _on_iteration_done(self, event: Event, done: Json) -> None:
        length_ns = sum(count * ns for count, ns in done["durations"])
        self._expect(event, "count", done["count"], sum(count for count, _ in done["durations"]))
        self._interval(event, done["start_ns"], length_ns)
        if self._tokens_per_iteration is None:
            self._tokens_per_iteration = done["tokens"] // done["count"]
        self._expect(event, "tokens", done["tokens"], done["count"] * self._tokens_per_iteration)
        for k, (compute_ns, active_ns) in enumerate(zip(done["compute_ns"], done["active_ns"], strict=True)):
            self._expect(event, f"active_ns of domain {k}", active_ns, length_ns if self._gpus[k] else 0)
            if compute_ns > active_ns:
                self._report(event, f"domain {k} computed {compute_ns} ns in {active_ns} ns")
        self._charges(event, done, length_ns)
        for name in ("tokens", "gpu_compute_ns"):
            self._sums[name] += done[name]
        self._sums["iterations"] += done["count"]
        self._sums["iteration_ns"] += length_ns

    def _on_time_lost(self, event: Event, lost: Json) -> None:
        self._interval(event, lost["start_ns"], lost["lost_ns"])
        self._gpus = list(lost.get("gpus") or self._gpus)
        self._charges(event, lost, lost["lost_ns"] if lost["gpu_ns"] else 0)
        part, most = lost.get("part_tokens", 0.0), self._tokens_per_iteration
        if part and (lost["reason"] != "horizon" or (most is not None and part >= most)):
            self._report(event, f"{part} tokens of an unfinished iteration, {lost['reason']}")
        self._sums["lost_ns"] += lost["lost_ns"]

    def _on_state_copied(self, event: Event, copied: Json) -> None:
        self._expect(event, "end of the copy", event.sim_ns, copied["start_ns"] + copied["copied_ns"])
        self._charges(event, copied, 0)

    def _on_work_lost(self, event: Event, lost: Json) -> None:
        self._sums["tokens"] -= lost["lost_tokens"]
        self._sums["iterations"] -= lost["lost_iterations"]

    _on_gpu_failed = _on_work_lost

    def _on_run_finished(self, event: Event, finished: Json) -> None:
        totals = finished["totals"]
        for name, accounts in self._jobs.items():
            accounts._balance(event, totals["jobs"][name])
            self._join(accounts)
        self._balance(event, totals)

    def _join(self, accounts: "Accounts") -> None:
        """Adds the sums of a job to those of the run."""
        for name, value in accounts._sums.items():
            self._sums[name] += value
        for name, sums in self._links.items():
            for link, size in accounts._links[name].items():
                sums[link] = sums.get(link, 0) + size

    def _balance(self, event: Event, totals: Json) -> None:
        """Checks the sums against the totals of the run."""
        if not self._jobs and not self._ended and not self._live:  # a service goes on in another run
            self._expect(event, "accounted time", self._accounted_ns, event.sim_ns)
        for name in INTEGERS:
            self._expect(event, f"totals.{name}", totals[name], self._sums[name])
        for name in FLOATS:
            self._expect_close(event, f"totals.{name}", totals[name], self._sums[name])
        for name, sums in self._links.items():
            self._expect(event, f"totals.{name}", totals[name], dict(sorted(sums.items())))

    def _charges(self, event: Event, payload: Json, held_ns: int) -> None:
        """Checks GPU time and cost of GPUs held for `held_ns`, and the price of the bytes sent."""
        self._expect(event, "gpu_ns", payload["gpu_ns"], held_ns * sum(self._gpus))
        prices = (domain["usd_per_gpu_hour"] for domain in self._domains)
        hourly = sum(n * price for n, price in zip(self._gpus, prices, strict=True))
        self._expect_close(event, "gpu_usd", payload["gpu_usd"], hourly * held_ns / NS_PER_S / 3600)
        self._expect_close(event, "egress_usd", payload["egress_usd"], self._egress_usd(payload))
        for name in FLOATS:
            self._sums[name] += payload[name]
        self._sums["gpu_ns"] += payload["gpu_ns"]
        for name, sums in self._links.items():
            for i, j, size in payload.get(name, ()):
                sums[f"{i}>{j}"] = sums.get(f"{i}>{j}", 0) + size

    def _egress_usd(self, payload: Json) -> float:
        sent = [*payload.get("wan_bytes", ()), *payload.get("moved_bytes", ())]
        return math.fsum(size / GB * self._price(i, j) for i, j, size in sent)

    def _price(self, i: int, j: int) -> float:
        source, target = self._domains[i]["name"], self._domains[j]["name"]
        by_source = self._prices["sources"].get(source, self._prices["default"])
        return float(self._prices["pairs"].get(f"{source} > {target}", by_source))

    def _interval(self, event: Event, start_ns: int, length_ns: int) -> None:
        self._expect(event, "start of its interval", start_ns, self._accounted_ns)
        self._accounted_ns = start_ns + length_ns

    def _expect(self, event: Event, what: str, actual: Any, expected: Any) -> None:
        if actual != expected:
            self._report(event, f"{what} is {actual}, the other events make it {expected}")

    def _expect_close(self, event: Event, what: str, actual: float, expected: float) -> None:
        if not math.isclose(actual, expected, rel_tol=RELATIVE, abs_tol=1e-12):
            self._report(event, f"{what} is {actual}, the other events make it {expected}")

    def _report(self, event: Event, what: str) -> None:
        self.problems.append(f"event {event.seq} ({event.type}): {what}")


INTEGERS = ("tokens", "iterations", "iteration_ns", "pause_ns", "lost_ns", "gpu_ns", "gpu_compute_ns")
FLOATS = ("egress_usd", "gpu_usd", "energy_j")


def _without_none(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}
