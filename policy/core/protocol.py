"""The contract of a policy: inputs from the past and present alone in, a decision out."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from twin.core.domain import Cluster
from twin.core.link_history import LinkHistory
from twin.core.plan import Plan
from twin.core.view import Forecast, View
from twin.estimation.estimator import Estimator

__all__ = ["Candidate", "Context", "Decision", "Forecast", "Policy", "View"]


@dataclass(frozen=True, slots=True)
class Context:
    """Constants of a run; passed to a policy once, at `reset`."""

    estimator: Estimator  # the cost models of the twin for this cluster and job
    period_s: float  # time between periodic triggers
    restart_s: float  # fixed cost of a migration
    weights: tuple[float, float, float]  # w1 efficiency, w2 utilisation, w3 cost; they sum to 1
    rng: np.random.Generator
    history: LinkHistory | None = None  # of the links before the run; None where nothing is known
    adaptive: float = 0.0  # gain by which weights follow the network (`policy.control.adaptive_weights`)
    estimator_of: Callable[[str], Estimator] | None = None  # of the jobs in `View.others`, by name

    @property
    def cluster(self) -> Cluster:
        """The cluster of the estimator."""
        return self.estimator.cluster


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that was considered, with its expected outcome."""

    plan: Plan
    score: float
    iter_s: float
    utilisation: float
    usd: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Hold (`plan is None`) or migrate to `plan`, with the reason."""

    plan: Plan | None
    reason: str
    candidates: tuple[Candidate, ...] = ()
    predicted_iter_s: float | None = None
    log_probability: float | None = None
    mask: tuple[bool, ...] = ()  # of a network: legal settings of dp and micro-batch
    fallback: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # JSON values only

    def with_extra(self, **values: Any) -> "Decision":
        """Returns the decision with these values added to `extra`."""
        return replace(self, extra=self.extra | values)


class Policy(Protocol):
    """`decide` is a pure function of the policy's own state, its generator and the view."""

    name: str

    def reset(self, context: Context) -> None:
        """Starts a run: clears all state of an earlier one but trained weights."""
        ...

    def decide(self, view: View) -> Decision:
        """Returns the decision. The first call has `view.plan is None` and must return a plan.

        Raises:
            InfeasibleError: no plan of this policy fits the model.
        """
        ...
