"""Batches as the log takes them: which items come in order, and which batch was here before."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from ingest.core.units import NS_PER_S
from service.session.inbox import QuarantinedError
from service.session.observation import (
    Batch,
    DomainState,
    LinkSample,
    Observation,
    PlanReport,
    Refusal,
    StepTime,
)
from service.session.reported_time import AHEAD_NS
from twin.core.facts import Fact

Json = dict[str, Any]
HANDED_OVER = 5_000
"""Batches that are known again by their key in the run that takes the place of this one."""
KEYS = 100_000
"""Batches that are known again by their key; items of older ones are refused as out of order."""


def set_aside(reason: str) -> str:
    """Returns what is said of a message that was set aside."""
    return f"the message was set aside, nothing of it is in force: {reason}"


class Intake:
    """Order of the observations of a run; a log's `telemetry_received` bring it to where it was.

    `origin_epoch_ns` is time 0 of the run. `out_of_run` says why nothing is taken of a job, "" where it is;
    `names` are the jobs of a scenario with several.
    """

    def __init__(
        self, origin_epoch_ns: int, names: Sequence[str] = (), out_of_run: Callable[[str], str] = lambda _: ""
    ) -> None:
        self._origin_ns = origin_epoch_ns
        self._names, self._out_of_run = list(names), out_of_run
        self._newest: dict[Any, int] = {}  # ns of the last sample of a link, step or domain
        self._answers: OrderedDict[str, Json] = OrderedDict()
        self._last_keys: dict[str, str] = {}
        self.accepted = 0
        self.refused = 0

    def epoch_ns(self, now_ns: int) -> int:
        """Returns a time of the run as nanoseconds since the epoch."""
        return self._origin_ns + now_ns

    def newest_epoch_ns(self) -> int | None:
        """Returns the newest time that was reported, nanoseconds since the epoch; None: none was."""
        return self._origin_ns + max(self._newest.values()) if self._newest else None

    def answer(self, key: str) -> Json | None:
        """Returns what was answered to the batch of this key; None where it is new.

        Raises:
            QuarantinedError: the batch was set aside.
        """
        known = self._answers.get(key)
        if known is not None and (reason := known.get("quarantined")) is not None:
            raise QuarantinedError(set_aside(reason))
        return None if known is None else {**known, "duplicate": True}

    def knows(self, key: str) -> bool:
        """Return True if a batch of this key was answered or set aside."""
        return key in self._answers

    def last_key(self, client: str) -> str | None:
        """Returns the key of the last batch that came from a client; None where none did."""
        return self._last_keys.get(client)

    def fact(self, batch: Batch, now_ns: int) -> Fact:
        """Returns the batch as a fact of `now_ns`, its items in the order that they have in it.

        Out of order, doubled and future items are refused. `remember` has to be called with it.
        """
        payload: Json = {
            "key": batch.key, "client": batch.client, "links": [], "steps": [], "sent": [], "computed": [],
            "memory": [], "gpus": [], "slowdowns": [], "plans": [],
        }  # fmt: skip
        if self._names:
            payload["jobs"] = self._names
        refused, newest = list(batch.refused), dict[Any, int]()
        for seen in batch.good:
            fault, ns = self._placed(seen, now_ns, newest)
            if fault:
                refused.append(Refusal(seen.item, fault))
            else:
                _add(payload, seen, ns, self._names)
        payload["refused"] = [list(refusal) for refusal in sorted(refused)]
        return Fact(now_ns, "telemetry_received", payload)

    def handed_over(self, shift_ns: int, until_ns: int) -> Json:
        """Returns `newest_ns` and `answers` of `run_continued` for a run whose time 0 is so much later.

        What was reported after `until_ns` of the new run, by a clock that was wrong, is not handed over.
        """
        newest = [
            [*place, ns - shift_ns] for place, ns in self._newest.items() if 0 <= ns - shift_ns <= until_ns
        ]
        clients = {key: client for client, key in self._last_keys.items()}
        answers = []
        for key, known in list(self._answers.items())[-HANDED_OVER:]:
            refused = [[one["item"], one["reason"]] for one in known["refused"]]
            answers.append([key, clients.get(key), known["accepted"], refused])
        return {"newest_ns": newest, "answers": answers}

    def take_over(self, before: Json) -> None:
        """Knows the order and the batches of the run before."""
        self._newest.update({tuple(place): ns for *place, ns in before["newest_ns"]})
        for key, client, accepted, refused in before["answers"]:
            refusals = [{"item": item, "reason": reason} for item, reason in refused]
            self._answers[key] = {"accepted": accepted, "refused": refusals, "duplicate": False}
            if client is not None:
                self._last_keys[client] = key

    def remember(self, fact: Fact) -> None:
        """Takes a batch that is part of the log, or will be."""
        batch = fact.payload
        for i, j, ns, *_ in batch["links"]:
            self._newest["link", i, j] = ns
        for ns, _, _, *job in batch["steps"]:
            self._newest["step", self._names[int(job[0])] if job else ""] = ns
        for kind, rows in (("gpus", batch["gpus"]), ("slowdown", batch["slowdowns"])):
            for domain, ns, _ in rows:
                self._newest[kind, domain] = ns
        count = self.accepted_in(batch)
        self.accepted += count
        self._know(batch["client"], batch["key"], {**self.refuse(batch), "accepted": count})

    def quarantine(self, message: Json) -> None:
        """Knows a batch again that was set aside; a source goes on behind it."""
        if message["key"]:
            answer = {"accepted": 0, "refused": [], "duplicate": False, "quarantined": message["reason"]}
            self._know(message["client"], message["key"], answer)

    def accepted_in(self, batch: Json) -> int:
        """Returns the items that a batch of the log holds."""
        count = sum(len(batch[name]) for name in ("links", "steps", "plans"))
        return count + len({(row[0], row[1]) for row in (*batch["gpus"], *batch["slowdowns"])})

    def refuse(self, batch: Json) -> Json:
        """Counts the refused items of a batch, and returns the answer where there are no others."""
        self.refused += len(batch["refused"])
        refusals = [{"item": item, "reason": reason} for item, reason in batch["refused"]]
        return {"accepted": 0, "refused": refusals, "duplicate": False}

    def _know(self, client: str, key: str, answer: Json) -> None:
        """Takes the answer that the batch of a key gets when it comes again."""
        self._last_keys[client] = key
        self._answers[key] = answer
        if len(self._answers) > KEYS:
            self._answers.popitem(last=False)

    def _placed(self, seen: Observation, now_ns: int, newest: dict[Any, int]) -> tuple[str, int]:
        """Returns why an observation cannot be taken, or "" and its time; `newest` is of its own batch."""
        ns = seen.epoch_ns - self._origin_ns
        if ns > now_ns + AHEAD_NS:
            return f"from the future: {(ns - now_ns) / NS_PER_S:.1f} s ahead of the service's clock", 0
        if ns < 0:
            return f"from before the run began, {-ns / NS_PER_S:.1f} s", 0
        ns = min(ns, now_ns)
        if isinstance(seen, StepTime | PlanReport) and (why := self._out_of_run(seen.job)):
            return why, 0
        for place in _places(seen):
            last = newest.get(place, self._newest.get(place, -1))
            if ns <= last:
                late = (last - ns) / NS_PER_S
                return (
                    f"out of order: {late:.3f} s behind the last one" if late else "a duplicate in time"
                ), 0
        newest.update(dict.fromkeys(_places(seen), ns))
        return "", ns


def _places(seen: Observation) -> tuple[Any, ...]:
    """What has an order of its own."""
    match seen:
        case LinkSample():
            return (("link", seen.src, seen.dst),)
        case StepTime():
            return (("step", seen.job),)
        case DomainState():
            parts = (("gpus", seen.gpus), ("slowdown", seen.slowdown))
            return tuple((name, seen.domain) for name, value in parts if value is not None)
    return ()  # answers to orders are told apart by the order's number


def _add(payload: Json, seen: Observation, ns: int, names: Sequence[str]) -> None:
    """Adds an observation to the columns of its batch; rows of jobs end with their index in `names`."""
    job = [names.index(seen.job)] if names and isinstance(seen, StepTime) else []
    match seen:
        case LinkSample():
            payload["links"].append([seen.src, seen.dst, ns, seen.bandwidth_bps, seen.latency_s])
        case StepTime():
            payload["steps"].append([ns, seen.number, seen.seconds, *job])
            payload["sent"] += [[seen.number, *one, *job] for one in seen.sent]
            payload["computed"] += [[ns, *one, *job] for one in seen.computed]
            if seen.memory_bytes is not None:
                payload["memory"].append([seen.number, seen.memory_bytes, *job])
        case DomainState():
            if seen.gpus is not None:
                payload["gpus"].append([seen.domain, ns, seen.gpus])
            if seen.slowdown is not None:
                payload["slowdowns"].append([seen.domain, ns, seen.slowdown])
        case PlanReport():
            payload["plans"].append(
                {"ns": ns, "state": seen.state, "plan": seen.plan, "order": seen.order,
                 "pause_s": seen.pause_s, "reason": seen.reason, **({"job": seen.job} if names else {})}
            )  # fmt: skip
