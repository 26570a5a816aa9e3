"""Prepares a scenario: everything that a run is a function of, in one frozen `PreparedScenario`."""

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.core import config, resources, text_files
from ingest.core.errors import NotFoundError, UsageError
from ingest.core.ranges import SEED_LIMIT
from ingest.core.terminal import clipped, shown
from twin.calibration import calibration, lake_profiles
from twin.calibration.calibration import Calibration
from twin.calibration.lake_profiles import LakeProfiles
from twin.core.domain import Cluster
from twin.core.job import JobSpec
from twin.core.link_history import LinkHistory
from twin.costs.layer_compute import layer_times
from twin.filters import history as filter_history
from twin.filters import long_run
from twin.filters.link_filter import AlarmRule, LinkFilter, TrainedLinks
from twin.filters.past_telemetry import TelemetryModel
from twin.scenario import cluster_and_jobs, queue_file, workload_records
from twin.scenario.fault_timeline import Fault
from twin.scenario.step_jitter import Factors
from twin.scenario.submission import Submission
from twin.scenario.workload_records import NO_RECORDS, Records
from twin.settings.scenario_file import Scenario
from twin.settings.window import Part, SeriesIdentity, TimeSpan, Window, known_ns, known_share, split
from twin.traces import measured_links
from twin.traces.perturbation import altered, cut, perturb
from twin.traces.time_range import TimeRange
from twin.traces.wan_trace import WanTrace

if TYPE_CHECKING:
    from twin.estimation.estimator import Estimator

__all__ = [
    "PreparedScenario",
    "Scenario",
    "Window",
    "assemble",
    "cost_models",
    "digest",
    "load",
    "names",
    "prepare",
]


IS_QUEUE = "is a queue of jobs from a log: `twin replay`, `twin bench` and `twin config` take it"


@dataclass(frozen=True, slots=True, eq=False)
class PreparedScenario:
    """One prepared world: ground truth of a window, job, and filters trained on what came before it.

    `filters` were trained on the training share alone, and on nothing after the beginning of a `span`;
    `start` is their state after the past before the window, `history` that past; both None where there is
    none. A run is a pure function of this value, the engine, the policy and the code.
    """

    scenario: Scenario
    cluster: Cluster
    job: JobSpec
    wan: WanTrace
    filters: TrainedLinks
    start: LinkFilter | None
    history: LinkHistory | None
    window: str  # its name, or begin and end of a span
    dataset: str
    seed: int
    trace_digest: str  # of the whole series before windowing and perturbation
    jobs: tuple[Submission, ...] = ()  # empty: `job` alone, from the start to the end
    measured_faults: tuple[Fault, ...] = ()
    jitter: Factors | None = None  # quantiles of measured step times over their median
    inputs: tuple[tuple[str, str], ...] = ()  # name and digest of every other table read from the lake
    calibration: Calibration | None = None  # fitted constants of the cost models, None: the built-in ones
    profiles: LakeProfiles | None = None  # measured layer times, which come before `calibration`
    span: TimeSpan | None = None
    alarm_rule: AlarmRule = "unforecast"  # of a run that is executed again, that of its time
    _estimators: "dict[JobSpec, Estimator]" = field(init=False, repr=False, default_factory=dict)

    def link_filter(self) -> LinkFilter:
        """New filter over all links, in its state at the beginning of the window."""
        telemetry = telemetry_model(self.scenario)
        if self.start is not None:
            new = deepcopy(self.start)
        else:
            new = LinkFilter(self.filters, self.cluster.size, telemetry.horizons_s, noise=telemetry.noise)
        new.alarm_rule = self.alarm_rule
        return new

    def estimator(self, job: JobSpec | None = None) -> "Estimator":
        """Cost models of this world for `job`, by default the scenario's own; equal jobs share them."""
        from twin.estimation.estimator import Estimator  # brings numba, needed here only

        job = job or self.job
        if job not in self._estimators:
            self._estimators[job] = Estimator(
                self.cluster, job, restart_s=self.scenario.moving.restart_s,
                compute=self.profiles or self.calibration or layer_times,
            )  # fmt: skip
        return self._estimators[job]

    def header(self) -> dict[str, Any]:
        """Description of the world in the first event of a run; JSON values only."""
        return {
            "scenario": self.scenario.model_dump(mode="json"),
            "dataset": self.dataset,
            "window": self.window,
            **({} if self.span is None else {"span": asdict(self.span)}),
            "seed": self.seed,
            "traces": {"source": self.trace_digest, "window": self.wan.digest, **dict(self.inputs)},
            "note": self.wan.note,
            "end_ns": self.wan.end_ns,
            "origin_epoch_ns": self.wan.origin_epoch_ns,
            # Absent in logs of the time before there was a second rule.
            **({} if self.alarm_rule == "restart" else {"alarm_rule": self.alarm_rule}),
        }


