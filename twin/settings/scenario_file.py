"""Keys of a scenario file: cluster, job, source of the links, control; typed, every key checked."""

from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, ValidationInfo, model_serializer, model_validator

from ingest.core.config import Config, suggestion
from ingest.core.names import STORED
from ingest.core.ranges import Label, Name, Text
from ingest.core.terminal import shown
from twin.core import schedules
from twin.core.plan import PointToPoint, Recompute, Schedule
from twin.core.switches import ContextExchange
from twin.settings.disturbances import (
    FaultTrace,
    GpuFault,
    JitterSettings,
    LinkChange,
    NodeFailures,
    Outage,
    Perturbation,
    ProfileSettings,
    Slowdown,
)
from twin.settings.ranges import (
    AdaptiveGain,
    Bytes,
    Change,
    Chunks,
    Clock,
    Deviation,
    Duration,
    Gigabytes,
    Gpus,
    Imbalance,
    Jobs,
    Overhead,
    Period,
    PositiveFraction,
    Priority,
    Rank,
    Rate,
    Seconds,
    Seed,
    Sequences,
    Skipped,
    Teraflops,
    TokenRate,
    Tokens,
    Usd,
    Watts,
    Weight,
    ZeroStage,
)
from twin.settings.wan_links import WanSettings

MOST_ENTRIES = {
    "cluster.domains": (256, "each pair of them is a link with a series of its own"),
    "job.micro_batches": (64, "each is a size that planners try"),
    "control.horizons_s": (64, "each is a forecast for every link"),
    "jobs": (1_000, "each has decisions of its own"),
    "perturbation.regimes": (64, "each changes every link"),
    "outages": (1_000, "`perturbation` draws any number"),
    "link_changes": (1_000, "each changes whole series"),
    "gpu_faults": (1_000, "`node_failures` draws any number"),
    "slowdowns": (1_000, "`jitter` scatters computing times"),
}
"""Most entries of each list, and why."""


LATER_JOB_KEYS = (
    "schedules", "sequence_parallel", "context_parallel", "context_exchange", "ep", "expert_imbalance",
    "lora",
)  # fmt: skip


class LoraSettings(Config):
    """Low-rank adapters, which alone are trained."""

    rank: Rank
    targets: tuple[Label, ...] = ("q", "v")  # q, k, v, o; gate, up, down of an MLP


