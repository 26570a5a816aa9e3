"""What a store holds: runs, the active checkpoint, the lake, how far the twin is off; and every policy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.lake import lake
from ingest.core.errors import TwinError
from policy.core import registry
from replay.store import checkpoint_registry as champion, checkpoint_lineage as lineage, run_index as runs
from replay.metrics import filter_health as health
from replay.store.run_header import from_payload
from replay.log.run_log import RunReader

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in the list; `problem` names what makes it unreadable, `branch_of` what a what-if leaves."""

    run_id: str
    policy: str | None
    scenario: str | None
    events: int
    finished: bool
    chain_head: str | None
    problem: str | None
    branch_of: str | None = None

    def to_json(self) -> Json:
        """All fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Status:
    """The store at a glance."""

    store: str
    runs: tuple[RunLine, ...]
    active: str | None
    lake_digest: str
    datasets: tuple[str, ...]
    health: health.Health | None  # of the newest finished run
    health_problem: str | None  # why that one cannot be read

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
    """Runs, active checkpoint, lake, and the health of the newest finished run."""
    lines = tuple(run_line(store, run_id) for run_id in runs.all_ids(store))
    candidates = [line.run_id for line in lines if line.finished and line.policy in registry.POLICIES]
    started = runs.by_start(store, candidates)
    found, problem = None, None
    if started:
        try:
            found = health.of(store, started[-1])
        except TwinError as error:  # the store can be looked at with a damaged run in it
            problem = str(error)
    return Status(
        store=str(store),
        runs=lines,
        active=champion.active(store),
        lake_digest=lake.digest(store),
        datasets=tuple(lake.datasets(store)),
        health=found,
        health_problem=problem,
    )


def run_line(store: Path, run_id: str) -> RunLine:
    """One run for the list; a damaged one is listed with what is wrong."""
    reader = RunReader(runs.folder(store, run_id))
    try:
        chain = reader.manifests()
        header = from_payload(reader.header())
    except TwinError as error:
        return RunLine(run_id, None, None, 0, False, None, str(error))
    scenario = str(header.world["scenario"]["name"])
    last, left = chain[-1], None if header.branch is None else str(header.branch["run"])
    return RunLine(run_id, header.policy, scenario, last.last_seq + 1, last.final, last.hash, None, left)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored checkpoint with where it comes from."""

    digest: str
    active: bool
    provenance: Json  # what the file itself says: configuration, code, data, score
    records: tuple[lineage.Record, ...] = ()  # the trainings and retrainings that made it

    def to_json(self) -> Json:
        """All fields by name."""
        made = [record.to_json() for record in self.records]
        return {"digest": self.digest, "active": self.active, "lineage": self.provenance, "records": made}


def policies(store: Path) -> Json:
    """The object of `twin policies --json`: registered policies and stored checkpoints with their lineage."""
    return {
        "schema": "twin.policies/1",
        "policies": [
            {"name": name, "summary": entry.summary, "learned": entry.learned}
            for name, entry in registry.POLICIES.items()
        ],
        "active": champion.active(store),
        "history": list(champion.history(store)),
        "checkpoints": [checkpoint.to_json() for checkpoint in checkpoints(store)],
    }


def checkpoints(store: Path) -> tuple[Checkpoint, ...]:
    """Every checkpoint at hand; one that cannot be loaded is listed with the reason."""
    from policy.hippo.networks import checkpoint  # imports torch

    found = []
    current, made = champion.active(store), lineage.records(store)
    for path in champion.stored(store):
        try:
            digest = checkpoint.digest(path)
            own = dict(checkpoint.load(path).provenance)
        except TwinError as error:
            named = champion.FILE.fullmatch(path.name)
            digest, own = named[1] if named else path.name, {"problem": str(error)}
        records = tuple(record for record in made if record.checkpoint == digest)
        found.append(Checkpoint(digest, digest == current, own, records))
    return tuple(found)
