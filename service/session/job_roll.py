"""Training jobs of a scenario that lists several: submitted and ended by clients, as the world has them.

It takes the place of the queue's book. An item of a batch is a JSON object with `kind` (`submit`, `cancel` or
`end`) and the `id` of a listed job; `epoch_ns` is let pass, the change is made when it arrives. The same item
once more changes nothing. What a job runs it says itself, by observations of kind `plan`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ingest.core.terminal import clipped, shown
from ingest.core.units import NS_PER_S
from replay.log.events import Event
from twin.core.domain import Cluster
from twin.scenario.submission import Submission
from twin.world.observed_job import ObservedJob

Json = dict[str, Any]
KINDS = ("submit", "cancel", "end")


class JobRoll:
    """Judges changes of the jobs `listed`; `jobs` are those of the world, in which changes take effect."""

    def __init__(
        self, listed: Sequence[Submission], jobs: Mapping[str, ObservedJob], cluster: Cluster
    ) -> None:
        self.listed = {one.name: one for one in listed}
        self._jobs, self._names = jobs, [domain.name for domain in cluster.domains]

    def state(self, name: str) -> str:
        """Returns what a listed job does; "": it was not submitted yet."""
        job = self._jobs.get(name)
        return "" if job is None else job.state

    def judged(self, items: Sequence[Any], now_ns: int) -> tuple[list[Json], Json]:
        """Returns the changes that a batch makes and the answer; `now_ns` is UTC. Nothing is changed yet."""
        after: dict[str, str] = {}
        changes, refused, unchanged = list[Json](), list[Json](), 0
        for number, item in enumerate(items):
            fault = self._fault(item)
            if fault:
                refused.append({"item": number, "reason": fault})
                continue
            kind, name = item["kind"], item["id"]
            state = after.get(name, self.state(name))
            target = "waiting" if kind == "submit" else "ended"
            fault = _forbidden(kind, name, state)
            if fault:
                refused.append({"item": number, "reason": fault})
            elif state and (state == "ended") == (target == "ended"):
                unchanged += 1
            else:
                after[name] = target
                changes.append({"kind": kind, "id": name, "epoch_ns": now_ns})
        return changes, {"accepted": len(changes), "unchanged": unchanged, "refused": refused}

    def take(self, changes: Sequence[Json]) -> None:
        """Does nothing: the world takes changes itself."""

    def carried(self) -> list[Json]:
        """Returns nothing: a run that is renewed hands its jobs over itself."""
        return []

    def out_of_run(self, name: str) -> str:
        """Returns why nothing is taken of a listed job now; "": it is."""
        state = self.state(name)
        if not state:
            return f"job {name} was not submitted yet"
        return f"job {name} has ended" if state == "ended" else ""

    def opening(self, before: Iterable[Event], now_ns: int) -> list[Json]:
        """Returns the first changes of a new run: the jobs of the run before that had not ended, or, without
        one, those that the scenario has from the start on; `now_ns` is UTC."""
        left, begun = dict[str, None](), False
        for event in before:
            begun = True
            if event.type == "job_submitted":
                left[event.job] = None
            elif event.type == "job_finished":
                left.pop(event.job, None)
        if not begun:
            left = {one.name: None for one in self.listed.values() if one.submit_ns == 0}
        return [{"kind": "submit", "id": name, "epoch_ns": now_ns} for name in left if name in self.listed]

    def lines(self, utc_ns: int, closed: int) -> list[Json]:
        """Returns every job as clients read it, those that ended last, at most `closed` of them.

        `utc_ns`: time 0 of the run.
        """
        found = [self._line(name, utc_ns) for name in self.listed if self.state(name)]
        ended = [line for line in found if line["state"] == "ended"]
        return [line for line in found if line["state"] != "ended"] + ended[len(ended) - closed :]

    def _line(self, name: str, utc_ns: int) -> Json:
        job, state = self._jobs[name], self.state(name)
        held = job.held if state != "ended" else ()
        on = {domain: count for domain, count in zip(self._names, held, strict=False) if count}
        reason = job.obstacle or ("" if state != "waiting" else "no plan fits it into the GPUs that are free")
        return {
            "id": name, "state": state, "gpus": sum(held), "estimate_s": None, "user": "",
            "submitted_at": (utc_ns + job.since_ns) / NS_PER_S,
            "started_at": None if job.started_ns is None else (utc_ns + job.started_ns) / NS_PER_S,
            "closed_at": None if job.ended_ns is None else (utc_ns + job.ended_ns) / NS_PER_S,
            "on": on or None, "starts_in_s": None, "domain": None, "reason": reason,
        }  # fmt: skip

    def _fault(self, item: Any) -> str:
        """Returns why an item cannot be read; "": it can."""
        if not isinstance(item, dict):
            return "not a JSON object"
        kind, name = item.get("kind"), item.get("id")
        if kind == "start":
            return (
                "kind 'start': a job of this scenario says itself what it runs, by observations of kind plan"
            )
        if not isinstance(kind, str) or kind not in KINDS:
            return f"kind {shown(clipped(str(kind), 60))}: there are {', '.join(KINDS)}"
        if extra := item.keys() - {"kind", "id", "epoch_ns"}:
            return (
                f"unknown field {shown(clipped(str(min(extra, key=str)), 60))}: the scenario has its figures"
            )
        if not isinstance(name, str) or name not in self.listed:
            return (
                f"no job {shown(clipped(str(name), 60))} in the scenario: there are {', '.join(self.listed)}"
            )
        return ""


def _forbidden(kind: str, name: str, state: str) -> str:
    """Returns why a change does not fit the state of its job; "": it does, or was made before."""
    if kind == "submit" and state == "ended":
        return f"job {name} has ended; a job is submitted once"
    if kind != "submit" and not state:
        return f"no job {name} was submitted"
    if kind == "cancel" and state == "running":
        return f"cancel: job {name} runs; `end` says that it has ended"
    return ""
