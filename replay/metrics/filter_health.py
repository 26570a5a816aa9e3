"""Health of a run: errors of its predictions and consistency of its filters (NIS)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import TwinError
from replay.log.fold import fold
from replay.log.run_log import RunReader
from replay.metrics.prediction_accuracy import DomainErrors, Errors, Innovations, LinkErrors, merged
from replay.store import run_index, world_reconstruction
from replay.store.run_header import from_payload
from twin.core.domain import Matrix
from twin.filters.link_filter import pairs
from twin.scenario.prepare import PreparedScenario

Json = dict[str, Any]
HEALTHY = (0.2, 3.0)
"""Range of the running normalised innovation squared (NIS) of a filter while its link behaves as in training.
Measured rates jump, so that it is far more skewed than a chi squared: on the training shares of quad-70b,
tri-7b, octo-175b and geant-70b (fitted on their first 70 %) it was inside 97 % of the time."""


@dataclass(frozen=True, slots=True)
class LinkHealth:
    """Forecasts of the present of one directed link at every decision, against the next telemetry."""

    src: str
    dst: str
    count: int
    bias: float | None
    mape: float | None
    inside_80: float | None  # share of observations inside the 80 % interval
    inside_95: float | None
    nis: float | None  # at the end of the run, over that of training; None: its data set has left the lake
    healthy: bool | None


@dataclass(frozen=True, slots=True)
class HorizonHealth:
    """Forecasts of all links at one horizon."""

    horizon_s: float
    count: int
    bias: float | None
    mape: float | None
    inside_80: float | None
    inside_95: float | None


@dataclass(frozen=True, slots=True)
class DomainHealth:
    """Computing time of one domain against the cost model of its plans."""

    domain: str
    iterations: int
    bias: float | None
    mape: float | None
    nis: float | None  # of the slowdown filter at the end of the run
    healthy: bool | None


@dataclass(frozen=True, slots=True)
class Health:
    """Predictions of a run against its observations; `iteration` is of whole iterations."""

    run_id: str
    links: tuple[LinkHealth, ...]
    horizons: tuple[HorizonHealth, ...]
    domains: tuple[DomainHealth, ...]
    iteration: DomainHealth
    problem: str | None  # reason for a missing NIS

    @property
    def unhealthy(self) -> float:
        """Share of the directed links whose NIS is not healthy."""
        judged = [link.healthy for link in self.links if link.healthy is not None]
        return 1 - sum(judged) / len(judged) if judged else 0.0

    def to_json(self) -> Json:
        """Returns all fields by name."""
        parts: Json = {
            name: [{field: getattr(row, field) for field in row.__slots__} for row in getattr(self, name)]
            for name in ("links", "horizons", "domains")
        }
        iteration = {field: getattr(self.iteration, field) for field in ("iterations", "bias", "mape")}
        return {"run": self.run_id, **parts, "iteration": iteration, "problem": self.problem}


def of(store: Path, run_id: str) -> Health:
    """Returns the health of a run, finished or not, in one pass over its log.

    Raises:
        NotFoundError: no such run. DamageError: its log is damaged.
    """
    reader = RunReader(run_index.folder(store, run_id))
    header = from_payload(reader.header())
    try:
        setup, problem = world_reconstruction.prepare(store, header), None
    except TwinError as error:  # the log stays readable when its data set has left the lake
        setup, problem = None, str(error)
    names = header.scenario().domains
    links = LinkErrors(header.scenario().telemetry.noise)
    domains = _domain_errors(setup, len(names))
    filters = None if setup is None else Innovations(setup.link_filter())
    fold(reader.events(), links, domains, *([] if filters is None else [filters]))
    nis = None if filters is None else filters.filter_.nis
    return Health(
        run_id,
        tuple(_links(names, links, nis)),
        tuple(_horizons(links)),
        tuple(_domains(names, domains, setup is not None)),
        _domain("iteration", domains.iterations, None),
        problem,
    )


def _domain_errors(setup: PreparedScenario | None, size: int) -> DomainErrors:
    """Returns the fold with the cost model of each job and the scatter of step times."""
    if setup is None:
        return DomainErrors({}, size)
    specs = {job.name: job.spec for job in setup.jobs} or {"": setup.job}
    scatter = 0.0 if setup.jitter is None else float(np.std(np.log(setup.jitter)))
    return DomainErrors({name: setup.estimator(spec) for name, spec in specs.items()}, size, scatter)


def _links(names: Sequence[str], links: LinkErrors, nis: Matrix | None) -> Iterator[LinkHealth]:
    for i, j in zip(*(index.tolist() for index in pairs(len(names))), strict=True):
        found = links.found.get((i, j))
        errors = found[0] if found else Errors()
        own = None if nis is None else float(nis[i, j])
        healthy = None if own is None else bool(HEALTHY[0] <= own <= HEALTHY[1])
        yield LinkHealth(names[i], names[j], *_figures(errors), own, healthy)


def _horizons(links: LinkErrors) -> Iterator[HorizonHealth]:
    for h, horizon_s in enumerate(links.horizons_s):
        yield HorizonHealth(horizon_s, *_figures(merged([found[h] for found in links.found.values()])))


def _domains(names: Sequence[str], domains: DomainErrors, judged: bool) -> Iterator[DomainHealth]:
    for k, name in enumerate(names):
        yield _domain(name, domains.computing[k], float(domains.nis[k]) if judged else None)


def _domain(name: str, errors: Errors, nis: float | None) -> DomainHealth:
    # A low NIS is no fault: step times need not scatter.
    healthy = None if nis is None else nis <= HEALTHY[1]
    return DomainHealth(name, errors.count, errors.bias, errors.mape, nis, healthy)


def _figures(errors: Errors) -> tuple[int, float | None, float | None, float | None, float | None]:
    return errors.count, errors.bias, errors.mape, *(errors.covered or (None, None))
