"""What a queue over sites is given, as arrays of whole numbers, so that two engines agree to the nanosecond.

Data are in kB (1,000 bytes), bandwidth in kB/s, rates in thousandths of the recorded one, money in
billionths of a US dollar.
"""

from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.core.domain import Matrix
from twin.queue.jobs import Int
from twin.traces.wan_trace import WanTrace

FULL_RATE = 1_000
"""The rate at which a job of the log was recorded."""
MOST_KB = 9 * 10**9
"""Data of a job, 9 TB: their product with nanoseconds fits into 64 bits."""
LONGEST_RUN_NS = 100 * 86_400 * NS_PER_S
"""Runs and estimates of a queue over sites, for the same reason."""
NANO_USD_KB = 1_000
"""Billionths of a dollar a kB, for one dollar a gigabyte."""
NOWHERE = -1
"""Site of the data of a job that has none."""

SiteRule = Literal[
    "first-site", "least-egress", "fastest", "at-data", "least-loaded", "greenest", "mast", "learned"
]
SITE_RULES: tuple[SiteRule, ...] = get_args(SiteRule)
"""What a way to run a job is chosen by, among those for which GPUs are free and links alive, the first of
equals. first-site: the order of the sites. least-egress: the money for data and messages that leave a site,
then the earliest predicted end. fastest: the earliest predicted end, transfer included, then the money.
at-data: only ways whose home is the site of its data, if
there are any. least-loaded: the least share of GPUs in use, of its busiest site, then the earliest end.
greenest: the least carbon by the predicted run and the present intensity, then the earliest end.
mast: ways at one site before those over several, the site of its data before the others, then the least
demand over supply of the busiest site, then the earliest end; demand of a site is what runs there, what waits
with its data there, and the job itself. learned: the highest score of a network (`choosing.py`)."""
MOST_DEMAND_PPM = 2 * 10**17
"""Demand over supply that rules tell apart, millionths: four classes of ways above it fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class SiteChoice:
    """A placement over sites as data: its rule, which is its name, what it is and where it comes from."""

    name: SiteRule
    summary: str
    source: str


class SiteLinks(NamedTuple):
    """Links as step functions: the beginning of each step (T,), ns, the first 0; kB/s from site to site
    (T, K, K), 0 where a link is dead; and the price of a kB (K, K)."""

    at: Int
    kb_s: Int
    nano_usd_kb: Int

    @classmethod
    def of_trace(cls, links: WanTrace, usd_per_gb: tuple[tuple[float, ...], ...]) -> "SiteLinks":
        """Returns the links of a trace, whose last state stays for ever."""
        at = np.unique(np.maximum(links.breakpoints() - links.start_ns, 0))
        kb_s = np.stack([_kb_s(links.at(int(one) + links.start_ns).bandwidth_bps) for one in at])
        prices = np.rint(np.array(usd_per_gb) * NANO_USD_KB).astype(np.int64)
        return cls(at.astype(np.int64), kb_s, prices)


def _kb_s(bandwidth_bps: Matrix) -> Int:
    """Bandwidth in kB/s, 0 on the diagonal: what stays at a site crosses no link."""
    finite = np.where(np.isfinite(bandwidth_bps), bandwidth_bps, 0)
    return np.minimum(finite / 8_000, 1e8).astype(np.int64)


class SiteOptions(NamedTuple):
    """Ways to run jobs of each size: those of size s are `first[s]` to `first[s + 1]`.

    need (O, K): GPUs at each site. home (O,): the site to which data go. rate (T, O): thousandths of the
    recorded rate in each step of the links, 0 where it cannot run. nano_usd_ms (O,): price of what its
    messages cost over the links, for a millisecond of work."""

    first: Int
    need: Int
    home: Int
    rate: Int
    nano_usd_ms: Int


class SiteJobs(NamedTuple):
    """Of each job the size (place in `SiteOptions.first`), its data in kB, and the site where they lie."""

    size: Int
    data_kb: Int
    data_at: Int


class SiteCarbon(NamedTuple):
    """Carbon intensity of the sites as step functions: the beginning of each step (S,), ns, the first 0, and
    milligrams a kilowatt-hour (S, K)."""

    at: Int
    mg_kwh: Int


def single_sites(sizes: Int, gpus: Int, steps: int) -> SiteOptions:
    """Returns the ways to run jobs of these GPUs (S,) on one site of these GPUs (K,), at full rate."""
    both = product(range(len(sizes)), range(len(gpus)))
    rows = [(size, site) for size, site in both if sizes[size] <= gpus[site]]
    need = np.zeros((len(rows), len(gpus)), np.int64)
    for row, (size, site) in enumerate(rows):
        need[row, site] = sizes[size]
    counts = np.bincount([size for size, _ in rows], minlength=len(sizes))
    return SiteOptions(
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64), need,
        np.array([site for _, site in rows], np.int64),
        np.full((steps, len(rows)), FULL_RATE, np.int64), np.zeros(len(rows), np.int64),
    )  # fmt: skip


def joined(one: SiteOptions, other: SiteOptions) -> SiteOptions:
    """Returns the ways of both, of each size those of the first one first."""
    order, counts = list[int](), [0]
    for size in range(len(one.first) - 1):
        order += range(one.first[size], one.first[size + 1])
        order += range(len(one.home) + other.first[size], len(one.home) + other.first[size + 1])
        counts.append(len(order))
    chosen = np.array(order, np.int64)
    return SiteOptions(
        np.array(counts, np.int64), np.concatenate((one.need, other.need))[chosen],
        np.concatenate((one.home, other.home))[chosen],
        np.ascontiguousarray(np.concatenate((one.rate, other.rate), axis=1)[:, chosen]),
        np.concatenate((one.nano_usd_ms, other.nano_usd_ms))[chosen],
    )  # fmt: skip


def check_site_jobs(run_ns: Int, estimate_ns: Int, jobs: SiteJobs, options: SiteOptions) -> None:
    """Checks that every job can be played.

    Raises:
        UsageError: it cannot.
    """
    if len(run_ns) and max(run_ns.max(), estimate_ns.max()) > LONGEST_RUN_NS:
        raise UsageError("a job runs, or asks for, more than 100 days: too long over sites; take it out")
    if len(run_ns) and run_ns.min() < 1:
        raise UsageError("a job has no run time; take it out")
    if len(jobs.data_kb) and not 0 <= jobs.data_kb.min() <= jobs.data_kb.max() <= MOST_KB:
        raise UsageError("the data of a job are negative, or more than 9 TB; change `data.gb`")
    if (np.diff(options.first)[jobs.size] < 1).any():
        raise UsageError("a job fits on no site, alone or with others; take it out")
