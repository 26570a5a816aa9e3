"""What MFU and money of a logged run need besides its events: the scenario's GPUs, prices and models."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from ingest.core.errors import TwinError
from replay.log.events import Json
from twin.core.domain import Cluster
from twin.estimation import training_cost
from twin.scenario import cluster_and_jobs
from twin.settings.scenario_file import Scenario


@dataclass(frozen=True, slots=True)
class CostInputs:
    """GPUs and prices of the sites, and FLOPs of a token of each job; "" is the scenario's own."""

    cluster: Cluster
    flops: dict[str, float]

    def flops_per_token(self, job: str) -> float:
        """Model FLOPs of a token; a job that the scenario does not list trains the scenario's model."""
        return self.flops.get(job, self.flops[""])

    def mean_peak(self, gpus: Sequence[int]) -> float:
        """Peak FLOP/s of a GPU, the mean over `gpus` (K,) held in each site."""
        peaks = [domain.gpu.peak_flops for domain in self.cluster.domains]
        return sum(n * peak for n, peak in zip(gpus, peaks, strict=True)) / max(1, sum(gpus))

    def held(self, shares: Sequence[Json]) -> list[int]:
        """GPUs (K,) of a logged plan."""
        counts = [0] * self.cluster.size
        for share in shares:
            counts[share["domain"]] = len(share.get("gpus", ()))
        return counts

    def unpriced(self, sites: Iterable[int]) -> tuple[str, ...]:
        """The sites of these whose GPUs have no price."""
        return training_cost.unpriced(self.cluster, sites)


def cost_inputs(scenario: Json) -> CostInputs | None:
    """The inputs from a logged scenario; None where this version cannot read it."""
    try:
        found = Scenario.model_validate(scenario)
        cluster, own = cluster_and_jobs.cluster(found.cluster, None), cluster_and_jobs.job(found)
        jobs = {one.name: one.spec for one in cluster_and_jobs.submissions(found)}
    except (TwinError, ValidationError, KeyError, ValueError):
        return None
    models = {"": own.model} | {name: spec.model for name, spec in jobs.items()}
    return CostInputs(cluster, {name: training_cost.flops_per_token(one) for name, one in models.items()})
