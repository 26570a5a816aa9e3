"""Keys of a scenario file for disturbances: failures of links, GPUs and nodes, noise, slow domains."""

from pydantic import model_validator

from ingest.core.config import Config
from ingest.core.ranges import Label, Name
from twin.settings.ranges import (
    Clip,
    Daily,
    Deviation,
    Duration,
    Factor,
    Fraction,
    Gpus,
    Hours,
    Period,
    Seconds,
    Slowness,
)


class Outage(Config):
    """Link that is dead for a while; seconds since the start of the window."""

    src: Label
    dst: Label
    at_s: Seconds
    for_s: Duration
    both_ways: bool = True


class LinkChange(Config):
    """Link with other bandwidth or latency than measured, for what-if questions.

    Without `at_s` the change holds in the past too: filters are trained on it. With it, the change comes
    unexpectedly, so many seconds after the start of the window. `*` stands for every domain.
    """

    src: Label
    dst: Label
    bandwidth_factor: Factor = 1.0
    latency_factor: Factor = 1.0
    at_s: Seconds | None = None
    for_s: Duration | None = None  # to the end of the window by default
    both_ways: bool = False

    @model_validator(mode="after")
    def _when(self) -> "LinkChange":
        if self.for_s is not None and self.at_s is None:
            raise ValueError("for_s needs at_s, the time of the change")
        return self


class GpuFault(Config):
    """GPUs of a domain that are gone for a while; seconds since the start of the window."""

    domain: Label
    gpus: Gpus
    at_s: Seconds
    for_s: Duration


class NodeFailures(Config):
    """Whole nodes are lost at random, independently, and come back.

    For orientation: 419 unexpected interruptions in 54 days on 16,384 H100 are one in 51,000 GPU hours
    (Llama 3 405B, arXiv 2407.21783, section 3.3.4).
    """

    mtbf_gpu_h: Hours  # mean time between failures of one GPU, hours; any GPU takes its node with it
    repair_s: Duration = 3600  # mean, exponential


class FaultTrace(Config):
    """Losses of nodes from a data set of the lake (table `faults`).

    Hosts, in the order of their names, are assigned to the domains in turn; each fault takes one node. Time
    0 is `from_s` after the first fault of the data set. A fault without a repair lasts `repair_s`.
    """

    dataset: Name
    from_s: Seconds = 0
    repair_s: Duration = 3600
    kinds: tuple[Label, ...] = ()  # empty: all


class Slowdown(Config):
    """Domain whose compute takes `factor` times as long for a while."""

    domain: Label
    factor: Slowness
    at_s: Seconds
    for_s: Duration


class JitterSettings(Config):
    """Scatter of the computing time from iteration to iteration, from the `step_times` of a data set."""

    dataset: Name
    job: Label | None = None  # one job of it; all by default


class ProfileSettings(Config):
    """Layer times from the profiles of a data set of the lake instead of the models."""

    dataset: Name
    model: Label | None = None  # name of the scenario's model in the data set; its own by default


class Noise(Config):
    """Multiplicative Ornstein-Uhlenbeck noise 1 + eps on every bandwidth, eps clipped to +-`clip`."""

    clip: Clip = 0.3
    sd: Deviation = 0.15  # stationary standard deviation of eps before clipping
    tau_s: Duration = 600  # correlation time
    step_s: Period = 30


class Regime(Config):
    """Random intervals on each link: `per_day` on average, exponential lengths of mean `mean_s`."""

    per_day: Daily
    mean_s: Duration
    factor: Fraction = 0.0  # of the bandwidth that is left; 0 = outage


class Perturbation(Config):
    """Seeded changes on top of a trace; bandwidth only."""

    noise: Noise | None = None
    regimes: tuple[Regime, ...] = ()
