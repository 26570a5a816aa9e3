"""Rate, delay and loss of every direction over the time of a lab: what the router plays."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.scale import Scale
from twin.core.domain import Pair
from twin.traces.wan_trace import WanTrace


@dataclass(frozen=True, slots=True)
class Direction:
    """Step functions of one directed link: each value holds until the next; the first also before its time.

    Lists of equal length: `times_s` ascending, `rates_bps` (0: nothing passes), `delays_s` one way. `loss` is
    the probability that a packet is dropped.
    """

    times_s: list[float]
    rates_bps: list[float]
    delays_s: list[float]
    loss: float = 0.0

    def index(self, at_s: float) -> int:
        """Index of the step in force at `at_s`."""
        return max(0, bisect_right(self.times_s, at_s) - 1)

    def departure_s(self, start_s: float, bits: float) -> float:
        """Time at which the last of `bits` has left a link that is free from `start_s`; inf: never."""
        at, step = start_s, self.index(start_s)
        while True:
            rate = self.rates_bps[step]
            until = self.times_s[step + 1] if step + 1 < len(self.times_s) else float("inf")
            if rate > 0 and at + bits / rate <= until:
                return at + bits / rate
            if until == float("inf"):
                return until
            bits -= rate * max(0.0, until - at)
            at, step = max(at, until), step + 1


def directions(wan: WanTrace, scale: Scale, loss: float, start_s: float = 0.0) -> dict[Pair, Direction]:
    """Every directed link of a trace as the lab plays it; `start_s` of the trace is time 0 of the lab. A
    `WanTrace` holds no loss: `loss` is that of all links."""
    return {
        pair: Direction(
            [scale.lab_s(ns / 1e9 - start_s) for ns in link.times_ns.tolist()],
            [scale.lab_bps(rate) for rate in link.bandwidth_bps.tolist()],
            [scale.lab_s(delay) for delay in link.latency_s.tolist()],
            loss,
        )
        for pair, link in wan.series.items()
    }


def encoded(played: Mapping[Pair, Direction]) -> list[dict[str, Any]]:
    """The directions as plain values, for the process of the router."""
    return [
        {
            "from": i, "to": j, "times_s": one.times_s, "rates_bps": one.rates_bps, "delays_s": one.delays_s,
            "loss": one.loss,
        }
        for (i, j), one in played.items()
    ]  # fmt: skip


def decoded(rows: list[dict[str, Any]]) -> dict[Pair, Direction]:
    """The directions of `encoded`."""
    return {
        (row["from"], row["to"]): Direction(row["times_s"], row["rates_bps"], row["delays_s"], row["loss"])
        for row in rows
    }
