"""What a policy sees and what it answers. Nothing in here knows the future."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from twin.core.domain import Cluster
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.core.view import Forecast, View

__all__ = ["Candidate", "Context", "Decision", "Forecast", "Policy", "View"]


@dataclass(frozen=True, slots=True)
class Context:
    """What stays the same during a run; given to a policy once, at `reset`."""

    estimator: Estimator  # cost models over (cluster, model, job); the referee's own
    period_s: float  # time between periodic triggers
    restart_s: float  # fixed cost of a move
    weights: tuple[float, float, float]  # w1 efficiency, w2 utilisation, w3 cost; they sum to 1
    rng: np.random.Generator

    @property
    def cluster(self) -> Cluster:
        """The cluster that the estimator was made for."""
        return self.estimator.cluster


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that was compared, with what was expected of it."""

    plan: Plan
    score: float
    iter_s: float
    utilisation: float
    usd: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Hold (`plan is None`) or move to `plan`, and why."""

    plan: Plan | None
    reason: str
    candidates: tuple[Candidate, ...] = ()
    predicted_iter_s: float | None = None
    log_probability: float | None = None
    mask: tuple[bool, ...] = ()  # of a network: settings of dp and micro-batch that were open
    fallback: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # JSON values only


class Policy(Protocol):
    """`decide` is a pure function of the policy's own state, its generator and the view."""

    name: str

    def reset(self, context: Context) -> None:
        """Start a run: forget everything learned from an earlier one (not trained weights)."""
        ...

    def decide(self, view: View) -> Decision:
        """Choose now. The first call has `view.plan is None` and must answer with a plan.

        Raises:
            InfeasibleError: no plan of this policy fits the model.
        """
        ...
