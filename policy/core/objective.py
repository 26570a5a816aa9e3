"""What a plan is worth over a stretch of time, with the weights of the run: one definition for every planner.

    R = w1 (T_base - T)/T_base + w2 U - w3 C/C_base        (spec 4.2, with the static plan as base)

T is seconds per iteration with moving and waiting included, U the mean utilisation of the active domains
over the same time, C the egress in USD per iteration. With w = (1, 0, 0) the order of plans is that of pure
speed.
"""

from dataclasses import dataclass


def speed_alone(weights: tuple[float, float, float]) -> bool:
    """Whether neither utilisation nor money counts."""
    return weights[1:] == (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plan brings over a stretch of time; `iter_s` is infinite when nothing gets done."""

    iter_s: float  # wall seconds per iteration
    utilisation: float
    usd: float  # egress per iteration


@dataclass(frozen=True, slots=True)
class Objective:
    """The weighted objective relative to `base`."""

    weights: tuple[float, float, float]
    base: Outcome

    def value(self, outcome: Outcome) -> float:
        """R of an outcome; higher is better, minus infinity when nothing gets done."""
        if outcome.iter_s == float("inf"):
            return float("-inf")
        time, utilisation, cost = self.weights
        gain = (self.base.iter_s - outcome.iter_s) / self.base.iter_s
        return time * gain + utilisation * outcome.utilisation - cost * self._cost(outcome)

    def _cost(self, outcome: Outcome) -> float:
        """Egress relative to the base; in units of a dollar where the base sends nothing."""
        return outcome.usd / self.base.usd if self.base.usd > 0 else outcome.usd
