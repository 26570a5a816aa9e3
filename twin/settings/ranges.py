"""Numbers of a scenario file: what each kind may be, and why no more."""

from typing import Annotated

from ingest.core.ranges import SEED_LIMIT, Within

_CENTURY = 3.2e9

Count = Annotated[int, Within(1, 1_000_000, "no job, trace or link has more")]
Jobs = Annotated[int, Within(1, 1_000, "each has decisions of its own")]
Gpus = Annotated[int, Within(1, 1_000_000, "the largest sites have some 200,000 GPUs")]
Sequences = Annotated[int, Within(1, 10_000_000, "the largest batches have some 100,000 sequences")]
Samples = Annotated[int, Within(1, 4_096, "a GPU takes some thousand short sequences at most")]
Chunks = Annotated[int, Within(1, 1_000, "the deepest models have some 200 layers")]
Rank = Annotated[int, Within(1, 100_000, "adapters have ranks of some 4 to 256")]
Processors = Annotated[int, Within(1, 10**9, "the largest machines have some 10 million cores")]
Skipped = Annotated[int, Within(0, 10**12, "no trace has more jobs")]
Tokens = Annotated[int, Within(1, 10**18, "counted in 64 bits")]
Priority = Annotated[int, Within(-1_000_000, 1_000_000, "only their order counts")]
Seed = Annotated[int, Within(0, SEED_LIMIT - 1, "seeds are logged as 64-bit integers")]

Rate = Annotated[float, Within(1, 1e18, "in bits per second; all links of a country carry less")]
Seconds = Annotated[float, Within(0, _CENTURY, "in seconds, up to a century")]
Duration = Annotated[float, Within(1e-9, _CENTURY, "in seconds, up to a century")]
Period = Annotated[float, Within(1e-3, _CENTURY, "in seconds; more than 1,000 a second cannot be computed")]
Hours = Annotated[float, Within(1, 1e12, "in hours")]
Usd = Annotated[float, Within(0, 1e6, "in US dollars")]
Factor = Annotated[float, Within(0, 1e6, "a factor on what was measured")]
Slowness = Annotated[float, Within(1, 1e6, "a factor on what was measured")]
Stretch = Annotated[float, Within(1e-6, 1e6, "a factor on the time axis")]
Deviation = Annotated[float, Within(0, 10, "a standard deviation of a logarithm or of a share")]
Fraction = Annotated[float, Within(0, 1, "a share")]
PositiveFraction = Annotated[float, Within(0, 1, "a share", above=True)]
Imbalance = Annotated[float, Within(1, 1_000, "the busiest has no less than the mean, nor more than all")]
Clip = Annotated[float, Within(0, 0.999999, "a share of the bandwidth, less than all", above=True)]
Change = Annotated[float, Within(0, 1e6, "a relative change", above=True)]
Weight = Annotated[float, Within(0, 1, "a share of the objective")]
AdaptiveGain = Annotated[float, Within(0, 0.3, "a weight never turns negative at three deviations")]
Bytes = Annotated[float, Within(0, 1e4, "in bytes; training keeps some 16 a parameter", above=True)]
TokenRate = Annotated[float, Within(0, 1e6, "in tokens a second and GPU", above=True)]
WeibullShape = Annotated[float, Within(0.05, 20, "a shape of Weibull gaps; 1 is a Poisson process")]
JobGigabytes = Annotated[float, Within(0, 9_000, "in 1e9 bytes")]
Teraflops = Annotated[float, Within(0.1, 1e6, "in TFLOP/s of dense products, no sparsity")]
Gigabytes = Annotated[float, Within(1, 1e6, "in 1e9 bytes, or 1e9 bytes a second")]
Watts = Annotated[float, Within(1, 1e5, "in watts of one GPU")]
Clock = Annotated[float, Within(0.15, 1, "a share of the clock of the peak; GPUs have none below")]
Overhead = Annotated[float, Within(1, 10, "energy of a site over that of its GPUs")]
Daily = Annotated[float, Within(0, 1_440, "one a minute")]
ZeroStage = Annotated[int, Within(0, 3, "the stages of ZeRO")]
