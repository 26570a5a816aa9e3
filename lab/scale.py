"""The factors by which a lab is smaller than its scenario, one of time and one of bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Factors between a scenario and its lab.

    `time`: seconds of the scenario in one second of the lab. `bytes`: bytes of the scenario for one byte of
    the lab. A link of W bit/s becomes W x time / bytes, so that a message takes 1 / time of its time.
    """

    time: float
    bytes: float

    def lab_s(self, scenario_s: float) -> float:
        """Seconds of the lab for seconds of the scenario."""
        return scenario_s / self.time

    def scenario_s(self, lab_s: float) -> float:
        """Seconds of the scenario for seconds of the lab."""
        return lab_s * self.time

    def lab_bps(self, scenario_bps: float) -> float:
        """Rate of a link of the lab, bit/s."""
        return scenario_bps * self.time / self.bytes
