"""Drift detection: two measures of a run's log that the world differs from that of the training.

* **Filter**: the share of directed links whose running normalised innovation squared lies outside
  `filter_health.HEALTHY` at the end of the log: the filters misjudge their own error. Drifting from
  `LINKS[1]` on, calm at `LINKS[0]` or less.
* **Reward**: the mean, over the last `DECISIONS` decisions with a prediction and finished iterations, of
  observed over predicted iteration time, less 1 (0.2: 20 % longer), weighted by time. Drifting from
  `SHORTFALL[1]` on, calm at `SHORTFALL[0]` or less.

Hysteresis: the two thresholds differ, and a drift is reported once; the next one only after both measures
have been calm. The state is in the store, so that a restart neither loses nor repeats it.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ingest.core import durable, safe_json
from ingest.core.errors import DamageError, NotFoundError
from ingest.core.units import NS_PER_S
from policy.core import registry
from replay.log.events import Event, Json, canonical
from replay.log.fold import Fold, fold
from replay.log.run_log import RunReader
from replay.metrics import filter_health
from replay.store import run_index
from replay.store.run_header import Header, from_payload
from replay.training.retrain import RETRAIN

LINKS = (0.1, 0.25)
SHORTFALL = (0.05, 0.15)
DECISIONS = 24
STATE = "drift.json"
SCHEMA = "twin.drift/1"


@dataclass(frozen=True, slots=True)
class Reading:
    """Both measures of one run; `shortfall` is None without predictions."""

    run_id: str
    unhealthy: float
    shortfall: float | None

    @property
    def drifting(self) -> bool:
        """True if a measure is at or over its upper threshold."""
        return self.unhealthy >= LINKS[1] or (self.shortfall is not None and self.shortfall >= SHORTFALL[1])

    @property
    def calm(self) -> bool:
        """True if both are at or under their lower thresholds."""
        return self.unhealthy <= LINKS[0] and (self.shortfall or 0.0) <= SHORTFALL[0]

    def to_json(self) -> Json:
        """Returns all fields by name."""
        return {"run": self.run_id, "unhealthy": self.unhealthy, "shortfall": self.shortfall}


def reading(store: Path, run_id: str) -> Reading:
    """Returns both measures of a run, finished or not.

    Raises:
        NotFoundError: no such run, or its data set has left the lake. DamageError: its log is damaged.
    """
    found = filter_health.of(store, run_id)
    if found.problem is not None:
        raise NotFoundError(f"{run_id}: {found.problem}")
    return Reading(run_id, found.unhealthy, shortfall(RunReader(run_index.folder(store, run_id)).events()))


def shortfall(events: Iterable[Event]) -> float | None:
    """Returns observed over predicted iteration time, less 1; None without predictions.

    Each job's iterations are compared with its own decisions; the last `DECISIONS` of the run count.
    """
    recent = fold(events, _ShortfallFold()).recent
    expected, real = (sum(pair[k] for pair in recent) for k in (0, 1))
    return real / expected - 1 if expected > 0 else None


class _ShortfallFold(Fold):
    """Sums [predicted seconds, real seconds] of the iterations after each of the last decisions."""

    def __init__(self) -> None:
        self.recent: deque[list[float]] = deque(maxlen=DECISIONS)
        self._latest: dict[str, tuple[float, list[float]]] = {}  # prediction and sums of each job

    def _on_decided(self, event: Event, decided: Json) -> None:
        predicted_s = decided["predicted_iter_s"]
        if predicted_s is None:
            self._latest.pop(event.job, None)
        else:
            self._latest[event.job] = predicted_s, [0.0, 0.0]
            self.recent.append(self._latest[event.job][1])

    def _on_iteration_done(self, event: Event, done: Json) -> None:
        if event.job in self._latest:
            predicted_s, sums = self._latest[event.job]
            sums[0] += predicted_s * done["count"]
            sums[1] += sum(count * ns for count, ns in done["durations"]) / NS_PER_S


def newest(store: Path, scenario: str) -> str | None:
    """Returns the newest run of a scenario that is no experiment; None if there is none.

    Runs of a retraining, what-ifs and runs of a chosen time span are experiments: they do not show the world
    of today.
    """
    found: list[str] = []
    experiments: set[str] = set()
    for run_id in run_index.all_ids(store):
        reader = RunReader(run_index.folder(store, run_id))
        if not reader.manifests():
            continue
        header = from_payload(reader.header())
        if header.policy == RETRAIN:
            scored = (event.payload for event in reader.events() if event.type == "policy_evaluated")
            experiments |= {payload["run"] for payload in scored}
        elif _operates(header, scenario):
            found.append(run_id)
    own = run_index.by_start(store, (run_id for run_id in found if run_id not in experiments))
    return own[-1] if own else None


def _operates(header: Header, scenario: str) -> bool:
    named = header.world["scenario"]["name"] == scenario
    decided = header.policy not in registry.OPERATIONS
    today = "span" not in header.world  # a chosen time span may be of any day
    return named and decided and today and header.branch is None and header.part_of is None


def due(store: Path, scenario: str) -> Reading | None:
    """Returns the reading of a drift that was not acknowledged; None without one.

    It stays due until `acknowledge`, so that a retraining that was killed is repeated.
    """
    run_id = newest(store, scenario)
    if run_id is None:
        return None
    found = reading(store, run_id)
    if not drifting(store, scenario):
        return found if found.drifting else None
    if found.calm:
        _save(store, scenario, None)
    return None


def acknowledge(store: Path, scenario: str, found: Reading) -> None:
    """Records that this drift was acted on: the next one counts only after calm."""
    _save(store, scenario, found)


def drifting(store: Path, scenario: str) -> bool:
    """Returns true if a drift was acknowledged and has not ended.

    Raises:
        DamageError: the state file is damaged.
    """
    return scenario in _state(store)


def _state(store: Path) -> Json:
    path = store / STATE
    if not path.exists():
        return {}
    try:
        value = safe_json.parsed(path.read_bytes())
        if value["schema"] != SCHEMA:
            raise ValueError(f"its format is {value['schema']!r}")
        return dict(value["drifting"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamageError(f"{path}: damaged ({error}); delete it: drift is then detected anew") from error


def _save(store: Path, scenario: str, found: Reading | None) -> None:
    state = {name: entry for name, entry in _state(store).items() if name != scenario}
    if found is not None:
        state[scenario] = found.to_json()
    durable.replace(store / STATE, canonical({"schema": SCHEMA, "drifting": state}).encode())
