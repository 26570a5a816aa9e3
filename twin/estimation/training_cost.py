"""What training costs: tokens per second, MFU, and money in its parts, per token and for a number of tokens.

Tables, reports, exports and the service take these figures from here.

* Tokens per second and USD per token count all time: pauses, moves and waiting included.
* Rent is the price of the GPUs for as long as a plan holds them. Sites whose GPUs have no price
  (`usd_per_gpu_hour: 0`) are named in `unpriced`: there the total is a lower limit.
* Egress is the price of bytes between sites, for training and for changes of plan.
* Electricity has no price in a scenario of training, and rented GPUs include it: it is given in kWh.
* MFU: the FLOPs of the model, without recompute, over the peak FLOPs of the GPUs while they are held.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ingest.core.errors import UsageError
from twin.core.domain import Cluster
from twin.core.plan import Plan
from twin.core.transformer import Transformer
from twin.estimation.estimator import Estimator
from twin.estimation.iteration_estimate import IterationEstimate

BILLION = 1e9
DAY_S = 86_400.0
JOULES_PER_KWH = 3.6e6
SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
MOST_TOKENS = 1e18


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """Time, money, energy and FLOPs of `tokens`. `peak_flops`: what the GPUs could have done while they were
    held; None, as `model_flops`, where GPU or model is not known."""

    tokens: float
    seconds: float
    rent_usd: float
    egress_usd: float
    energy_j: float
    model_flops: float | None
    peak_flops: float | None
    unpriced: tuple[str, ...] = ()

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second."""
        return _ratio(self.tokens, self.seconds)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation of the GPUs held."""
        if self.model_flops is None or self.peak_flops is None:
            return None
        return _ratio(self.model_flops, self.peak_flops)

    @property
    def total_usd(self) -> float:
        """Rent and egress."""
        return self.rent_usd + self.egress_usd

    def per_billion_tokens(self) -> dict[str, float | None]:
        """USD per 1e9 tokens in all and by part, and kWh; None without tokens."""
        parts = {"total": self.total_usd, "rent": self.rent_usd, "egress": self.egress_usd}
        each = {name: _scaled(_ratio(usd, self.tokens), BILLION) for name, usd in parts.items()}
        return each | {"energy_kwh": _scaled(_ratio(self.energy_j / JOULES_PER_KWH, self.tokens), BILLION)}

    def of(self, tokens: float) -> "TrainingCost | None":
        """The same pace and prices for another number of tokens; None where nothing was trained."""
        if not self.tokens or not self.seconds:
            return None
        factor = tokens / self.tokens
        return TrainingCost(
            tokens, self.seconds * factor, self.rent_usd * factor, self.egress_usd * factor,
            self.energy_j * factor, _scaled(self.model_flops, factor), _scaled(self.peak_flops, factor),
            self.unpriced,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The object `cost` of several answers."""
        return {
            "tokens_per_s": self.tokens_per_s,
            "mfu": self.mfu,
            "usd_per_1e9_tokens": self.per_billion_tokens(),
            "gpus_without_price": list(self.unpriced),
        }


def of_iteration(estimator: Estimator, plan: Plan, estimate: IterationEstimate) -> TrainingCost:
    """The cost of one iteration of a plan; of one that never ends it has no ratios."""
    cluster, ends = estimator.cluster, estimate.iter_s != float("inf")
    seconds = estimate.iter_s if ends else 0.0
    held = [(len(share.gpus), cluster.domains[share.domain]) for share in plan.shares]
    job = estimator.job
    return TrainingCost(
        tokens=estimator.tokens(plan) if ends else 0.0,
        seconds=seconds,
        rent_usd=estimate.gpu_usd if ends else 0.0,
        egress_usd=estimate.usd if ends else 0.0,
        energy_j=estimate.energy_j if ends else 0.0,
        model_flops=job.model.flops_per_sequence * job.global_batch if ends else 0.0,
        peak_flops=sum(count * domain.gpu.peak_flops for count, domain in held) * seconds,
        unpriced=unpriced(cluster, plan.order),
    )


def unpriced(cluster: Cluster, sites: Iterable[int]) -> tuple[str, ...]:
    """The sites whose GPUs have no price, each with its GPU."""
    domains = (cluster.domains[k] for k in sorted(sites))
    return tuple(f"{one.name} ({one.gpu.name})" for one in domains if one.usd_per_gpu_hour <= 0)


def flops_per_token(model: Transformer) -> float:
    """Model FLOPs of a token, forward and backward, no recompute."""
    return model.flops_per_sequence / model.seq


def token_count(text: str) -> float:
    """A number of tokens such as 1T, 300B, 1.5e12.

    Raises:
        UsageError: it is none.
    """
    found = re.fullmatch(
        r"\s*(\d+(?:\.\d+)?(?:[eE]\+?\d{1,2})?)\s*([KMBGT]?)\s*", text.replace(",", "").upper()
    )
    tokens = 0.0 if found is None else float(found[1]) * SUFFIXES[found[2]]
    if not 1 <= tokens <= MOST_TOKENS:
        raise UsageError(f"tokens {text[:40]!r}: write a number such as 300B or 1T, at most 1e18")
    return tokens


def _ratio(above: float, below: float) -> float | None:
    return above / below if below > 0 else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
