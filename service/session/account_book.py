"""Money, bytes and busy seconds of a live run, folded from its events: by minute, by month, in all.

The charges are those of the log (`iteration_done`, `plan_applied`, `time_lost`), which `twin report` adds up
too. An event counts in the minute and month in which it ended.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ingest.core.units import NS_PER_S, to_s
from replay.log.events import Event
from replay.log.fold import Fold
from twin.core.domain import Pair

Json = dict[str, Any]
MINUTE_S = 60
MINUTES = 24 * 60
"""Minutes that are kept."""
PLANS = 500
"""Changes of plan that are kept."""


@dataclass(slots=True)
class ChargeSums:
    """Sums over a part of a run: `wall_s` with the GPUs held, `step_s` of it in complete iterations.

    `busy_s` is computing time by domain, `sent` bytes by link, moves included.
    """

    iterations: int = 0
    wall_s: float = 0.0
    step_s: float = 0.0
    tokens: int = 0
    egress_usd: float = 0.0
    gpu_usd: float = 0.0
    energy_j: float = 0.0
    busy_s: dict[int, float] = field(default_factory=dict)
    sent: dict[Pair, int] = field(default_factory=dict)

    @property
    def egress_bytes(self) -> int:
        """Bytes between domains."""
        return sum(self.sent.values())

    def to_json(self) -> Json:
        """Returns all sums; `of_json` reads them back."""
        sums = {name: getattr(self, name) for name in SUMS}
        busy = [[domain, seconds] for domain, seconds in self.busy_s.items()]
        return {**sums, "busy_s": busy, "sent": [[i, j, size] for (i, j), size in self.sent.items()]}

    @classmethod
    def of_json(cls, sums: Json) -> "ChargeSums":
        """Returns the sums that `to_json` wrote."""
        busy, sent = dict(sums["busy_s"]), {(i, j): size for i, j, size in sums["sent"]}
        return cls(**{name: sums[name] for name in SUMS}, busy_s=busy, sent=sent)


SUMS = ("iterations", "wall_s", "step_s", "tokens", "egress_usd", "gpu_usd", "energy_j")
"""Fields of `ChargeSums` that are one number."""


class AccountBook(Fold):
    """Accounts of one run; `origin_epoch_ns` is its time 0."""

    def __init__(self, origin_epoch_ns: int) -> None:
        self._origin_ns = origin_epoch_ns
        self.total = ChargeSums()
        self.months: dict[str, ChargeSums] = {}
        """By month of UTC, `2026-11`."""
        self.minutes: OrderedDict[int, ChargeSums] = OrderedDict()
        """By minutes since the epoch."""
        self.plans: list[Json] = []
        """Plans that were in force: `at` (epoch seconds), `plan`, `virtual`, and `job` of several."""
        self._mode, self._reported = "shadow", set[str]()

    def _on_run_continued(self, event: Event, before: Json) -> None:
        self.months = {month: ChargeSums.of_json(sums) for month, sums in before["months"].items()}

    # -- plans in force

    def _on_mode_changed(self, event: Event, changed: Json) -> None:
        self._mode = changed["mode"]

    def _on_decided(self, event: Event, decided: Json) -> None:
        if decided["plan"] and event.job not in self._reported and self._mode != "active":
            self._runs(event, decided["plan"], virtual=True)

    def _on_plan_applied(self, event: Event, applied: Json) -> None:
        if event.job in self._reported:
            self._charge(event.sim_ns, applied, applied["pause_ns"], applied["moved_bytes"])
        self._reported.add(event.job)
        self._runs(event, applied["plan"], virtual=False)

    def _runs(self, event: Event, plan: Json, *, virtual: bool) -> None:
        at = round((self._origin_ns + event.sim_ns) / NS_PER_S, 3)
        entry = {"at": at, "plan": plan, "virtual": virtual, **({"job": event.job} if event.job else {})}
        last = next((one for one in reversed(self.plans) if one.get("job", "") == event.job), None)
        if last is None or {**last, "at": 0} != {**entry, "at": 0}:
            self.plans = [*self.plans[1 - PLANS :], entry]

    # -- charges

    def _on_iteration_done(self, event: Event, done: Json) -> None:
        length_ns = sum(count * ns for count, ns in done["durations"])
        for sums in self._charge(done["start_ns"] + length_ns, done, length_ns, done["wan_bytes"]):
            sums.iterations += done["count"]
            sums.step_s += to_s(length_ns)
            sums.tokens += done["tokens"]
            _add(sums.busy_s, ((k, to_s(ns)) for k, ns in enumerate(done["compute_ns"]) if ns))

    def _on_time_lost(self, event: Event, lost: Json) -> None:
        if event.job in self._reported:  # before that nobody held a GPU
            sent = [*lost["wan_bytes"], *lost["moved_bytes"]]
            self._charge(lost["start_ns"] + lost["lost_ns"], lost, lost["lost_ns"], sent)

    def _charge(
        self, end_ns: int, charged: Json, wall_ns: int, sent: Iterable[list[int]]
    ) -> tuple[ChargeSums, ...]:
        """Adds charges to the sums that they belong to, and returns these."""
        epoch_s = (self._origin_ns + end_ns) // NS_PER_S
        month = datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m")
        minute = self.minutes.setdefault(epoch_s // MINUTE_S, ChargeSums())
        if len(self.minutes) > MINUTES:
            self.minutes.popitem(last=False)
        books = self.total, self.months.setdefault(month, ChargeSums()), minute
        links = [((i, j), size) for i, j, size in sent]
        for sums in books:
            sums.wall_s += to_s(wall_ns)
            sums.egress_usd += charged["egress_usd"]
            sums.gpu_usd += charged["gpu_usd"]
            sums.energy_j += charged["energy_j"]
            _add(sums.sent, links)
        return books


def _add(sums: dict[Any, Any], more: Iterable[tuple[Any, Any]]) -> None:
    for key, value in more:
        sums[key] = sums.get(key, 0) + value
