"""A scenario file becomes a `Setup`: everything a run is a function of, in one frozen value."""

from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.core import config, resources
from ingest.core.errors import NotFoundError, UsageError
from ingest.core.units import to_ns
from twin.calibration import calibration
from twin.core import gpu_models as gpu, transformer
from twin.traces import measured_links as measured
from twin.filters import filter_history as past
from twin.scenario import workload_records as records
from twin.calibration.calibration import Calibration
from twin.costs.layer_compute import layer_times
from twin.traces.time_range import Cut
from twin.core.domain import Cluster, Domain
from twin.scenario.fault_timeline import Fault
from twin.scenario.step_jitter import Factors
from twin.core.job import JobSpec
from twin.filters.link_filter import LinkFilter, LinkParameters
from twin.filters.filter_history import Sensing
from twin.traces.perturbation import altered, cut, perturb
from twin.scenario.workload_records import NOTHING, Records
from twin.settings.scenario_file import ClusterSettings, DomainSettings, JobSettings, Scenario
from twin.scenario.submission import Submission
from twin.traces.wan_trace import WanTrace
from twin.settings.window import Part, Seen, Span, Window, known_ns, known_share, split

if TYPE_CHECKING:
    from twin.estimate.estimator import Estimator

__all__ = ["Scenario", "Setup", "Window", "assemble", "digest", "load", "names", "prepare"]


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """One prepared world: the truth of a window, the job, and what was known before the window began.

    `filters` were fitted on the training share alone, and nothing after the beginning of a `span`; `start` is
    the filter that the past before the window leaves behind, None where there is no past. A run is a pure
    function of this value, the engine, the policy and the code.
    """

    scenario: Scenario
    cluster: Cluster
    job: JobSpec
    wan: WanTrace
    filters: LinkParameters
    start: LinkFilter | None
    window: str  # its name, or from when to when a span was
    dataset: str
    seed: int
    trace_digest: str  # of the whole series before windowing and perturbation
    jobs: tuple[Submission, ...] = ()  # empty: `job` alone, from the start to the end
    measured_faults: tuple[Fault, ...] = ()
    jitter: Factors | None = None  # quantiles of measured step times over their median
    inputs: tuple[tuple[str, str], ...] = ()  # name and digest of whatever else was read from the lake
    calibration: Calibration | None = None  # fitted constants of the cost models, None: the built-in ones
    span: Span | None = None

    def link_filter(self) -> LinkFilter:
        """A new filter over all links, in the state in which the window begins."""
        if self.start is not None:
            return deepcopy(self.start)
        asked = sensing(self.scenario)
        return LinkFilter(self.filters, self.cluster.size, asked.horizons_s, noise=asked.noise)

    def estimator(self, job: JobSpec | None = None) -> "Estimator":
        """The cost models of this world for `job`, by default the scenario's own."""
        from twin.estimate.estimator import Estimator  # brings numba, needed here only

        return Estimator(
            self.cluster, job or self.job, restart_s=self.scenario.moving.restart_s,
            compute=self.calibration or layer_times,
        )  # fmt: skip

    def header(self) -> dict[str, Any]:
        """What the first event of a run records about its world; JSON values only."""
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
        }


def names() -> tuple[str, ...]:
    """Names of the shipped scenarios."""
    return tuple(sorted(path.stem for path in resources.configs("scenarios").glob("*.yaml")))


def load(name_or_path: str) -> Scenario:
    """The shipped scenario of that name, or the YAML file at that path.

    Raises:
        NotFoundError: no such scenario. UsageError: the file does not fit; see `ingest.config.load`; or it
            asks for what cannot be built: an unknown model or GPU, GPUs that do not fill nodes.
    """
    if name_or_path.endswith((".yaml", ".yml")) or Path(name_or_path).is_file():
        path = Path(name_or_path)
        if not path.is_file():
            raise NotFoundError(f"scenario file {path} does not exist")
        return _buildable(config.load(Scenario, path), path)
    if name_or_path not in names():
        hint = config.suggestion(name_or_path, names())
        raise NotFoundError(f"no scenario and no file is called {name_or_path!r}{hint}")
    return config.load(Scenario, resources.configs("scenarios") / f"{name_or_path}.yaml")


def _buildable(scenario: Scenario, path: Path) -> Scenario:
    """The scenario of a file; what is wrong with its cluster or jobs is told with the name of the file."""
    try:
        _cluster(scenario.cluster, None)
        _job(scenario)
        _submissions(scenario)
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
    window: Part | Cut = "test",
    dataset: str | None = None,
    seed: int | None = None,
    seen: Seen | None = None,
) -> Setup:
    """Load the links of `scenario` from the lake and cut out `window`; `dataset` replaces all of its own.

    The filters are fitted on the first 70 % of the series, or on what came before a span that begins inside
    them, unperturbed; perturbation and outages change the
    window only. `seed` defaults to the scenario's. With `seen` the series is what a run of the past saw of
    it, though the data set has grown since; it is all of today's where that stretch is no longer what it was.

    `calibration: latest` becomes the digest of what is latest now, so that the run stays what it was.

    Raises:
        NotFoundError: the lake lacks the data set, or the store the calibration. UsageError: the data set
            does not fit the scenario, or what is cut out of it is not there or begins too early.
    """
    if dataset is not None:
        scenario = scenario.model_copy(update={"wan": scenario.wan.replaced(dataset)})
    constants = None
    if scenario.calibration is not None:
        constants = calibration.find(store, scenario.calibration)
        scenario = scenario.model_copy(update={"calibration": constants.digest})
    if isinstance(window, Cut):
        today = measured.load(store, scenario.wan, scenario.domains)
        window = window.of(today, past.least_ns(today, sensing(scenario)), scenario.wan.stretch != 1)
    whole = _links(store, scenario, window, seen)
    found = records.load(store, scenario, _job(scenario))
    return assemble(scenario, whole, window=window, seed=seed, found=found, constants=constants)


