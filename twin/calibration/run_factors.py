"""What measured runs say about the constants: factors on times that the twin computes, by GPU model.

`compute` multiplies layers without their collectives; `links inside nodes` and `links between nodes` the time
of every message there: tensor-parallel collectives, gradient reduction, stage boundaries. A factor of 1 is
the twin as it is. Wide-area links stay as they are stated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from twin.calibration.least_squares import Fit
from twin.core.domain import Domain
from twin.costs.layer_compute import LayerTimes

COMPUTE, INSIDE, BETWEEN = "compute", "links inside nodes", "links between nodes"
NAMES = (COMPUTE, INSIDE, BETWEEN)
FREE_BPS = 1e30
"""Bandwidth of a link on which nothing takes time."""


@dataclass(frozen=True, slots=True, eq=False)
class RunFactors:
    """Fits by GPU model and name; `runs` are the measured runs that they were fitted to, `file_digest` is the
    SHA-256 of their table."""

    gpus: Mapping[str, Mapping[str, Fit]]
    runs: tuple[Mapping[str, Any], ...]
    file_digest: str

    def factor(self, gpu: str, name: str) -> float:
        """A fitted factor, 1 where none is fitted."""
        fit = self.gpus.get(gpu, {}).get(name)
        return 1.0 if fit is None else fit.values["factor"]

    def site(self, domain: Domain) -> Domain:
        """`domain` with slower or faster links."""
        inside, between = (self.factor(domain.gpu.name, name) for name in (INSIDE, BETWEEN))
        return replace(
            domain,
            intra_node_bps=domain.intra_node_bps / inside,
            intra_node_latency_s=domain.intra_node_latency_s * inside,
            inter_node_bps=domain.inter_node_bps / between,
            inter_node_latency_s=domain.inter_node_latency_s * between,
        )

    def layers(self, whole: LayerTimes, alone: LayerTimes, gpu: str) -> LayerTimes:
        """`whole` with its part without collectives, `alone`, multiplied."""
        more = self.factor(gpu, COMPUTE) - 1
        return LayerTimes(
            whole.forward_s + more * alone.forward_s, whole.backward_s + more * alone.backward_s
        )

    def to_json(self) -> dict[str, Any]:
        """Fits, and where they come from."""
        fits = {gpu: {name: fit.to_json() for name, fit in found.items()} for gpu, found in self.gpus.items()}
        return {"gpus": fits, "runs": [dict(run) for run in self.runs], "file_digest": self.file_digest}


def from_json(body: Mapping[str, Any]) -> RunFactors:
    """The factors that `to_json` wrote."""
    gpus = {gpu: {name: Fit(**fit) for name, fit in found.items()} for gpu, found in body["gpus"].items()}
    return RunFactors(gpus, tuple(body["runs"]), body["file_digest"])


def free(domain: Domain) -> Domain:
    """`domain` with links on which nothing takes time."""
    return replace(
        domain, intra_node_bps=FREE_BPS, inter_node_bps=FREE_BPS, intra_node_latency_s=0.0,
        inter_node_latency_s=0.0,
    )  # fmt: skip
