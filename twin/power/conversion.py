"""Losses between the meter and the computers, as a chain of small models.

Power goes from the meter through the cooling and the distribution of the building (PUE), rectifiers and
power supplies to the computers; each stage takes the power that the one behind it needs. RAPS of ExaDigiT
(Brewer et al., SC 2024) has the same chain with two constant efficiencies and a curve.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ingest.core.errors import UsageError
from twin.power.step_series import Int

TITANIUM = ((0.0, 0.80), (0.1, 0.90), (0.2, 0.94), (0.5, 0.96), (1.0, 0.91))
"""Load and efficiency of 80 PLUS Titanium supplies at 230 V, internal redundant (CLEARResult, 80 PLUS
programme); below a tenth of the load, where the programme asks nothing, a line to 0.80 is our assumption."""
SUPPLIES = {"titanium": TITANIUM}
"""Curves of power supplies by name."""


class ConversionStage(Protocol):
    """One stage: what it draws for what it delivers; it never draws less for more."""

    @property
    def name(self) -> str:
        """Name of the stage, as people call it."""
        ...

    def draws_mw(self, delivered_mw: Int) -> Int:
        """Returns what it draws (n,), milliwatts."""
        ...


@dataclass(frozen=True, slots=True)
class Overhead:
    """A stage that draws a constant multiple: the PUE of a building, or 1 / efficiency.

    Raises:
        UsageError: the multiple is below 1.
    """

    name: str
    factor: float

    def __post_init__(self) -> None:
        if not 1.0 <= self.factor <= 100.0:
            raise UsageError(
                f"{self.name} {self.factor:g}: a site draws at least what it delivers; give 1 to 100"
            )

    def draws_mw(self, delivered_mw: Int) -> Int:
        """Returns what it draws (n,), rounded to milliwatts."""
        drawn: Int = np.rint(delivered_mw * self.factor).astype(np.int64)
        return drawn


@dataclass(frozen=True, slots=True)
class EfficiencyCurve:
    """A stage whose efficiency follows its load, by straight lines between (load, efficiency) points.

    rated_mw: what all its units together can deliver. Above it the last efficiency holds.

    Raises:
        UsageError: the curve is none, or it would draw less for more.
    """

    name: str
    rated_mw: int
    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        loads, shares = zip(*self.points, strict=True)
        if self.rated_mw < 1 or sorted(set(loads)) != list(loads) or not 0 < min(shares) <= max(shares) <= 1:
            raise UsageError(
                f"{self.name}: its curve needs a rated power above 0, rising loads, efficiencies in (0, 1]"
            )
        drawn = self.draws_mw(np.linspace(0, max(loads) * self.rated_mw, 2001).astype(np.int64))
        if (np.diff(drawn) < 0).any():
            raise UsageError(f"{self.name}: its efficiency rises so fast that it draws less for more")

    def draws_mw(self, delivered_mw: Int) -> Int:
        """Returns what it draws (n,), rounded to milliwatts."""
        loads, shares = zip(*self.points, strict=True)
        share = np.interp(delivered_mw / self.rated_mw, loads, shares)
        drawn: Int = np.rint(delivered_mw / share).astype(np.int64)
        return drawn


@dataclass(frozen=True, slots=True)
class ConversionChain:
    """Stages from the computers to the meter, in this order; without any nothing is lost."""

    stages: tuple[ConversionStage, ...] = ()

    def metered_mw(self, computers_mw: Int) -> Int:
        """Returns what the meter shows (n,) for what the computers draw (n,), milliwatts."""
        drawn = np.asarray(computers_mw, np.int64)
        for stage in self.stages:
            drawn = stage.draws_mw(drawn)
        return drawn

    def computers_mw(self, metered_mw: int) -> int:
        """Returns the most that computers may draw so that the meter shows no more; -1 if nothing is."""
        low, high = -1, metered_mw
        while low < high:
            middle = (low + high + 1) // 2
            if int(self.metered_mw(np.array([middle]))[0]) <= metered_mw:
                low = middle
            else:
                high = middle - 1
        return low


NOTHING_LOST = ConversionChain()
"""The meter shows what the computers draw."""
