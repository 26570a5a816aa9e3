"""A plan with the job, the domains and the links that it is for, from a plan file or from a run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.units import NS_PER_S
from replay.log.run_log import RunReader
from replay.planning import plan_file, record
from replay.run import runner
from replay.store import run_index, world_reconstruction
from replay.store.decision_codec import plan_in_force, view_from_json
from replay.store.run_header import from_payload
from replay.store.run_kind import require_plans
from twin.core.domain import Domain, LinkState
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.core.transformer import Transformer
from twin.costs.stage_costs import slots, stage_spans
from twin.estimation.estimator import DEAD, Estimator
from twin.scenario.prepare import cost_models

FILES = (".yaml", ".yml")
"""Endings of the names of plan files; all else is a run."""


@dataclass(frozen=True, slots=True)
class ModelPart:
    """Layers `first` to `past` - 1 of the model: chunk `chunk` of stage `stage`, which lies in `domain`."""

    stage: int
    chunk: int
    domain: int
    tp: int
    first: int
    past: int


@dataclass(frozen=True, slots=True, eq=False)
class PlannedJob:
    """A plan and all that it refers to. `links`: those it was made for, None where they are not known."""

    name: str
    origin: str
    estimator: Estimator
    plan: Plan
    links: LinkState | None

    @property
    def job(self) -> JobSpec:
        """Model, batch and switches."""
        return self.estimator.job

    @property
    def model(self) -> Transformer:
        """Shape of the model."""
        return self.job.model

    @property
    def domains(self) -> tuple[Domain, ...]:
        """All domains of the cluster, used or not."""
        return self.estimator.cluster.domains

    @property
    def used(self) -> tuple[Domain, ...]:
        """Domains of the plan, in the order of its shares."""
        return tuple(self.domains[share.domain] for share in self.plan.shares)

    @property
    def iteration_s(self) -> float | None:
        """Seconds of an iteration under `links`; None where they are not known, or one is dead."""
        if self.links is None or (ns := self.estimator.iter_ns(self.plan, self.links)) == DEAD:
            return None
        return ns / NS_PER_S

    def following(self, plan: Plan) -> "PlannedJob":
        """Returns the same job with another plan."""
        return replace(self, plan=plan)

    def replica(self, number: int) -> "PlannedJob":
        """Returns one replica of local SGD as a job of its own domain; the job itself where it is one
        pipeline."""
        return self if self.plan.sync is None else self.following(self.plan.replica(number))

    def parts(self) -> tuple[ModelPart, ...]:
        """Returns chunk c of stage i at c S + i. Replicas have the parts of each replica."""
        plan = self.plan
        places = slots(plan.order, [(share.tp, share.pp) for share in plan.shares])
        spans = stage_spans(
            np.array([plan.cuts]), places, len(self.model.layers()), plan.chunks, plan.schedule
        )
        return tuple(
            ModelPart(
                n % len(places), n // len(places), places[n % len(places)].domain,
                places[n % len(places)].tp, int(first[0]), int(past[0]),
            )
            for n, (first, past) in enumerate(spans)
        )  # fmt: skip


def find(store: Path, name: str, decision: int | None = None) -> PlannedJob:
    """Returns the plan of a file that `twin plan --out` wrote (its name ends in .yaml), or of a run: the one
    in force after `decision`, None: at its end.

    Raises:
        UsageError: `decision` with a plan file, or the plan fits the scenario no longer. InputError: no plan
        file. NotFoundError: no such run or decision, or it has no plan.
    """
    path = Path(name)
    if path.suffix not in FILES:
        return of_run(store, run_index.find(store, name), decision)
    if decision is not None:
        raise UsageError(f"--decision {decision}: {name} is a plan file; only runs have decisions")
    return of_file(store, path)


def of_file(store: Path, path: Path) -> PlannedJob:
    """Returns the plan of a file; its links are typical ones of the lake, where it has them.

    Raises:
        InputError, UsageError: as `find`.
    """
    scenario = plan_file.world(path)
    plan = plan_file.read(path, scenario)
    try:
        links = record.load(store, scenario).typical
    except NotFoundError:  # an export does not depend on the links; what is said about times does
        links = None
    return _checked(PlannedJob(scenario.name, str(path), cost_models(scenario, store), plan, links))


def of_run(store: Path, run_id: str, decision: int | None = None) -> PlannedJob:
    """Returns the plan that a run has in force after a decision, under the links that it saw then.

    Raises:
        NotFoundError: as `find`.
    """
    reader = RunReader(run_index.folder(store, run_id))
    header = from_payload(reader.header())
    require_plans(run_id, header, "the export of a plan")
    setup = world_reconstruction.prepare(store, header)
    found, last = None, -1
    for event in reader.events():
        if event.type != "decided" or (decision is not None and event.payload["number"] > decision):
            continue
        last = event.payload["number"]
        if event.payload["plan"] is not None:
            found = event
    if decision is not None and last != decision:
        raise NotFoundError(f"{run_id}: no decision {decision}; its last one is {last}")
    if found is None:
        raise NotFoundError(f"{run_id}: no decision up to {last} has a plan; choose a later --decision")
    context = runner.context_of(header, setup, found.job)
    links = view_from_json(found.payload["observation"]).forecast.links()
    origin = f"decision {found.payload['number']} of {run_id}"
    plan = plan_in_force(found.payload["plan"])
    return _checked(PlannedJob(header.world["scenario"]["name"], origin, context.estimator, plan, links))


def _checked(job: PlannedJob) -> PlannedJob:
    """Returns the job, whose plan fits it.

    Raises:
        UsageError: it does not: a file that was edited.
    """
    problems: Sequence[str] = job.estimator.problem_texts(job.plan)
    if problems:
        raise UsageError(f"{job.origin}: the plan cannot run: {'; '.join(problems)}; make another")
    return job
