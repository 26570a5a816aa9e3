"""Small prepared worlds for tests: K domains, links constant or stepping, no lake."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from ingest.core.units import to_ns
from twin.core.domain import Matrix
from twin.filters.link_filter import LinkParameters
from twin.filters.ou_process import OuParameters
from twin.scenario.prepare import PreparedScenario, Scenario, assemble
from twin.traces.wan_trace import LinkSeries, WanTrace, trace


def toy_scenario(size: int = 3, **changes: Any) -> Scenario:
    """Domains d0, d1, ... of 4 A100-80G; keyword arguments replace top-level keys of the scenario."""
    document: dict[str, Any] = {
        "name": f"toy-{size}",
        "model": "llama2-7b",
        "job": {"global_batch": 32, "micro_batches": [1, 2], "zero": 1},
        "cluster": {
            "hardware": {
                "gpu": "a100-80",
                "gpus_per_node": 4,
                "intra_node_bps": 2.4e12,
                "inter_node_bps": 2e11,
                "intra_node_latency_s": 3e-6,
                "inter_node_latency_s": 8e-6,
                "usd_per_gpu_hour": 5.0,
            },
            "domains": [{"name": f"d{k}", "gpus": 4} for k in range(size)],
            "usd_per_gb": {"default": 0.02},
        },
        "wan": {"dataset": "toy", "streams": 1, "cap_bps": 1e11, "default_rtt_s": 0.1},
        "control": {"period_s": 60, "horizons_s": [0, 60, 300]},
        "weights": {"efficiency": 0.6, "utilisation": 0.2, "cost": 0.2},  # of every term something
    }
    return Scenario.model_validate(document | changes)


def toy_wan(
    size: int = 3,
    *,
    bps: float | Matrix = 2e9,
    latency_s: float | Matrix = 0.05,
    seconds: float = 600.0,
    steps: Mapping[tuple[int, int], Sequence[tuple[float, float]]] | None = None,
) -> WanTrace:
    """Constant links; `steps[(i, j)] = [(at_s, bps), ...]` changes the bandwidth of some (0 = dead)."""
    names = tuple(f"d{k}" for k in range(size))
    bandwidth = np.broadcast_to(np.asarray(bps, np.float64), (size, size))
    latency = np.broadcast_to(np.asarray(latency_s, np.float64), (size, size))
    series = {}
    for i, j in permutations(range(size), 2):
        changes = (steps or {}).get((i, j), ())
        times = np.array([0, *(to_ns(at) for at, _ in changes)], np.int64)
        rates = np.array([bandwidth[i, j], *(rate for _, rate in changes)])
        series[i, j] = LinkSeries(times, rates, np.full(len(times), latency[i, j]))
    return trace(names, series, to_ns(seconds))


def toy_setup(
    size: int = 3,
    *,
    bps: float | Matrix = 2e9,
    latency_s: float | Matrix = 0.05,
    seconds: float = 600.0,
    steps: Mapping[tuple[int, int], Sequence[tuple[float, float]]] | None = None,
    seed: int = 0,
    **scenario: Any,
) -> PreparedScenario:
    """A world of `toy_scenario` over `toy_wan`; the whole trace is the window.

    The filters believe in 20 % variation over ten minutes around the first value of each link.
    """
    wan = toy_wan(size, bps=bps, latency_s=latency_s, seconds=seconds, steps=steps)
    made = toy_scenario(size, **scenario)
    links = [wan.series[i, j] for i in range(size) for j in range(size) if i != j]
    first = np.array([max(link.bandwidth_bps[0], 1.0) for link in links])
    filters = LinkParameters(
        OuParameters.of(np.log(first), tau_s=600, sd=0.2, r=1e-4),
        OuParameters.of(np.log([max(link.latency_s[0], 1e-6) for link in links]), tau_s=600, sd=0.05, r=1e-4),
    )
    return assemble(made, wan, window="all", seed=seed, filters=filters)
