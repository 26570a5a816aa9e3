"""`twin synth`: the small traces that ship with the project, made from figures measured on public data sets.

`measure` computes the figures from a lake that holds the public sets; they are kept in
`traces/README.statistics.json`. `write` turns that file into traces: a Gaussian process in time (a slow part
that lasts for a block, a fast one with the measured correlation time) pushed through the measured quantiles,
so that level, spread, tails and correlation are those of the source while no value of it is copied. The same
file gives the same bytes.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from ingest.core import durable, resources
from ingest.lake.series_statistics import LEVELS, Array
from ingest.public.link_statistics import FILE_NAME, GPU_METRICS, OCTO_SITES, QUAD_SITES, dumps, measure, read

__all__ = ["dumps", "files", "measure", "read", "write"]

TRI_SITES = ("us-east-1", "eu-west-1", "ap-northeast-1")
ORIGIN = datetime(2020, 1, 1, tzinfo=UTC)
"""First instant of every synthetic trace: obviously made up."""


@dataclass(frozen=True, slots=True)
class LinkSet:
    """A synthetic set of link samples: which figures it uses and the time axis laid over them."""

    name: str
    source: str
    sites: tuple[str, ...]
    hours: float
    interval_s: float | None  # None: as measured, in blocks
    slow_share: float | None  # None: as measured
    slow_tau_s: float
    assumptions: tuple[str, ...]


LINK_SETS = (
    LinkSet(
        "synthetic-tri",
        "wanify-aws8",
        TRI_SITES,
        hours=4,
        interval_s=30,
        slow_share=0.5,
        slow_tau_s=1800,
        assumptions=(
            "30 s between samples: the source bears no time stamps",
            "half of the variance lasts 30 minutes: the source does not say how long anything lasts",
        ),
    ),
    LinkSet(
        "synthetic-quad",
        "cloudpilot-iperf3",
        QUAD_SITES,
        hours=20,
        interval_s=None,
        slow_share=None,
        slow_tau_s=7200,
        assumptions=("the slow part lasts one block spacing, 2 h: ten blocks are too few to measure it",),
    ),
    LinkSet(
        "synthetic-octo",
        "wanify-aws8",
        OCTO_SITES,
        hours=12,
        interval_s=600,
        slow_share=None,
        slow_tau_s=7200,
        assumptions=("600 s between samples: the source bears no time stamps",),
    ),
)


def write(directory: Path) -> list[Path]:
    """Write every synthetic trace under `directory` from its `README.statistics.json` (else the shipped one).

    Files that already hold the right bytes are left alone. Returns: the paths of all files.
    """
    own = directory / FILE_NAME
    figures = read(own if own.is_file() else resources.traces() / FILE_NAME)
    written = []
    for path, text in files(figures):
        target, data = directory / path, text.encode()
        if not target.is_file() or target.read_bytes() != data:
            durable.replace(target, data)
        written.append(target)
    return written


def files(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(relative path, text) of every synthetic file."""
    for links in LINK_SETS:
        yield f"{links.name}/dataset.toml", _toml(links.name, "link_samples", links.source, links.assumptions)
        yield f"{links.name}/{links.name}.csv", _link_csv(links, figures["links"][links.source])
    name = "synthetic-gpu"
    source = "telemetry-h100-dcgm-10hz"
    gpu_note = ("one latent load a GPU drives all metrics with their measured correlation to power",)
    yield f"{name}/dataset.toml", _toml(name, "gpu_samples", source, gpu_note)
    yield f"{name}/{name}.csv", _gpu_csv(figures["gpu"][source])


def _link_csv(links: LinkSet, rows: list[dict[str, Any]]) -> str:
    lines = ["ts,src,dst,bandwidth_bps,rtt_s,streams,kind,duration_s"]
    wanted = [row for row in rows if row["src"] in links.sites and row["dst"] in links.sites]
    samples: list[tuple[float, str, str, float, float]] = []
    for row in wanted:
        rng = _generator(f"{links.name}:{row['src']}>{row['dst']}")
        times = _times(links, row, rng)
        slow = row["bandwidth"]["slow_share"] if links.slow_share is None else links.slow_share
        score = _gaussian(times, slow, links.slow_tau_s, _fast_tau_s(links, row["bandwidth"]), rng)
        bandwidth = _pushed(score, row["bandwidth"]["quantiles"])
        rtt = row["rtt"]["mean"] * np.exp(_cv(row["rtt"]) * rng.standard_normal(len(times)))
        pair = (row["src"], row["dst"])
        samples += [(t, *pair, b, r) for t, b, r in zip(times, bandwidth, rtt, strict=True)]
    for time, src, dst, bandwidth_bps, rtt_s in sorted(samples, key=lambda s: s[:3]):
        lines.append(f"{_stamp(time)},{src},{dst},{round(bandwidth_bps, -3):.0f},{rtt_s:.5f},1,tcp,10")
    return "\n".join([*lines, ""])


