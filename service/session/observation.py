"""Observations as clients send them: every item checked by itself, the good ones as plain tuples.

An item is a JSON object with `kind` and `epoch_ns` (UTC). A fault of one item is an answer, never an error of
the batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from ingest.core.errors import UsageError
from ingest.core.terminal import clipped, shown
from service.session.observation_items import (
    KINDS,
    MOST_REASON,
    DomainItem,
    LinkItem,
    ObservationItem,
    PlanItem,
    StepItem,
    first_fault,
)
from service.session.reported_time import ReportedTime
from twin.core.plan import Plan, to_json
from twin.estimation.estimator import Estimator
from twin.settings.plan_document import received_plan

Json = dict[str, Any]


class Refusal(NamedTuple):
    """An item of a batch that was not accepted, by its place in the batch, and why."""

    item: int
    reason: str


class LinkSample(NamedTuple):
    """A measured link; 0 bit/s: dead, 0 s: latency not measured."""

    item: int
    epoch_ns: int
    src: int
    dst: int
    bandwidth_bps: float
    latency_s: float


class StepTime(NamedTuple):
    """A step of a job that ended at `epoch_ns`; `job` is "" where the scenario has one."""

    item: int
    epoch_ns: int
    job: str
    number: int
    seconds: float
    sent: tuple[tuple[int, int, int, float], ...]  # source, target, bytes, seconds
    computed: tuple[tuple[int, float], ...]  # domain, seconds
    memory_bytes: int | None


class DomainState(NamedTuple):
    """GPUs of a domain that are alive, or its computing time over nominal; None: not observed."""

    item: int
    epoch_ns: int
    domain: int
    gpus: int | None
    slowdown: float | None


class PlanReport(NamedTuple):
    """A job says that it runs `plan`, or what became of an order."""

    item: int
    epoch_ns: int
    job: str
    state: str
    plan: Json | None
    order: int
    pause_s: float
    reason: str


Observation = LinkSample | StepTime | DomainState | PlanReport


class ItemError(Exception):
    """An item that cannot be accepted; its message is the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A batch of one client under its idempotency key.

    `own_clock` is false where the service itself has said the time of the items.
    """

    key: str
    client: str
    good: tuple[Observation, ...]
    refused: tuple[Refusal, ...]
    own_clock: bool = True

    def reported_time(self) -> ReportedTime | None:
        """Returns what the batch says about the clock of its client; None: nothing."""
        if not self.good or not self.own_clock:
            return None
        return ReportedTime(self.client, self.key, max(seen.epoch_ns for seen in self.good))


class ItemReader:
    """Reads items for one cluster and the jobs of `estimators` by name; "" is that of a scenario with one."""

    def __init__(self, estimators: Mapping[str, Estimator]) -> None:
        self._estimators = dict(estimators)
        self._cluster_domains = next(iter(self._estimators.values())).cluster.domains
        self._domains = {domain.name: k for k, domain in enumerate(self._cluster_domains)}

    def batch(self, key: str, client: str, items: Sequence[Any], *, own_clock: bool = True) -> Batch:
        """Returns the batch with its good items and its faulty ones."""
        good: list[Observation] = []
        refused: list[Refusal] = []
        for number, item in enumerate(items):
            try:
                good.append(self._observation(number, self._typed(item)))
            except ItemError as error:
                refused.append(Refusal(number, str(error)))
        return Batch(key, client, tuple(good), tuple(refused), own_clock)

    def _typed(self, item: Any) -> ObservationItem:
        """Returns an item as the model of its kind, of a job that is there."""
        if not isinstance(item, dict):
            raise ItemError("not a JSON object")
        kind = item.get("kind")
        model = KINDS.get(kind) if isinstance(kind, str) else None
        if model is None:
            raise ItemError(f"kind {shown(kind)}: there are {', '.join(KINDS)}")
        if (job := item.get("job", "")) != "" and (not isinstance(job, str) or job not in self._estimators):
            named = ", ".join(self._estimators)
            known = f"there are {named}" if named else "the scenario has one, without a name"
            raise ItemError(f"unknown job {shown(job)}: {known}")
        try:
            return model.model_validate(item)
        except ValidationError as error:
            raise ItemError(first_fault(error)) from error

    def _observation(self, number: int, item: ObservationItem) -> Observation:
        match item:
            case LinkItem():
                return self._link(number, item)
            case StepItem():
                return self._step(number, item)
            case DomainItem():
                return self._domain(number, item)
            case PlanItem():
                return self._plan(number, item)
        raise AssertionError(f"{type(item).__name__} is an observation without a reader")

    def _link(self, number: int, item: LinkItem) -> LinkSample:
        src, dst = self._known(item.src), self._known(item.dst)
        if src == dst:
            raise ItemError(f"unknown link {shown(item.src)} > {shown(item.dst)}: a domain and itself")
        return LinkSample(number, item.epoch_ns, src, dst, item.bandwidth_bps, item.latency_s or 0.0)

    def _step(self, number: int, item: StepItem) -> StepTime:
        job, known = self._job(item), self._known
        sent = tuple((known(src), known(dst), size, seconds) for src, dst, size, seconds in item.sent)
        computed = tuple((known(name), seconds) for name, seconds in item.compute_s.items())
        memory = item.memory_peak_bytes
        return StepTime(number, item.epoch_ns, job, item.step, item.seconds, sent, computed, memory)

    def _domain(self, number: int, item: DomainItem) -> DomainState:
        domain = self._known(item.domain)
        if item.gpus is not None and item.gpus > (most := self._cluster_domains[domain].gpus):
            raise ItemError(f"gpus {item.gpus}: outside 0 to {most}")
        if item.gpus is None and item.slowdown is None:
            raise ItemError("a domain is observed with gpus, slowdown or both")
        return DomainState(number, item.epoch_ns, domain, item.gpus, item.slowdown)

    def _plan(self, number: int, item: PlanItem) -> PlanReport:
        job = self._job(item)
        if item.state == "running":
            plan = to_json(self._legal(item.plan, self._estimators[job]))
            return PlanReport(number, item.epoch_ns, job, item.state, plan, -1, 0.0, "")
        if item.order is None:
            raise ItemError("order: a whole number is needed")
        reason = clipped(item.reason, MOST_REASON)
        return PlanReport(
            number, item.epoch_ns, job, item.state, None, item.order, item.pause_s or 0.0, reason
        )

    def _job(self, item: ObservationItem) -> str:
        """Returns the job that an item is of."""
        if item.job not in self._estimators:
            raise ItemError(f"job: the scenario has several, name one of {', '.join(self._estimators)}")
        return item.job

    def _legal(self, value: Json | None, estimator: Estimator) -> Plan:
        """Returns a plan that the cluster can run: nothing of it is computed before its size is known."""
        try:
            plan = received_plan(value)
        except UsageError as error:
            faults = [line.removeprefix("plan").lstrip(": ") for line in str(error).split("\n")]
            raise ItemError(clipped(f"plan: {'; '.join(faults)}", MOST_REASON)) from error
        domains = self._cluster_domains
        beyond = any(not 0 <= share.domain < len(domains) for share in plan.shares)
        layers = estimator.n_layers
        if beyond or plan.cuts[-1] != layers:
            raise ItemError(f"plan: shares name domains 0 to {len(domains) - 1} and have {layers} layers")
        if problems := estimator.problem_texts(plan):
            raise ItemError(f"plan: {problems[0]}")
        return plan

    def _known(self, name: str) -> int:
        found = self._domains.get(name)
        if found is None:
            raise ItemError(f"unknown domain {shown(name)}: there are {', '.join(self._domains)}")
        return found
