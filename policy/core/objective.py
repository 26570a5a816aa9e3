"""The objective of a plan over a period of time, under the weights of the run.

    R = w1 (T_base - T)/T_base + w2 U - w3 C/C_base

T is seconds per iteration, migrations and waits included, U the mean utilisation of the active domains over
the same time, C the egress in USD per iteration; base is the static plan. With w = (1, 0, 0) plans are
ordered by speed.
"""

from dataclasses import dataclass


def speed_alone(weights: tuple[float, float, float]) -> bool:
    """Tells whether utilisation and money have no weight."""
    return weights[1:] == (0.0, 0.0)


def free_egress(weights: tuple[float, float, float]) -> bool:
    """Tells whether money has no weight, so that relays, whose egress is paid twice, cost nothing."""
    return weights[2] == 0.0


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The outcome of a plan over a period of time; `iter_s` is infinite when no iteration is done."""

    iter_s: float  # wall seconds per iteration
    utilisation: float
    usd: float  # egress per iteration


@dataclass(frozen=True, slots=True)
class Objective:
    """The weighted objective relative to `base`."""

    weights: tuple[float, float, float]
    base: PlanOutcome

    def value(self, outcome: PlanOutcome) -> float:
        """Returns R of an outcome; higher is better, minus infinity when no iteration is done."""
        if outcome.iter_s == float("inf"):
            return float("-inf")
        time, utilisation, cost = self.weights
        gain = (self.base.iter_s - outcome.iter_s) / self.base.iter_s
        return time * gain + utilisation * outcome.utilisation - cost * self._cost(outcome)

    def _cost(self, outcome: PlanOutcome) -> float:
        """Returns egress relative to the base; in USD where the base sends nothing."""
        return outcome.usd / self.base.usd if self.base.usd > 0 else outcome.usd
