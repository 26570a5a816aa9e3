"""Keys of a scenario file for the links between its domains: data sets and modelling steps."""

from pydantic import Field, model_validator

from ingest.core.config import Config
from ingest.core.ranges import Label, Name
from twin.settings.ranges import Count, Rate, Seconds, Stretch


class SourceSettings(Config):
    """Data set that one property of the links is taken from."""

    dataset: Name
    file: Label | None = None  # only the samples of this file, where a set holds several grids
    sites: dict[Label, Label] = Field(default_factory=dict)  # domain -> site name in the data set


class WanSettings(Config):
    """Data sets of the links and modelling steps from a sample to an available bandwidth.

    Either one data set gives the samples (`dataset`), or the level of one is multiplied with the relative
    variation of another (`level`, `variation`). Available bandwidth = min(cap, streams x sample / streams of
    the sample); samples of kind `available` are taken as they are. One-way latency = half the round trip:
    that of `rtt`, else the sample's own, else the declared `rtt_s` of the pair or `default_rtt_s`.
    """

    dataset: Name | None = None
    level: SourceSettings | None = None  # median bandwidth of each link, with the streams of its samples
    variation: SourceSettings | None = None  # sample / mean of its link over the training share
    rtt: SourceSettings | None = None  # median round trip of each link, in place of that of the samples
    cap: SourceSettings | None = None  # median bandwidth of each link as measured, on top of `cap_bps`
    stretch: Stretch = 1.0  # of the time axis, where the spacing of samples is an assumption anyway
    streams: Count
    sample_streams: Count = 1  # of a sample that does not say
    min_duration_s: Seconds = 0  # shorter measurements are left out
    cap_bps: Rate
    sites: dict[Label, Label] = Field(
        default_factory=dict
    )  # domain -> site name in the data set, where they differ
    rtt_s: dict[Label, Seconds] = Field(default_factory=dict)  # "a > b", either direction
    default_rtt_s: Seconds | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "WanSettings":
        if (self.dataset is None) != (self.level is not None and self.variation is not None) or (
            self.dataset is not None and (self.level or self.variation)
        ):
            raise ValueError("name either dataset, or level and variation")
        return self

    @property
    def title(self) -> str:
        """Name of the data set, or of the two that are multiplied."""
        if self.level is None or self.variation is None:
            return self.dataset or ""
        return f"{self.level.dataset} x {self.variation.dataset}"

    @property
    def sources(self) -> tuple[tuple[str, SourceSettings], ...]:
        """Data sets of a recipe, by the property that is taken from them."""
        named = {"level": self.level, "variation": self.variation, "rtt": self.rtt, "cap": self.cap}
        return tuple((what, source) for what, source in named.items() if source is not None)

    def replaced(self, dataset: str) -> "WanSettings":
        """Same links from one data set alone, which replaces the whole recipe."""
        recipe = dict.fromkeys(("level", "variation", "rtt", "cap"))
        return self.model_copy(update={**recipe, "dataset": dataset, "stretch": 1.0})
