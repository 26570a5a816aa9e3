"""Keys of a scenario whose jobs come from a log and wait in a queue: its `jobs` is a mapping, not a list."""

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from ingest.core.config import Config, suggestion
from ingest.core.ranges import Label, Name, Text
from ingest.core.terminal import shown
from twin.settings.ranges import (
    Change,
    Deviation,
    Duration,
    Fraction,
    JobGigabytes,
    PositiveFraction,
    Processors,
    Samples,
    Seconds,
    Seed,
    WeibullShape,
)
from twin.settings.scenario_file import ClusterSettings, JobSettings
from twin.settings.wan_links import WanSettings
from twin.settings.window import Window

ArrivalProcess = Literal["trace", "poisson", "weibull", "hours-of-day"]
"""trace: as the log has them. The others are synthetic, of the same mean rate: gaps with an exponential
or a Weibull distribution, or a Poisson process whose rate follows the log's own hours of day."""


class Between(Config):
    """Part of a log, seconds since its first submission."""

    from_s: Seconds = 0
    to_s: Seconds

    @model_validator(mode="after")
    def _ordered(self) -> "Between":
        if self.from_s >= self.to_s:
            raise ValueError(f"from_s {self.from_s:g} is not before to_s {self.to_s:g}")
        return self


class LoggedJobs(Config):
    """Jobs of the lake's table `jobs`, and what is done to them, in this order."""

    dataset: Name
    file: Text | None = None  # of a data set with the queues of several clusters
    window: Window | Between = "all"  # a part of the time of submission
    thin: PositiveFraction = 1.0  # share of the jobs that is kept, drawn by the seed
    arrivals: ArrivalProcess = "trace"
    weibull_shape: WeibullShape | None = None  # of `arrivals: weibull`; by default that of the log's gaps
    load: Change = 1.0  # gaps between submissions are divided by it

    @model_validator(mode="after")
    def _shape_of_weibull(self) -> "LoggedJobs":
        if self.weibull_shape is not None and self.arrivals != "weibull":
            raise ValueError("weibull_shape belongs to `arrivals: weibull`")
        return self

    @property
    def source(self) -> str:
        """Returns the data set, with its file where one is named."""
        return self.dataset if self.file is None else f"{self.dataset}/{self.file}"


class JobData(Config):
    """Data of the jobs, which logs do not know: drawn by the seed, synthetic."""

    gb: JobGigabytes  # median of a job
    sd: Deviation = 0.0  # standard deviation of the logarithm
    sites: dict[Label, Change] = Field(default_factory=dict)  # shares of the jobs; without them all alike


class TrainedModels(Config):
    """Models that the jobs train, which logs do not know: drawn by the seed, synthetic. Each job takes the
    way to run its batch with the most goodput whose predicted memory fits; one that needs more than predicted
    fails and tries a smaller way."""

    models: dict[Label, Change]  # shares of the jobs, among the models that fit on the GPUs of a job
    gpu: Label = "A100-80"
    samples_per_gpu: Samples = 32
    margin: Fraction = 0.12  # of predicted memory that is kept free
    failure_s: Duration = 60  # from the start of a job to its failure


class NodeOutageSettings(Config):
    """Outages of nodes: those of a CSV file, or faults that are drawn by the seed, synthetic. `mtbf_h` is the
    mean time between a repair and the next fault of a node, `mttr_h` that of a repair."""

    file: Text | None = None  # node,down_s,up_s,kind
    mtbf_h: Change | None = None
    mttr_h: Change = 1.0
    checkpoint_interval_s: Seconds = 0  # of a run between checkpoints; 0: none are made

    @model_validator(mode="after")
    def _file_or_drawn(self) -> "NodeOutageSettings":
        if (self.file is None) == (self.mtbf_h is None):
            raise ValueError("say `file`, the outages themselves, or `mtbf_h`, to draw faults, and not both")
        return self


class QueueScenario(Config):
    """One queue: jobs of a log, the machine on which they wait, and the rules under which they are played.

    The machine is one pool (`processors`), a cluster (`nodes`), or several sites (`cluster` and `wan`)."""

    name: Name
    about: Text = ""
    jobs: LoggedJobs
    processors: Processors | None = None  # one pool of so many processors
    nodes: Text | None = None  # nodes x GPUs and their model, as `6 x 8 A100-80, 4 x 8 V100`
    outages: NodeOutageSettings | None = None  # of `nodes`
    placement: Label | None = None  # on nodes best-fit by default, over sites least-egress
    cluster: ClusterSettings | None = None  # sites, their GPUs and the price of what leaves them
    wan: WanSettings | None = None  # links between the sites
    data: JobData | None = None  # what jobs bring along, and where it lies
    # never: a job runs on one site. larger: those that fit on none run over several. any: all may
    spanning: Literal["never", "larger", "any"] = "never"
    model: Label | None = None  # what spanning jobs train; their rate is that of its plan
    job: JobSettings | None = None
    trained: TrainedModels | None = None  # on a pool: what jobs train, and what comes of their memory
    prediction: Literal["estimate", "actual", "twice-estimate"] = "estimate"
    rules: Label = "predictsim"
    seed: Seed = 0

    @model_validator(mode="after")
    def _one_machine(self) -> "QueueScenario":
        machines = (self.processors, self.nodes, self.cluster)
        if sum(one is not None for one in machines) != 1:
            raise ValueError("say `processors`, the size of one pool, or `nodes`, or `cluster`, and not both")
        if self.placement is not None and self.processors is not None:
            raise ValueError("placement: one pool of processors has no places; say `nodes` or `cluster`")
        if self.outages is not None and self.nodes is None:
            raise ValueError("outages: they are those of nodes; say `nodes`")
        return self

    @model_validator(mode="after")
    def _trained_on_a_pool(self) -> "QueueScenario":
        if self.trained is not None and self.processors is None:
            raise ValueError("trained: memory of jobs is played on one pool; say `processors`")
        return self

    @model_validator(mode="after")
    def _sites_whole(self) -> "QueueScenario":
        if (self.cluster is None) != (self.wan is None):
            raise ValueError("sites need both `cluster` and `wan`")
        if self.cluster is None and (self.data is not None or self.spanning != "never"):
            raise ValueError("`data` and `spanning` belong to a queue over sites; say `cluster` and `wan`")
        if self.spanning != "never" and (self.model is None or self.job is None):
            raise ValueError("spanning jobs take their rate from a plan; say `model` and `job`")
        names = () if self.cluster is None else [one.name for one in self.cluster.domains]
        for name in self.data.sites if self.data is not None else ():
            if name not in names:
                raise ValueError(f"data.sites names the unknown site {shown(name)}{suggestion(name, names)}")
        if self.cluster is not None and self.rules not in ("predictsim", "instant"):
            raise ValueError("rules: a queue over sites is played under `instant`")
        return self

    @model_serializer(mode="wrap")
    def _plain(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omits parts of a machine that is not there."""
        fields: dict[str, Any] = written(self)
        machine = (
            "processors", "nodes", "outages", "placement", "cluster", "wan", "data", "model", "job", "trained"
        )  # fmt: skip
        if self.cluster is None:
            fields.pop("spanning", None)
        return {name: value for name, value in fields.items() if name not in machine or value is not None}