def _links(store: Path, scenario: Scenario, window: Part, seen: Seen | None) -> WanTrace:
    """The whole series of every link: today's, or the part of it that gives what was `seen`."""
    share = known_share(window)
    today = measured.load(store, scenario.wan, scenario.domains, share)
    if seen is None or today.digest == seen.digest:
        return today
    between = seen.extent(window, scenario.wan.stretch)
    with suppress(NotFoundError, UsageError):  # a link has no sample of that time any more
        then = measured.load(store, scenario.wan, scenario.domains, share, between)
        if then.digest == seen.digest:
            return then
    return today


def assemble(
    scenario: Scenario,
    whole: WanTrace,
    *,
    window: Part = "test",
    seed: int | None = None,
    filters: LinkParameters | None = None,
    found: Records = NOTHING,
    constants: Calibration | None = None,
) -> Setup:
    """`prepare` on a trace that is already at hand; `filters` replaces the fitted ones, `found` is what the
    scenario takes from other tables of the lake, `constants` what its `calibration` names."""
    seed = scenario.seed if seed is None else seed
    measured_digest = whole.digest
    always = [change for change in scenario.link_changes if change.at_s is None]
    surprises = [change for change in scenario.link_changes if change.at_s is not None]
    whole = altered(whole, always)
    start_ns, end_ns = split(whole.end_ns, window)
    asked = sensing(scenario)
    filters = filters or _fitted(_Train.of(whole.window(0, known_ns(whole.end_ns, window))), asked)
    truth = perturb(whole.window(start_ns, end_ns), scenario.perturbation, seed)
    return Setup(
        scenario=scenario,
        cluster=_cluster(scenario.cluster, constants),
        job=_job(scenario),
        wan=cut(altered(truth, surprises), scenario.outages),
        filters=filters,
        start=past.warm(filters, whole, start_ns, asked),
        window=str(window),
        span=window if isinstance(window, Span) else None,
        dataset=scenario.wan.title,
        seed=seed,
        trace_digest=measured_digest,
        jobs=_submissions(scenario) + found.arrivals,
        measured_faults=found.faults,
        jitter=found.jitter,
        inputs=found.digests,
        calibration=constants,
    )


@dataclass(frozen=True, slots=True)
class _Train:
    """A training window, equal to others of the same content."""

    digest: str
    capacity: bytes
    trace: WanTrace = field(compare=False)

    @classmethod
    def of(cls, trace: WanTrace) -> "_Train":
        return cls(trace.digest, b"" if trace.capacity_bps is None else trace.capacity_bps.tobytes(), trace)


@lru_cache(maxsize=8)
def _fitted(train: _Train, asked: Sensing) -> LinkParameters:
    """Filters fitted once for all runs of a process on the same measurements."""
    return past.fit(train.trace, asked)


def sensing(scenario: Scenario) -> Sensing:
    """How the filters of a scenario are fed and asked."""
    telemetry = scenario.telemetry
    return Sensing(telemetry.period_s, tuple(scenario.control.horizons_s), telemetry.noise)


def _cluster(settings: ClusterSettings, constants: Calibration | None) -> Cluster:
    """The cluster; links are those of the scenario, a calibration tells what its GPUs draw."""
    domains = tuple(_domain(settings, domain) for domain in settings.domains)
    if constants is not None:
        domains = tuple(constants.site(domain, keep_links=True) for domain in domains)
    prices = tuple(
        tuple(0.0 if a is b else settings.usd_per_gb.price(a.name, b.name) for b in domains) for a in domains
    )
    return Cluster(domains, prices)


def _domain(settings: ClusterSettings, domain: DomainSettings) -> Domain:
    own = domain.model_dump(exclude_none=True)
    fields = settings.hardware.model_dump() | own
    if fields["gpus"] % fields["gpus_per_node"]:
        raise UsageError(
            f"domain {domain.name!r}: {fields['gpus']} GPUs do not fill nodes of {fields['gpus_per_node']}"
        )
    return Domain(**(fields | {"gpu": gpu.preset(fields["gpu"])}))


def _submissions(scenario: Scenario) -> tuple[Submission, ...]:
    return tuple(
        Submission(
            name=job.name,
            submit_ns=to_ns(job.submit_s),
            priority=job.priority,
            spec=_job(scenario, job.model, job.job),
            tokens=job.tokens,
        )
        for job in scenario.jobs
    )


def _job(scenario: Scenario, model: str | None = None, settings: JobSettings | None = None) -> JobSpec:
    job = settings or scenario.job
    return JobSpec(
        model=transformer.preset(model or scenario.model),
        global_batch=job.global_batch,
        micro_batches_allowed=job.micro_batches,
        schedule=job.schedule,
        p2p=job.p2p,
        recompute=job.recompute,
        zero=job.zero,
        chunks=job.chunks,
        bytes_per_moved_parameter=scenario.moving.bytes_per_parameter,
    )