def names() -> tuple[str, ...]:
    """Names of the shipped scenarios."""
    return tuple(sorted(path.stem for path in resources.configs("scenarios").glob("*.yaml")))


def load(name_or_path: str) -> Scenario:
    """Scenario shipped under that name, or read from the YAML file at that path.

    Raises:
        NotFoundError: no such scenario. UsageError: the file does not fit (`ingest.core.config.load`), or
            names what cannot be built: an unknown model or GPU, GPUs that do not fill nodes.
    """
    is_file = text_files.is_file(name_or_path)
    if is_file or name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path)
        if not is_file:
            raise NotFoundError(
                f"scenario file {clipped(name_or_path)} does not exist; `twin init` writes one"
            )
        try:
            return _checked(config.load(Scenario, path), path)
        except UsageError as error:
            if queue_file.is_queue(path):
                raise UsageError(f"{path} {IS_QUEUE}") from error
            raise
    if name_or_path in queue_file.names():
        raise UsageError(f"{name_or_path} {IS_QUEUE}")
    if name_or_path not in names():
        hint = config.suggestion(name_or_path, names())
        raise NotFoundError(f"no scenario and no file is called {shown(name_or_path)}{hint}")
    return config.load(Scenario, resources.configs("scenarios") / f"{name_or_path}.yaml")


def _checked(scenario: Scenario, path: Path) -> Scenario:
    """Scenario of a file; errors of its cluster or jobs name the file."""
    try:
        cluster_and_jobs.cluster(scenario.cluster, None)
        cluster_and_jobs.job(scenario)
        cluster_and_jobs.submissions(scenario)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return scenario


def digest(scenario: Scenario) -> str:
    """SHA-256 of the resolved scenario."""
    return sha256(scenario.model_dump_json().encode()).hexdigest()


def prepare(
    scenario: Scenario,
    store: Path,
    *,
    window: Part | TimeRange = "test",
    dataset: str | None = None,
    seed: int | None = None,
    seen: SeriesIdentity | None = None,
) -> PreparedScenario:
    """Prepares `window` of the links of `scenario`, read from the lake; `dataset` replaces all of its own.

    Filters are trained on the first 70 % of the series, or on what came before a span that begins inside
    them, unperturbed; perturbation and outages change the window only. `seed` defaults to the scenario's.
    With `seen` the series is the part that an earlier run used, though the data set has grown since; all of
    today's series if that part has changed.

    `calibration: latest` becomes the digest of the latest one, so that the run can be computed again.

    Raises:
        NotFoundError: the lake lacks the data set, or the store the calibration. UsageError: the data set
            does not fit the scenario, or the window is not inside the series or begins too early.
    """
    if dataset is not None:
        scenario = scenario.model_copy(update={"wan": scenario.wan.replaced(dataset)})
    constants = None
    if scenario.calibration is not None:
        constants = calibration.find(store, scenario.calibration)
        scenario = scenario.model_copy(update={"calibration": constants.digest})
    if isinstance(window, TimeRange):
        today = measured_links.load(store, scenario.wan, scenario.domains)
        window = window.of(
            today, filter_history.least_ns(today, telemetry_model(scenario)), scenario.wan.stretch != 1
        )
    whole = _links(store, scenario, window, seen)
    found = workload_records.load(store, scenario, cluster_and_jobs.job(scenario))
    setup = assemble(scenario, whole, window=window, seed=seed, found=found, constants=constants)
    return setup if scenario.profiles is None else with_profiles(setup, store)


def with_profiles(setup: PreparedScenario, store: Path) -> PreparedScenario:
    """`setup` with the layer times of the data set that its scenario names."""
    jobs = (setup.job, *(submitted.spec for submitted in setup.jobs))
    found = _profiles(setup.scenario, store, setup.cluster, jobs, setup.calibration)
    return replace(setup, profiles=found, inputs=(*setup.inputs, ("profiles", found.digest)))


def _profiles(
    scenario: Scenario, store: Path, cluster: Cluster, jobs: Sequence[JobSpec], constants: Calibration | None
) -> LakeProfiles:
    """Layer times of the data set that a scenario names, for all `jobs`, the scenario's own first."""
    wanted = scenario.profiles
    assert wanted is not None
    names = {} if wanted.model is None else {jobs[0].model.name: wanted.model}
    found = lake_profiles.load(store, wanted.dataset, constants or layer_times, names)
    for job in jobs:
        lake_profiles.check(found, job.model, cluster.domains)
    return found