def _fast_tau_s(links: LinkSet, figures: Mapping[str, Any]) -> float:
    """Measured fast correlation time; where the spacing is chosen, correlation per sample is what is kept."""
    stretch = 1.0 if links.interval_s is None else links.interval_s / figures["interval_s"]
    return float(figures["fast_tau_s"] * stretch)


def _times(links: LinkSet, row: Mapping[str, Any], rng: np.random.Generator) -> Array:
    """Sample times in whole seconds: regular, or blocks as in the source with a start of their own."""
    if links.interval_s is not None:
        return np.arange(0, links.hours * 3600 + 1, links.interval_s)
    figures = row["bandwidth"]
    step, spacing = figures["interval_s"], figures["block_spacing_s"]
    offset = math.floor(rng.uniform(0, 0.1) * spacing)
    starts = np.arange(offset, links.hours * 3600 - figures["block_samples"] * step, spacing)
    inside = np.arange(figures["block_samples"]) * step
    times: Array = np.floor((starts[:, None] + inside).ravel())
    return times


def _gaussian(times: Array, slow: float, slow_tau: float, fast_tau: float, rng: np.random.Generator) -> Array:
    """Standard normal scores: `slow` of the variance correlated over `slow_tau`, the rest over `fast_tau`."""
    parts = [
        math.sqrt(share) * _ou(times, tau, rng) for share, tau in ((slow, slow_tau), (1 - slow, fast_tau))
    ]
    return parts[0] + parts[1]


def _ou(times: Array, tau_s: float, rng: np.random.Generator) -> Array:
    """Stationary Ornstein-Uhlenbeck process of unit variance at irregular times, exact discretisation."""
    shocks = rng.standard_normal(len(times))
    decay = np.exp(-np.diff(times) / tau_s) if tau_s > 0 else np.zeros(len(times) - 1)
    for k, a in enumerate(decay, start=1):
        shocks[k] = a * shocks[k - 1] + math.sqrt(1 - a * a) * shocks[k]
    return shocks


def _pushed(score: Array, quantiles: list[float]) -> Array:
    """Values with the given quantiles (at `LEVELS`, linear between) at normal scores `score`."""
    probability = np.array([0.5 * math.erfc(-s / math.sqrt(2)) for s in score])
    values: Array = np.interp(probability, LEVELS, quantiles)
    return values


def _gpu_csv(rows: list[dict[str, Any]], gpus: int = 8, seconds: int = 300, step_s: int = 2) -> str:
    times = np.arange(0, seconds, step_s, dtype=np.float64)
    columns: dict[int, dict[str, Array]] = {}
    for gpu in range(gpus):
        rng = _generator(f"synthetic-gpu:{gpu}")
        tau = next(row["fast_tau_s"] for row in rows if row["metric"] == "power_w")
        load = _ou(times, tau, rng)
        columns[gpu] = {}
        for row in rows:
            c = row["correlation_with_power"]
            own = _ou(times, row["fast_tau_s"], rng)
            columns[gpu][row["metric"]] = _pushed(c * load + math.sqrt(1 - c * c) * own, row["quantiles"])
    lines = ["ts,host,gpu,gpu_model,mem_total_bytes," + ",".join(GPU_METRICS)]
    for k, time in enumerate(times):
        for gpu in range(gpus):
            cells = ",".join(_cell(metric, columns[gpu][metric][k]) for metric in GPU_METRICS)
            lines.append(f"{_stamp(time)},synthetic-node-0,{gpu},H100,{81559 * 1024**2},{cells}")
    return "\n".join([*lines, ""])


def _cell(metric: str, value: float) -> str:
    return f"{value:.0f}" if metric.endswith(("_bytes", "_bytes_s")) else f"{value:.4g}"


def _toml(name: str, table: str, source: str, assumptions: tuple[str, ...]) -> str:
    notes = (f"synthetic: made by `twin synth` from figures of {source}, no value is copied", *assumptions)
    listed = "".join(f"    {json.dumps(note)},\n" for note in notes)
    return (
        f'# Synthetic, made by `twin synth`; figures in ../{FILE_NAME}.\nname = "{name}"\n'
        f'reader = "columns"\ntable = "{table}"\nsynthetic = true\nlicence = "Apache-2.0"\n'
        f'citation = "synthetic, after figures measured on {source}; see traces/README.md"\n'
        f"assumptions = [\n{listed}]\n"
    )


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([0, crc32(name.encode())]))


def _cv(figures: Mapping[str, Any]) -> float:
    return float(figures["sd"] / figures["mean"]) if figures["mean"] else 0.0


def _stamp(seconds: float) -> str:
    whole = datetime.fromtimestamp(ORIGIN.timestamp() + int(seconds), UTC)
    return whole.strftime("%Y-%m-%dT%H:%M:%SZ")
