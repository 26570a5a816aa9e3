"""What a store holds: runs, the active checkpoint, the lake, how well the filters fit; and every policy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest import lake
from ingest.errors import TwinError
from policy import registry
from replay import accuracy, champion, lineage, runs
from replay.header import Header, from_payload
from replay.log import RunReader
from twin import scenario as scenarios
from twin.kalman import LinkFilter

Json = dict[str, Any]
HEALTHY = (0.3, 2.0)
"""A filter that is right about its own error has a running normalised innovation squared near 1. With the
weight 0.05 of `twin.kalman` it scatters by sqrt(2 * 0.05 / 1.95) = 0.23: three deviations down and, since
the distribution is skewed, four up."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in the list; `problem` names what makes it unreadable."""

    run_id: str
    policy: str | None
    scenario: str | None
    events: int
    finished: bool
    chain_head: str | None
    problem: str | None

    def to_json(self) -> Json:
        """All fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class LinkHealth:
    """How well the filter of one directed link fitted what it was shown in a run."""

    src: str
    dst: str
    nis: float
    healthy: bool
    bias: float | None  # of the bandwidth forecast for the next telemetry, over what was then seen
    mape: float | None

    def to_json(self) -> Json:
        """All fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class DomainAccuracy:
    """How far predicted iteration times were off while a domain was in the plan; None without any."""

    domain: str
    iterations: int
    bias: float | None
    mape: float | None

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
    health_run: str | None  # the newest finished run; its filters are shown
    health: tuple[LinkHealth, ...]
    iterations: tuple[DomainAccuracy, ...]  # predicted against observed, of that run
    health_problem: str | None

    def to_json(self) -> Json:
        """The object of `twin status --json`."""
        return {
            "schema": "twin.status/1",
            "store": self.store,
            "runs": [line.to_json() for line in self.runs],
            "active": self.active,
            "lake_digest": self.lake_digest,
            "datasets": list(self.datasets),
            "health_run": self.health_run,
            "health": [link.to_json() for link in self.health],
            "iterations": [domain.to_json() for domain in self.iterations],
            "health_problem": self.health_problem,
        }


def status(store: Path) -> Status:
    """Runs, active checkpoint, lake, and the filters of the newest finished run."""
    lines = tuple(run_line(store, run_id) for run_id in runs.all_ids(store))
    candidates = [line.run_id for line in lines if line.finished and line.policy in registry.POLICIES]
    newest = max(candidates, key=lambda run_id: runs.folder(store, run_id).stat().st_mtime_ns, default=None)
    health: tuple[LinkHealth, ...] = ()
    iterations: tuple[DomainAccuracy, ...] = ()
    problem = None
    if newest is not None:
        try:
            iterations = iteration_accuracy(store, newest)
            health = filter_health(store, newest)
        except TwinError as error:  # the run stays readable when its data set has left the lake
            problem = str(error)
    return Status(
        store=str(store),
        runs=lines,
        active=champion.active(store),
        lake_digest=lake.digest(store),
        datasets=tuple(lake.datasets(store)),
        health_run=newest,
        health=health,
        iterations=iterations,
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
    last = chain[-1]
    return RunLine(run_id, header.policy, scenario, last.last_seq + 1, last.final, last.hash, None)


def filter_health(store: Path, run_id: str) -> tuple[LinkHealth, ...]:
    """Normalised innovation squared of every link's filter at the end of a run, and how far its forecasts of
    the next telemetry were off, both from the logged telemetry.

    Raises:
        NotFoundError: no such run, or its data set has left the lake.
    """
    reader = RunReader(runs.folder(store, run_id))
    header = from_payload(reader.header())
    filter_ = link_filter(store, header)
    seen, nis = accuracy.of_links(reader.events(), filter_), filter_.nis
    names = header.scenario().domains
    return tuple(
        LinkHealth(
            names[i],
            names[j],
            float(nis[i, j]),
            bool(HEALTHY[0] <= nis[i, j] <= HEALTHY[1]),
            seen[i, j].bias,
            seen[i, j].mape,
        )
        for i in range(len(names))
        for j in range(len(names))
        if i != j
    )


def iteration_accuracy(store: Path, run_id: str) -> tuple[DomainAccuracy, ...]:
    """Predicted against observed iteration times of every domain of a run, from its log alone.

    Raises:
        NotFoundError: no such run. DamageError: its log is damaged.
    """
    reader = RunReader(runs.folder(store, run_id))
    names = from_payload(reader.header()).scenario().domains
    seen = accuracy.of_domains(reader.events(), len(names))
    return tuple(
        DomainAccuracy(name, error.count, error.bias, error.mape)
        for name, error in zip(names, seen, strict=True)
    )


def link_filter(store: Path, header: Header) -> LinkFilter:
    """The filter with which a logged run began."""
    setup = scenarios.prepare(header.scenario(), store, window=header.window, seed=header.seed)
    return setup.link_filter()


def innovations(reader: RunReader, filter_: LinkFilter) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(K, K) running normalised innovation squared after everything that the run observed."""
    accuracy.of_links(reader.events(), filter_)
    return filter_.nis


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
    from policy.hippo import checkpoint  # imports torch

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