def cost_models(scenario: Scenario, store: Path) -> "Estimator":
    """Cost models of a scenario's cluster and own job, without its links: what `PreparedScenario.estimator`
    returns.

    Raises:
        NotFoundError: the store lacks the calibration or the profiles. UsageError: an unknown model or GPU.
    """
    from twin.estimation.estimator import Estimator  # brings numba, needed here only

    constants = None if scenario.calibration is None else calibration.find(store, scenario.calibration)
    cluster, job = cluster_and_jobs.cluster(scenario.cluster, constants), cluster_and_jobs.job(scenario)
    measured = None if scenario.profiles is None else _profiles(scenario, store, cluster, [job], constants)
    compute = measured or constants or layer_times
    return Estimator(cluster, job, restart_s=scenario.moving.restart_s, compute=compute)


def _links(store: Path, scenario: Scenario, window: Part, seen: SeriesIdentity | None) -> WanTrace:
    """Whole series of every link: today's, or the part of it with the digest of `seen`."""
    share = known_share(window)
    today = measured_links.load(store, scenario.wan, scenario.domains, share)
    if seen is None or today.digest == seen.digest:
        return today
    between = seen.extent(window, scenario.wan.stretch)
    with suppress(NotFoundError, UsageError):  # a link has no sample of that time any more
        then = measured_links.load(store, scenario.wan, scenario.domains, share, between)
        if then.digest == seen.digest:
            return then
    return today


def assemble(
    scenario: Scenario,
    whole: WanTrace,
    *,
    window: Part = "test",
    seed: int | None = None,
    filters: TrainedLinks | None = None,
    found: Records = NO_RECORDS,
    constants: Calibration | None = None,
) -> PreparedScenario:
    """`prepare` on a trace that is already loaded.

    `filters` replaces the trained ones, `found` are the records of other tables of the lake, `constants` the
    calibration that the scenario names.
    """
    seed = scenario.seed if seed is None else seed
    if not 0 <= seed < SEED_LIMIT:
        raise UsageError(f"seed {shown(seed)}: seeds are 0 to 2**63 - 1, which logs hold as 64-bit integers")
    measured_digest = whole.digest
    permanent = [change for change in scenario.link_changes if change.at_s is None]
    timed = [change for change in scenario.link_changes if change.at_s is not None]
    whole = altered(whole, permanent)
    start_ns, end_ns = split(whole.end_ns, window)
    telemetry = telemetry_model(scenario)
    if filters is None:
        past = _Train.of(whole.window(0, known_ns(whole.end_ns, window)))
        filters = _fitted(past, telemetry, scenario.filter.engine)
    truth = perturb(whole.window(start_ns, end_ns), scenario.perturbation, seed)
    return PreparedScenario(
        scenario=scenario,
        cluster=cluster_and_jobs.cluster(scenario.cluster, constants),
        job=cluster_and_jobs.job(scenario),
        wan=cut(altered(truth, timed), scenario.outages),
        filters=filters,
        start=filter_history.warm(filters, whole, start_ns, telemetry),
        history=long_run.before(whole, start_ns, telemetry),
        window=str(window),
        span=window if isinstance(window, TimeSpan) else None,
        dataset=scenario.wan.title,
        seed=seed,
        trace_digest=measured_digest,
        jobs=cluster_and_jobs.submissions(scenario) + found.arrivals,
        measured_faults=found.faults,
        jitter=found.jitter,
        inputs=found.digests,
        calibration=constants,
    )


@dataclass(frozen=True, slots=True)
class _Train:
    """Training window, equal to others of the same content."""

    digest: str
    capacity: bytes
    trace: WanTrace = field(compare=False)

    @classmethod
    def of(cls, trace: WanTrace) -> "_Train":
        return cls(trace.digest, b"" if trace.capacity_bps is None else trace.capacity_bps.tobytes(), trace)


@lru_cache(maxsize=8)
def _fitted(train: _Train, telemetry: TelemetryModel, engine: str) -> TrainedLinks:
    """Filters trained once for all runs of a process on the same measurements."""
    return filter_history.fit(train.trace, telemetry, engine)


def telemetry_model(scenario: Scenario) -> TelemetryModel:
    """Telemetry and forecast horizons of a scenario, as its filters need them."""
    telemetry = scenario.telemetry
    return TelemetryModel(telemetry.period_s, tuple(scenario.control.horizons_s), telemetry.noise)
