"""Status of a store: runs, active checkpoint, lake, health of the newest run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core.errors import TwinError
from ingest.lake import lake
from policy.core import registry
from replay.log.run_log import RunReader
from replay.metrics import filter_health
from replay.store import checkpoint_registry, run_index
from replay.store.run_header import from_payload

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in the list; `problem`: why it cannot be read; `branch_of`: base run of a what-if."""

    run_id: str
    policy: str | None
    scenario: str | None
    events: int
    finished: bool
    chain_head: str | None
    problem: str | None
    branch_of: str | None = None

    def to_json(self) -> Json:
        """Returns all fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Status:
    """Status of a store."""

    store: str
    runs: tuple[RunLine, ...]
    active: str | None
    lake_digest: str
    datasets: tuple[str, ...]
    health: filter_health.Health | None  # of the newest finished run
    health_problem: str | None  # reason for a missing health

    def to_json(self) -> Json:
        """The object of `twin status --json`."""
        return {
            "schema": "twin.status/2",
            "store": self.store,
            "runs": [line.to_json() for line in self.runs],
            "active": self.active,
            "lake_digest": self.lake_digest,
            "datasets": list(self.datasets),
            "health": None if self.health is None else self.health.to_json(),
            "health_problem": self.health_problem,
        }


def status(store: Path) -> Status:
    """Returns the status of a store, with the health of the newest finished run."""
    lines = tuple(run_line(store, run_id) for run_id in run_index.all_ids(store))
    candidates = [line.run_id for line in lines if line.finished and line.policy not in registry.OPERATIONS]
    started = run_index.by_start(store, candidates)
    found, problem = None, None
    if started:
        try:
            found = filter_health.of(store, started[-1])
        except TwinError as error:  # a damaged run must not hide the status of the store
            problem = str(error)
    return Status(
        store=str(store),
        runs=lines,
        active=checkpoint_registry.active(store),
        lake_digest=lake.digest(store),
        datasets=tuple(lake.datasets(store)),
        health=found,
        health_problem=problem,
    )


def run_line(store: Path, run_id: str) -> RunLine:
    """Returns one run for the list; a damaged one with its problem."""
    reader = RunReader(run_index.folder(store, run_id))
    try:
        chain = reader.manifests()
        header = from_payload(reader.header())
    except TwinError as error:
        return RunLine(run_id, None, None, 0, False, None, str(error))
    scenario = str(header.world["scenario"]["name"])
    last, left = chain[-1], None if header.branch is None else str(header.branch["run"])
    return RunLine(run_id, header.policy, scenario, last.last_seq + 1, last.final, last.hash, None, left)