class JobSettings(Config):
    """Training job; the model itself is named by `Scenario.model`."""

    global_batch: Sequences  # sequences an iteration
    micro_batches: Annotated[
        tuple[Sequences, ...], Field(min_length=1)
    ]  # allowed micro-batch sizes, sequences
    schedule: Schedule = "1f1b"
    p2p: PointToPoint = "blocking"
    recompute: Recompute = "full"
    zero: ZeroStage = 1
    chunks: Chunks = 1  # parts of the model in each stage; two or more with `interleaved`, 2 with `zb-v`
    schedules: tuple[Schedule, ...] = ()  # those that plans may choose from; without them `schedule` alone
    sequence_parallel: bool = False  # tensor groups split norms, dropout and residuals over the tokens
    context_parallel: Gpus = 1  # ranks that split every sequence; dp of a plan counts them
    context_exchange: ContextExchange = "ring"  # of keys and values between them
    ep: Annotated[tuple[Gpus, ...], Field(min_length=1, max_length=64)] = (
        1,  # degrees of expert parallelism that plans may have; one that divides their dp
    )
    lora: LoraSettings | None = None
    expert_imbalance: Imbalance = 1.0  # tokens of the busiest of the ranks that share experts, over the mean

    @model_validator(mode="after")
    def _chunks_fit(self) -> "JobSettings":
        if fault := schedules.chunk_fault(self.schedule, self.chunks):
            raise ValueError(f"chunks: {fault}")
        if fault := schedules.choice_fault(self.schedule, self.schedules):
            raise ValueError(f"schedules: {fault}")
        return self

    @model_serializer(mode="wrap")
    def _plain(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omits keys that came later where they have their defaults: scenarios without them keep the digest
        that their runs have recorded."""
        fields: dict[str, Any] = written(self)
        defaults = {name: type(self).model_fields[name].default for name in LATER_JOB_KEYS}
        unset = {name for name, value in defaults.items() if getattr(self, name) == value}
        return {name: value for name, value in fields.items() if name not in unset}


def _without_limits(fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` without limits of GPUs that are None."""
    unset = {name for name in ("power_cap_w", "clock_cap") if fields.get(name) is None}
    return {name: value for name, value in fields.items() if name not in unset}


class HardwareSettings(Config):
    """Hardware of every domain that sets no other."""

    gpu: Label
    gpus_per_node: Gpus
    intra_node_bps: Rate  # per GPU and direction
    inter_node_bps: Rate  # per GPU and direction
    intra_node_latency_s: Seconds
    inter_node_latency_s: Seconds
    usd_per_gpu_hour: Usd
    power_cap_w: Watts | None = None  # limit of each GPU's power
    clock_cap: Clock | None = None  # limit of its clock, as a share of the clock of its peak

    @model_serializer(mode="wrap")
    def _plain(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omits limits that are not set: such scenarios keep the digest that their runs have recorded."""
        return _without_limits(written(self))


class DomainSettings(Config):
    """One domain; a field left out is taken from `ClusterSettings.hardware`."""

    name: Label
    gpus: Gpus
    gpu: Label | None = None
    gpus_per_node: Gpus | None = None
    intra_node_bps: Rate | None = None
    inter_node_bps: Rate | None = None
    intra_node_latency_s: Seconds | None = None
    inter_node_latency_s: Seconds | None = None
    usd_per_gpu_hour: Usd | None = None
    egress_bps: Rate | None = None  # to all other domains together; no limit unless given
    ingress_bps: Rate | None = None  # from all other domains together
    pue: Overhead = 1.0  # energy of the site over that of its GPUs
    power_cap_w: Watts | None = None
    clock_cap: Clock | None = None

    @model_serializer(mode="wrap")
    def _plain(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omits a `pue` of 1 and limits that are not set: scenarios without them keep the digest that their
        runs have recorded."""
        fields = _without_limits(written(self))
        return {name: value for name, value in fields.items() if name != "pue" or value != 1.0}


class PriceSettings(Config):
    """Egress prices, USD per 1e9 bytes: pair `a > b` before source domain before default."""

    default: Usd
    sources: dict[Label, Usd] = Field(default_factory=dict)
    pairs: dict[Label, Usd] = Field(default_factory=dict)

    def price(self, src: str, dst: str) -> float:
        """USD per gigabyte from domain `src` to `dst`."""
        return self.pairs.get(f"{src} > {dst}", self.sources.get(src, self.default))


class GpuSettings(Config):
    """A GPU model that the twin does not know, from its data sheet; dense rates."""

    teraflops: Teraflops  # of bf16 or fp16 products
    fp32_teraflops: Teraflops  # of fp32 (TF32) products
    memory_gb: Gigabytes
    memory_gb_s: Gigabytes  # bandwidth of the memory
    idle_w: Watts
    peak_w: Watts


class ClusterSettings(Config):
    """Domains and the price of a gigabyte between them."""

    hardware: HardwareSettings
    domains: Annotated[tuple[DomainSettings, ...], Field(min_length=2)]
    usd_per_gb: PriceSettings
    gpu_models: dict[Label, GpuSettings] = Field(default_factory=dict)  # models of one's own, by name

    @model_serializer(mode="wrap")
    def _plain(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omits `gpu_models` where there are none: such scenarios keep the digest of their runs."""
        fields: dict[str, Any] = written(self)
        return {name: value for name, value in fields.items() if name != "gpu_models" or value}


class ControlSettings(Config):
    """Times of decisions, their deadline, and the horizons of the forecasts given to the policy."""

    period_s: Period
    change_threshold: Change = 0.25  # relative move of a filtered bandwidth since the last decision
    horizons_s: Annotated[tuple[Seconds, ...], Field(min_length=1)] = (
        0,
        60,
        300,
        600,
        1800,
    )
    deadline_s: Duration = 2.0

    @model_validator(mode="after")
    def _ascending(self) -> "ControlSettings":
        if self.horizons_s[0] != 0 or list(self.horizons_s) != sorted(set(self.horizons_s)):
            raise ValueError("horizons_s starts with 0 (the present) and ascends")
        return self


class TelemetrySettings(Config):
    """Samples of the links: one each period, noisy and delayed."""

    period_s: Period = 30
    delay_s: Seconds = 1
    noise: Deviation = 0.03  # standard deviation of the log of a sample


FilterEngine = Literal["bank", "filterpy", "gru", "ewma", "persistence"]


class FilterSettings(Config):
    """Filter and forecast of the links from telemetry; `docs/measured/forecast.md` compares the engines.

    `bank`: two Kalman filters a link, all links as one array. `filterpy`: the same filters run by filterpy,
    slower. `gru`: a recurrent network trained on the training share. `ewma`, `persistence`: the weighted mean
    of the past samples, the last sample.
    """

    engine: FilterEngine = "bank"


class MovingSettings(Config):
    """Cost of a change of plan: copying over the links, then a restart; see `twin.world.plan_execution`."""

    mode: Literal["stop_and_copy", "pre_copy"] = "stop_and_copy"
    # pre_copy: share of a copy that every iteration makes stale; 2 bytes of gradient for 14 of state
    stale_share: PositiveFraction = 2 / 14
    restart_s: Seconds = 11.35
    bytes_per_parameter: Bytes = 14
    checkpoint_s: Duration = 1800  # a failure of GPUs loses the work since the last multiple of it


class SubmittedJob(Config):
    """One of several jobs; a key left out is that of the scenario."""

    name: Name
    submit_s: Seconds = 0
    priority: Priority = 0  # the greater one takes GPUs from the smaller
    model: Label | None = None
    job: JobSettings | None = None
    tokens: Tokens | None = None  # to train before it leaves; to the end of the run by default


class Arrivals(Config):
    """Jobs from the table `jobs` of a data set of the lake, in the order of submission.

    The work of a job is its GPU time, not its duration: GPUs x duration x `tokens_per_gpu_s`. Time 0 is the
    submission of the first job taken. With `spread_s` the last one is submitted so many seconds later, and
    all in between keep their proportions; dividing it by 1.2 is 20 % more load.
    """

    dataset: Name
    count: Jobs
    tokens_per_gpu_s: TokenRate
    skip: Skipped = 0  # jobs before the first one taken
    at_least_gpus: Gpus = 1  # smaller jobs are left out
    spread_s: Duration | None = None  # as the trace has it by default
    # what jobs of so many GPUs and more train; the scenario's model by default
    models: dict[Gpus, Label] = Field(default_factory=dict)
    urgent: tuple[Label, ...] = ()  # values of `priority` that mean priority 1; all others mean 0


class ObjectiveWeights(Config):
    """Weights of the objective, of sum 1; by default speed alone, the objective of the bound and of
    regret."""

    efficiency: Weight = 1.0
    utilisation: Weight = 0.0
    cost: Weight = 0.0
    adaptive: AdaptiveGain = 0.0  # gain by which the weights follow the network; 0: they are fixed

    @model_validator(mode="after")
    def _one(self) -> "ObjectiveWeights":
        if abs(sum(self.vector) - 1) > 1e-9:
            raise ValueError(f"efficiency + utilisation + cost must be 1, not {sum(self.vector):g}")
        return self

    @model_serializer(mode="wrap")
    def _plain(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omits `adaptive` where it is 0: such scenarios keep the digest that their runs have recorded."""
        fields: dict[str, Any] = written(self)
        return {name: value for name, value in fields.items() if name != "adaptive" or value}

    @property
    def vector(self) -> tuple[float, float, float]:
        """(w1, w2, w3)."""
        return (self.efficiency, self.utilisation, self.cost)

    @property
    def note(self) -> tuple[str, ...]:
        """Note beside results under weights other than speed alone."""
        if self.efficiency == 1:
            return ()
        weights = f"{self.efficiency:g}, {self.utilisation:g}, {self.cost:g}"
        if self.adaptive:
            weights += f" (adaptive, gain {self.adaptive:g})"
        caveat = "regret counts tokens alone, so that whoever follows these weights has some"
        return (f"weights {weights} of efficiency, utilisation and cost; {caveat}",)


class Scenario(Config):
    """One world to train in: cluster x model x links x control x disturbances."""

    name: Name
    about: Text = ""
    model: Label
    job: JobSettings
    cluster: ClusterSettings
    wan: WanSettings
    control: ControlSettings
    telemetry: TelemetrySettings = TelemetrySettings()
    filter: FilterSettings = FilterSettings()
    moving: MovingSettings = MovingSettings()
    outages: tuple[Outage, ...] = ()
    link_changes: tuple[LinkChange, ...] = ()
    gpu_faults: tuple[GpuFault, ...] = ()
    node_failures: NodeFailures | None = None
    fault_trace: FaultTrace | None = None
    slowdowns: tuple[Slowdown, ...] = ()
    jitter: JitterSettings | None = None
    jobs: tuple[SubmittedJob, ...] = ()
    arrivals: Arrivals | None = None
    perturbation: Perturbation = Perturbation()
    # constants of the cost models that `twin calibrate` fitted: a digest (or its beginning), or `latest`
    calibration: Name | None = None
    profiles: ProfileSettings | None = None
    weights: ObjectiveWeights = ObjectiveWeights()
    seed: Seed = 0

    @model_serializer(mode="wrap")
    def _plain(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omits a default `filter` and absent `profiles`: scenarios without them keep the digest that their
        runs have recorded."""
        fields: dict[str, Any] = written(self)
        if self.filter == FilterSettings():
            fields.pop("filter", None)  # absent where the caller asked for some fields only
        if self.profiles is None:
            fields.pop("profiles", None)
        return fields

    @property
    def domains(self) -> tuple[str, ...]:
        """Domain names in index order."""
        return tuple(domain.name for domain in self.cluster.domains)

    @property
    def several_jobs(self) -> bool:
        """True if jobs are listed or arrive, instead of one alone."""
        return bool(self.jobs) or self.arrivals is not None

    @model_validator(mode="after")
    def _few_entries(self, info: ValidationInfo) -> "Scenario":
        for key, (most, why) in MOST_ENTRIES.items():
            held = len(attrgetter(key)(self))
            if held > most and info.context != STORED:
                raise ValueError(f"{key} holds {held:,} entries; write at most {most:,}: {why}")
        return self

    @model_validator(mode="after")
    def _names_known(self) -> "Scenario":
        known = self.domains
        if len(set(known)) != len(known):
            raise ValueError("cluster.domains: a domain name appears twice")
        jobs = [job.name for job in self.jobs]
        if len(set(jobs)) != len(jobs):
            raise ValueError("jobs: a name appears twice")
        if self.jobs and self.arrivals is not None:
            raise ValueError("jobs come from `jobs` or from `arrivals`, not from both")
        for where, name in self._named():
            if name not in known:
                raise ValueError(f"{where} names the unknown domain {shown(name)}{suggestion(name, known)}")
        return self

    def _named(self) -> list[tuple[str, str]]:
        """Every key that names a domain, with the name."""
        prices = self.cluster.usd_per_gb
        named = [("cluster.usd_per_gb.sources", name) for name in prices.sources]
        named += [("wan.sites", name) for name in self.wan.sites]
        for what, source in self.wan.sources:
            named += [(f"wan.{what}.sites", name) for name in source.sites]
        for where, pairs in (("cluster.usd_per_gb.pairs", prices.pairs), ("wan.rtt_s", self.wan.rtt_s)):
            for key in pairs:
                parts = key.split(" > ")
                if len(parts) != 2:
                    raise ValueError(f"{where}: write a pair as 'a > b', not {shown(key)}")
                named += [(where, part) for part in parts]
        for outage in self.outages:
            named += [("outages", outage.src), ("outages", outage.dst)]
        for change in self.link_changes:
            named += [("link_changes", end) for end in (change.src, change.dst) if end != "*"]
        named += [("gpu_faults", fault.domain) for fault in self.gpu_faults]
        return named + [("slowdowns", slow.domain) for slow in self.slowdowns]
