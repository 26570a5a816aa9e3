"""Figures of a schedule over sites: those of a pool, and what data, links and sites make of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.queue.jobs import Float, Int
from twin.queue.metrics import TAU_S, QueueFigures, figures
from twin.sites.inputs import NOWHERE
from twin.sites.simulation import SiteSchedule


@dataclass(frozen=True, slots=True)
class SiteFigures:
    """The figures of a pool of all GPUs, held GPUs counting as used while data come, and:

    avg_bounded_slowdown_recorded: as there, over the run time of the log instead of the time held.
    egress_usd: price of the data and messages that left a site. moved_gb: data that crossed a link.
    moved_jobs, spanning_jobs: share of the jobs whose data were moved, that ran over several sites.
    stretch: time held over the run time of the log, weighted by GPU time; 1 without transfers and links.
    gpu_share: GPU time of each site over what it has, by name.
    """

    of_pool: QueueFigures
    avg_bounded_slowdown_recorded: float
    egress_usd: float
    moved_gb: float
    moved_jobs: float
    spanning_jobs: float
    stretch: float
    gpu_share: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name."""
        own = {name: getattr(self, name) for name in self.__slots__ if name != "of_pool"}
        return {**self.of_pool.to_json(), **own}


def egress_usd(done: SiteSchedule) -> Float:
    """Returns the price of what left a site for each job (n,), US dollars."""
    options, links = done.world.options, done.world.links
    home, data, kb = options.home[done.option], done.asked.data_at, done.asked.data_kb
    moved = (data != NOWHERE) & (data != home) & (kb > 0)
    nano_usd = np.where(moved, links.nano_usd_kb[np.maximum(data, 0), home] * kb, 0).astype(float)
    return np.asarray((nano_usd + options.nano_usd_ms[done.option] * (done.jobs.run_ns / 1e6)) / 1e9)


def carbon_kg(done: SiteSchedule, gpu_w: float) -> Float:
    """Returns the carbon of each job (n,), kg: GPUs x `gpu_w` while it held them, transfer included, x the
    intensity of their sites then.

    Raises:
        UsageError: the intensities are not given.
    """
    carbon = done.world.carbon
    if carbon is None:
        raise UsageError("the carbon intensity of the sites is not given: nothing can be said of carbon")
    rates = carbon.mg_kwh.astype(float)
    before = np.zeros_like(rates)
    before[1:] = np.cumsum(rates[:-1] * np.diff(carbon.at)[:, None], axis=0)

    def until(time_ns: Int) -> Float:
        step = np.searchsorted(carbon.at, time_ns, side="right") - 1
        return np.asarray(before[step] + rates[step] * (time_ns - carbon.at[step])[:, None])

    need = done.world.options.need[done.option]
    mg_ns_kwh = ((until(done.end_ns) - until(done.start_ns)) * need).sum(axis=1)
    return np.asarray(mg_ns_kwh * (gpu_w / 1e3) / (3600 * NS_PER_S) / 1e6)


def site_figures(done: SiteSchedule) -> SiteFigures:
    """Returns the figures of a schedule of at least one job."""
    options, jobs = done.world.options, done.jobs
    home, data, kb = options.home[done.option], done.asked.data_at, done.asked.data_kb
    moved = (data != NOWHERE) & (data != home) & (kb > 0)
    held_s, jct_s = (done.end_ns - done.start_ns) / NS_PER_S, (done.end_ns - jobs.submit_ns) / NS_PER_S
    gpus, run_s = jobs.processors, jobs.run_ns / NS_PER_S
    span_s = float(done.end_ns.max() - jobs.submit_ns.min()) / NS_PER_S
    used = (options.need[done.option] * held_s[:, None]).sum(axis=0)
    return SiteFigures(
        of_pool=figures(done.as_pool),
        avg_bounded_slowdown_recorded=float(np.maximum(1, jct_s / np.maximum(run_s, TAU_S)).mean()),
        egress_usd=float(egress_usd(done).sum()),
        moved_gb=float(kb[moved].sum() / 1e6),
        moved_jobs=float(moved.mean()),
        spanning_jobs=float(((options.need[done.option] > 0).sum(axis=1) > 1).mean()),
        stretch=float((held_s * gpus).sum() / (run_s * gpus).sum()),
        gpu_share=dict(zip(done.world.names, (used / (done.world.gpus * span_s)).tolist(), strict=True)),
    )  # fmt: skip
