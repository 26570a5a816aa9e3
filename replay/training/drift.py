"""When the world is no longer the one a policy was trained for, by two measures of a run's log.

* **Filter**: the share of directed links whose running normalised innovation squared lies outside
  `health.HEALTHY` at the end of the log: the filters misjudge their own error. Drifting from `LINKS[1]` of
  the links on, calm again at `LINKS[0]` or less.
* **Reward**: the mean, over the last `DECISIONS` decisions with a forecast and finished iterations, of how
  much longer an iteration really took than was predicted (0.2 = 20 % longer), weighed by time. Drifting from
  `SHORTFALL[1]` on, calm again at `SHORTFALL[0]` or less.

Hysteresis: the two thresholds differ, and a drift is told once: the next one only after both measures have
been calm. The state is kept in the store, so that a restart neither forgets nor repeats it.
"""

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core import durable
from ingest.core.errors import DamageError, NotFoundError
from ingest.core.units import NS_PER_S
from policy.core import registry
from replay.metrics import filter_health as health
from replay.store import run_index as runs
from replay.log.events import Event, canonical
from replay.store.run_header import Header, from_payload
from replay.log.run_log import RunReader
from replay.training.retrain import RETRAIN

Json = dict[str, Any]
LINKS = (0.1, 0.25)
SHORTFALL = (0.05, 0.15)
DECISIONS = 24
STATE = "drift.json"
SCHEMA = "twin.drift/1"


@dataclass(frozen=True, slots=True)
class Reading:
    """Both measures of one run; `shortfall` is None where nothing was forecast."""

    run_id: str
    unhealthy: float
    shortfall: float | None

    @property
    def drifting(self) -> bool:
        """One of the measures is over its upper threshold."""
        return self.unhealthy >= LINKS[1] or (self.shortfall is not None and self.shortfall >= SHORTFALL[1])

    @property
    def calm(self) -> bool:
        """Both are under their lower ones."""
        return self.unhealthy <= LINKS[0] and (self.shortfall or 0.0) <= SHORTFALL[0]

    def to_json(self) -> Json:
        """All fields by name."""
        return {"run": self.run_id, "unhealthy": self.unhealthy, "shortfall": self.shortfall}


def reading(store: Path, run_id: str) -> Reading:
    """Both measures of a run, finished or not.

    Raises:
        NotFoundError: no such run, or its data set has left the lake. DamageError: its log is damaged.
    """
    found = health.of(store, run_id)
    if found.problem is not None:
        raise NotFoundError(f"{run_id}: {found.problem}")
    return Reading(run_id, found.unhealthy, shortfall(RunReader(runs.folder(store, run_id)).events()))


def shortfall(events: Iterable[Event]) -> float | None:
    """How much longer iterations took than the decisions before them had predicted; None without any.

    Each job is held to its own decisions, the last ones of the run count.
    """
    recent: deque[list[float]] = deque(maxlen=DECISIONS)  # [predicted seconds, real seconds]
    standing: dict[str, tuple[float, list[float]]] = {}  # what the last decision on a job predicted
    for event in events:
        if event.type == "decided":
            predicted = event.payload["predicted_iter_s"]
            if predicted is not None:
                standing[event.job] = predicted, [0.0, 0.0]
                recent.append(standing[event.job][1])
            else:
                standing.pop(event.job, None)
        elif event.type == "iteration_done" and event.job in standing:
            predicted, sums = standing[event.job]
            sums[0] += predicted * event.payload["count"]
            sums[1] += sum(count * ns for count, ns in event.payload["durations"]) / NS_PER_S
    expected, real = (sum(pair[k] for pair in recent) for k in (0, 1))
    return real / expected - 1 if expected > 0 else None


def newest(store: Path, scenario: str) -> str | None:
    """The newest run of a scenario in which a registered policy decided for its own sake.

    Runs of a retraining, what-ifs and runs of a chosen stretch are experiments: they say nothing about the
    world of today.
    """
    found: list[str] = []
    experiments: set[str] = set()
    for run_id in runs.all_ids(store):
        reader = RunReader(runs.folder(store, run_id))
        if not reader.manifests():
            continue
        header = from_payload(reader.header())
        if header.policy == RETRAIN:
            scored = (event.payload for event in reader.events() if event.type == "policy_evaluated")
            experiments |= {said["run"] for said in scored}
        elif _operates(header, scenario):
            found.append(run_id)
    own = runs.by_start(store, (run_id for run_id in found if run_id not in experiments))
    return own[-1] if own else None


def _operates(header: Header, scenario: str) -> bool:
    named = header.world["scenario"]["name"] == scenario
    decided = header.policy in registry.POLICIES
    today = "span" not in header.world  # a stretch that somebody picked may be of any day
    return named and decided and today and header.branch is None and header.part_of is None


def due(store: Path, scenario: str) -> Reading | None:
    """The reading of a drift that has not been told yet; None while there is none.

    It is due again and again until `told`: whoever is killed before that has not retrained.
    """
    run_id = newest(store, scenario)
    if run_id is None:
        return None
    found = reading(store, run_id)
    if not drifting(store, scenario):
        return found if found.drifting else None
    if found.calm:
        _keep(store, scenario, None)
    return None


def told(store: Path, scenario: str, found: Reading) -> None:
    """Somebody has acted on this drift: the next one counts only after calm."""
    _keep(store, scenario, found)


def drifting(store: Path, scenario: str) -> bool:
    """Whether a drift was told and has not ended.

    Raises:
        DamageError: the state is not one.
    """
    return scenario in _state(store)


def _state(store: Path) -> Json:
    path = store / STATE
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_bytes())
        if value["schema"] != SCHEMA:
            raise ValueError(f"its format is {value['schema']!r}")
        return dict(value["drifting"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamageError(f"{path}: damaged ({error}); delete it: drift is then watched afresh") from error


def _keep(store: Path, scenario: str, found: Reading | None) -> None:
    state = {name: entry for name, entry in _state(store).items() if name != scenario}
    if found is not None:
        state[scenario] = found.to_json()
    durable.replace(store / STATE, canonical({"schema": SCHEMA, "drifting": state}).encode())
