"""Observations as clients send them: every item checked by itself, the good ones as plain tuples.

An item is a JSON object with `kind` and `epoch_ns` (UTC). A fault of one item is an answer, never an error of
the batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ingest.core.errors import DamageError
from ingest.core.terminal import clipped, shown
from replay.store.decision_codec import plan_from_json, plan_to_json
from twin.estimation.estimator import Estimator

Json = dict[str, Any]
MOST_BPS = 1e15
MOST_S = 1e7
MOST_COUNT = 2**53
"""Largest bandwidth, duration and whole number that an observation may have."""
MOST_SENDS = 10_000
"""Sends in one step."""


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
    """A batch of one client under its idempotency key."""

    key: str
    client: str
    good: tuple[Observation, ...]
    refused: tuple[Refusal, ...]


class ItemReader:
    """Reads items for one cluster and the jobs of `estimators` by name; "" is that of a scenario with one."""

    def __init__(self, estimators: Mapping[str, Estimator]) -> None:
        self._estimators = dict(estimators)
        self._cluster_domains = next(iter(self._estimators.values())).cluster.domains
        self._domains = {domain.name: k for k, domain in enumerate(self._cluster_domains)}
        self._read: dict[str, Callable[[int, int, Json], Observation]] = {
            "link": self._link,
            "step": self._step,
            "domain": self._domain,
            "plan": self._plan,
        }

    def batch(self, key: str, client: str, items: Sequence[Any]) -> Batch:
        """Returns the batch with its good items and its faulty ones."""
        good: list[Observation] = []
        refused: list[Refusal] = []
        for number, item in enumerate(items):
            try:
                good.append(self._item(number, item))
            except ItemError as error:
                refused.append(Refusal(number, str(error)))
        return Batch(key, client, tuple(good), tuple(refused))

    def _item(self, number: int, item: Any) -> Observation:
        if not isinstance(item, dict):
            raise ItemError("not a JSON object")
        kind = item.get("kind")
        read = self._read.get(kind) if isinstance(kind, str) else None
        if read is None:
            raise ItemError(f"kind {shown(kind)}: there are {', '.join(self._read)}")
        if (job := item.get("job", "")) != "" and (not isinstance(job, str) or job not in self._estimators):
            named = ", ".join(self._estimators)
            known = f"there are {named}" if named else "the scenario has one, without a name"
            raise ItemError(f"unknown job {shown(clipped(str(job), 60))}: {known}")
        return read(number, _whole(item, "epoch_ns", 2**63 - 1), item)

    def _link(self, number: int, epoch_ns: int, item: Json) -> LinkSample:
        src, dst = self._known(item.get("src")), self._known(item.get("dst"))
        if src == dst:
            raise ItemError(f"unknown link {shown(item['src'])} > {shown(item['dst'])}: a domain and itself")
        bandwidth = _number(item, "bandwidth_bps", 0, MOST_BPS)
        latency = _number(item, "latency_s", 0, MOST_S) if item.get("latency_s") is not None else 0.0
        return LinkSample(number, epoch_ns, src, dst, bandwidth, latency)

    def _step(self, number: int, epoch_ns: int, item: Json) -> StepTime:
        memory = item.get("memory_peak_bytes")
        return StepTime(
            number,
            epoch_ns,
            self._job(item),
            _whole(item, "step", MOST_COUNT),
            _number(item, "seconds", 1e-9, MOST_S),
            self._sends(item.get("sent", [])),
            self._computations(item.get("compute_s", {})),
            None if memory is None else _whole(item, "memory_peak_bytes", MOST_COUNT),
        )

    def _sends(self, sent: Any) -> tuple[tuple[int, int, int, float], ...]:
        if not isinstance(sent, list) or len(sent) > MOST_SENDS:
            raise ItemError(f"sent: a list of at most {MOST_SENDS} sends")
        found = []
        for one in sent:
            if not isinstance(one, list) or len(one) != 4:
                raise ItemError("sent: each send is [source, target, bytes, seconds]")
            fields = {"bytes": one[2], "seconds": one[3]}
            size, seconds = _whole(fields, "bytes", MOST_COUNT), _number(fields, "seconds", 0, MOST_S)
            found.append((self._known(one[0]), self._known(one[1]), size, seconds))
        return tuple(found)

    def _computations(self, computed: Any) -> tuple[tuple[int, float], ...]:
        if not isinstance(computed, dict):
            raise ItemError("compute_s: an object of seconds by domain")
        return tuple((self._known(name), _number(computed, name, 0, MOST_S)) for name in computed)

    def _domain(self, number: int, epoch_ns: int, item: Json) -> DomainState:
        domain = self._known(item.get("domain"))
        most = self._cluster_domains[domain].gpus
        gpus = _whole(item, "gpus", most) if item.get("gpus") is not None else None
        slowdown = _number(item, "slowdown", 0.01, 1000) if item.get("slowdown") is not None else None
        if gpus is None and slowdown is None:
            raise ItemError("a domain is observed with gpus, slowdown or both")
        return DomainState(number, epoch_ns, domain, gpus, slowdown)

    def _plan(self, number: int, epoch_ns: int, item: Json) -> PlanReport:
        state = item.get("state")
        if state == "running":
            job = self._job(item)
            plan = self._legal(item.get("plan"), self._estimators[job])
            return PlanReport(number, epoch_ns, job, state, plan, -1, 0.0, "")
        if state not in ("applied", "refused"):
            raise ItemError(f"state {shown(state)}: there are running, applied, refused")
        pause = _number(item, "pause_s", 0, MOST_S) if item.get("pause_s") is not None else 0.0
        reason = clipped(str(item.get("reason", "")), 500)
        order = _whole(item, "order", MOST_COUNT)
        return PlanReport(number, epoch_ns, self._job(item), state, None, order, pause, reason)

    def _job(self, item: Json) -> str:
        """Returns the job that an item is of."""
        job = str(item.get("job", ""))
        if job not in self._estimators:
            raise ItemError(f"job: the scenario has several, name one of {', '.join(self._estimators)}")
        return job

    def _legal(self, value: Any, estimator: Estimator) -> Json:
        """Returns the plan as the log has it, checked against the cluster."""
        try:
            plan = plan_from_json(value) if isinstance(value, dict) else None
        except DamageError as error:
            raise ItemError(f"plan: {error}") from error
        if plan is None:
            raise ItemError("plan: an object as in the log is needed")
        domains = self._cluster_domains
        beyond = any(not 0 <= share.domain < len(domains) for share in plan.shares)
        layers = estimator.n_layers
        if beyond or plan.cuts[-1] != layers:
            raise ItemError(f"plan: shares name domains 0 to {len(domains) - 1} and have {layers} layers")
        if problems := estimator.problem_texts(plan):
            raise ItemError(f"plan: {problems[0]}")
        written = plan_to_json(plan)
        assert written is not None
        return written

    def _known(self, name: Any) -> int:
        found = self._domains.get(name) if isinstance(name, str) else None
        if found is None:
            raise ItemError(f"unknown domain {shown(name)}: there are {', '.join(self._domains)}")
        return found


def _number(item: Json, name: str, least: float, most: float) -> float:
    value = item.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ItemError(f"{name}: a number is needed")
    if not least <= value <= most:  # false for NaN, too
        raise ItemError(f"{name} {shown(value)}: outside {least:g} to {most:g}")
    return float(value)


def _whole(item: Json, name: str, most: int) -> int:
    value = item.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ItemError(f"{name}: a whole number is needed")
    if not 0 <= value <= most:
        raise ItemError(f"{name} {shown(value)}: outside 0 to {most}")
    return value
