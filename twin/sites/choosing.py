"""Compiled choice of the way in which a job runs, among those for which GPUs are free and links alive.

Each rule ranks ways by two whole numbers (`SITE_RULES` says which). The rule `learned` takes the highest
score of a multilayer perceptron over `SITE_FEATURES` of a job on a way, all of which are known then. Six of
them say which way a rule would take: a network that passes one of those on is that rule. A way whose GPUs are
not free may be chosen too: then the job waits. Scores are logits: with a trail standard Gumbel noise is
added, so that a way is drawn from the softmax, and every choice among two ways or more is recorded.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import NS_PER_S
from twin.queue.jobs import LATEST_NS, Float, Int
from twin.queue.pool import WAITING, Inputs, Pool
from twin.queue.recipe import JobScorer
from twin.queue.reservations import NOT_YET
from twin.queue.scoring import SEED, forward, gumbel
from twin.sites.inputs import (
    FULL_RATE,
    MOST_DEMAND_PPM,
    NOWHERE,
    SITE_RULES,
    SiteCarbon,
    SiteJobs,
    SiteLinks,
    SiteOptions,
)
from twin.sites.reservations import SiteProfile

FIRST_SITE, LEAST_EGRESS, FASTEST, AT_DATA, LEAST_LOADED, GREENEST, MAST, LEARNED = range(len(SITE_RULES))
NS_PER_MS = 1_000_000
SITE_FEATURES = (
    "first-site", "least-egress", "fastest", "least-loaded", "greenest", "at-data", "free", "length",
    "egress", "carbon", "intensity", "busy share", "free share", "estimate", "size", "wait", "queue length",
)  # fmt: skip
"""1 if that rule takes this way, for six rules; 1 if its GPUs are free. Log of predicted seconds from start
to end + 1 over the least of the ways; log(1 + US dollars that leave a site); log of carbon + 1 over the
least; kg/kWh of the home; share of GPUs in use at the busiest site of the way, and of those free at all
sites; log(1 + predicted seconds) / 10; share of all GPUs that it asks for; log(1 + seconds waited) / 10;
log(1 + jobs waiting) / 5."""
HINTS = (FIRST_SITE, LEAST_EGRESS, FASTEST, LEAST_LOADED, GREENEST, AT_DATA)
"""Rules of the first features, in their order."""
ROWS, CHOICES = 0, 2
"""Places of `Choosing.counts`, beside the state of the generator: rows and choices recorded."""
CHOICE_BEGIN, CHOICE_COUNT, CHOICE_NS, CHOICE_JOB = range(4)
"""Columns of a choice: its first row, how many there are (the chosen one is the first), when, and the job."""


class Choosing(NamedTuple):
    """The rule of sites and what it looks at: GPUs of each site (K,), carbon intensities, the network with
    room to work in, and the trail: `rows` of features (R, F), `choices` (C, 4), and their counts."""

    rule: int
    gpus: Int
    carbon: SiteCarbon
    widths: Int
    weights: Float
    hidden: Float
    counts: Int
    rows: Float
    choices: Int


def choosing_of(
    rule: int, gpus: Int, carbon: SiteCarbon | None, scorer: JobScorer | None, room: int = 0, seed: int = 0
) -> Choosing:
    """Returns a rule ready to play, with room for so many rows of a trail."""
    flat = SiteCarbon(np.zeros(1, np.int64), np.zeros((1, len(gpus)), np.int64))
    net = JobScorer((len(SITE_FEATURES), 1), np.zeros(len(SITE_FEATURES) + 1)) if scorer is None else scorer
    counts = np.zeros(SEED + 2, np.int64)
    counts[SEED] = seed
    return Choosing(
        rule, gpus.astype(np.int64), flat if carbon is None else carbon, np.array(net.widths), net.weights,
        np.zeros((2, max(net.widths))), counts, np.zeros((room, len(SITE_FEATURES))),
        np.zeros((room, 4), np.int64),
    )  # fmt: skip


class Running(NamedTuple):
    """One element a job: its way, 1 while its data come and 0 when it runs, what is left (kB x ns a second,
    or ns of work x rate), since when at which speed, its end; `of` lists the jobs that run, as started.

    free: GPUs of each site. wanted: GPUs of the jobs that wait and have their data there, of each site. step
    (1,): the present step of the links. profile: what is reserved."""

    option: Int
    coming: Int
    left: Int
    since: Int
    speed: Int
    end: Int
    of: Int
    free: Int
    wanted: Int
    step: Int
    profile: SiteProfile


@njit(inner=True, cache=True, nogil=True)
def needs(left: int, speed: int) -> int:
    """Nanoseconds for what is left, rounded up."""
    if left == 0:
        return 0
    return int(NOT_YET if speed == 0 else -(-left // speed))


@njit(cache=True, nogil=True)
def after(time: int, length: int) -> int:
    """Time plus a length that may be for ever."""
    return NOT_YET if length > LATEST_NS or time > LATEST_NS else time + length


@njit(cache=True, nogil=True)
def fits(free: Int, need: Int) -> bool:
    """True if GPUs are free for a need, at each site."""
    return bool((need <= free).all())


@njit(inner=True, cache=True, nogil=True)
def length_of(
    jobs: Inputs, step: int, asked: SiteJobs, links: SiteLinks, options: SiteOptions, job: int, option: int
) -> int:
    """Predicted nanoseconds of a job from its start, transfer included, as links are; `NOT_YET`: never."""
    data, home, coming = asked.data_at[job], options.home[option], 0
    if data != NOWHERE and data != home and asked.data_kb[job]:
        coming = needs(asked.data_kb[job] * NS_PER_S, links.kb_s[step, data, home])
    return int(after(coming, needs(jobs.predicted[job] * FULL_RATE, options.rate[step, option])))


@njit(inner=True, cache=True, nogil=True)
def choose(
    jobs: Inputs, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks, options: SiteOptions,
    by: Choosing, job: int, time: int,
) -> int:  # fmt: skip
    """The way in which a job starts now; -1: none."""
    if by.rule == LEARNED:
        return int(_scored(jobs, pool, state, asked, links, options, by, job, time))
    step, size, bound = state.step[0], asked.size[job], bound_to_data(asked, options, by.rule, job)
    best, best_major, best_minor = -1, 0, 0
    for option in range(options.first[size], options.first[size + 1]):
        if not fits(state.free, options.need[option]) or (
            bound and options.home[option] != asked.data_at[job]
        ):
            continue
        length = length_of(jobs, step, asked, links, options, job, option)
        if length == NOT_YET:
            continue
        major, minor = ranks(jobs, state, asked, links, options, by, by.rule, job, option, length, time)
        if best < 0 or major < best_major or (major == best_major and minor < best_minor):
            best, best_major, best_minor = option, major, minor
    return best


@njit(inner=True, cache=True, nogil=True)
def bound_to_data(asked: SiteJobs, options: SiteOptions, rule: int, job: int) -> bool:
    """True if a job may run where its data are alone."""
    size, data, bound = asked.size[job], asked.data_at[job], False
    if rule == AT_DATA and data != NOWHERE:
        for option in range(options.first[size], options.first[size + 1]):
            bound = bound or options.home[option] == data
    return bound


@njit(cache=True, nogil=True)
def ranks(
    jobs: Inputs, state: Running, asked: SiteJobs, links: SiteLinks, options: SiteOptions, by: Choosing,
    rule: int, job: int, option: int, length: int, time: int,
) -> tuple[int, int]:  # fmt: skip
    """Returns what ways are compared by, the lower the better; the first of equals is taken."""
    if rule == FIRST_SITE:
        return 0, 0
    if rule == LEAST_LOADED:
        return _busy_ppm(state, options, by, option), length
    if rule == GREENEST:
        return _carbon(options, by, option, length, time), length
    if rule == MAST:
        return _demand(jobs, state, asked, options, by, job, option), length
    usd = _nano_usd(jobs, asked, links, options, job, option)
    return (usd, length) if rule == LEAST_EGRESS else (length, usd)


@njit(inner=True, cache=True, nogil=True)
def _nano_usd(
    jobs: Inputs, asked: SiteJobs, links: SiteLinks, options: SiteOptions, job: int, option: int
) -> int:
    """Predicted price of what leaves a site."""
    usd = options.nano_usd_ms[option] * (jobs.predicted[job] // NS_PER_MS)
    if asked.data_at[job] != NOWHERE:
        usd += links.nano_usd_kb[asked.data_at[job], options.home[option]] * asked.data_kb[job]
    return int(usd)


@njit(inner=True, cache=True, nogil=True)
def _busy_ppm(state: Running, options: SiteOptions, by: Choosing, option: int) -> int:
    """Millionths of the GPUs in use, at the busiest site of a way."""
    most = 0
    for site in range(len(by.gpus)):
        if options.need[option, site]:
            most = max(most, (by.gpus[site] - state.free[site]) * 1_000_000 // by.gpus[site])
    return int(most)


@njit(inner=True, cache=True, nogil=True)
def _demand(
    jobs: Inputs, state: Running, asked: SiteJobs, options: SiteOptions, by: Choosing, job: int, option: int
) -> int:
    """Millionths of demand over supply at the busiest site of a way, in four classes: at one site or over
    several, with data that stay or move."""
    most, sites, data = 0, 0, asked.data_at[job]
    for site in range(len(by.gpus)):
        if options.need[option, site]:
            sites += 1
            demand = by.gpus[site] - state.free[site] + state.wanted[site] + options.need[option, site]
            if site == data:  # the job itself is among those that wait
                demand -= jobs.processors[job]
            most = max(most, demand * 1_000_000 // by.gpus[site])
    moves = data != NOWHERE and data != options.home[option] and asked.data_kb[job] > 0
    worse = 2 * int(sites > 1) + int(moves)
    return int(worse * MOST_DEMAND_PPM + min(most, MOST_DEMAND_PPM - 1))


@njit(inner=True, cache=True, nogil=True)
def _carbon(options: SiteOptions, by: Choosing, option: int, length: int, time: int) -> int:
    """Predicted seconds x GPUs x milligrams a kilowatt-hour, at the intensity of now."""
    now = np.searchsorted(by.carbon.at, time, side="right") - 1
    return int((options.need[option] * by.carbon.mg_kwh[now]).sum() * (length // NS_PER_S))


@njit(inner=True, cache=True, nogil=True)
def _scored(
    jobs: Inputs, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks, options: SiteOptions,
    by: Choosing, job: int, time: int,
) -> int:  # fmt: skip
    """The way with the highest score; -1 if its GPUs are not free, or those of no way are."""
    step, size, count, free = state.step[0], asked.size[job], 0, 0
    most = options.first[size + 1] - options.first[size]
    ways, lengths, now = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.bool_)
    for option in range(options.first[size], options.first[size + 1]):
        length = length_of(jobs, step, asked, links, options, job, option)
        if length != NOT_YET:
            ways[count], lengths[count] = option, length
            now[count] = fits(state.free, options.need[option])
            free += now[count]
            count += 1
    if not free:
        return -1
    if count == 1:
        return int(ways[0])
    rows = _features(
        jobs, pool, state, asked, links, options, by, job, time, ways[:count], lengths[:count], now
    )
    best, best_score = 0, -np.inf
    for i in range(count):
        score = forward(rows[i], by.widths, by.weights, by.hidden)
        if len(by.rows):
            score += gumbel(by.counts)
        if score > best_score:
            best, best_score = i, score
    if by.counts[ROWS] + count <= len(by.rows):
        _record(by, rows, best, job, time)
    return int(ways[best]) if now[best] else -1


@njit(inner=True, cache=True, nogil=True)
def _record(by: Choosing, rows: Float, best: int, job: int, time: int) -> None:
    """Keeps the rows of a choice, the chosen one first."""
    begin, taken = by.counts[ROWS], by.choices[by.counts[CHOICES]]
    by.rows[begin] = rows[best]
    by.rows[begin + 1 : begin + 1 + best] = rows[:best]
    by.rows[begin + 1 + best : begin + len(rows)] = rows[best + 1 :]
    taken[CHOICE_BEGIN], taken[CHOICE_COUNT] = begin, len(rows)
    taken[CHOICE_NS], taken[CHOICE_JOB] = time, job
    by.counts[ROWS] += len(rows)
    by.counts[CHOICES] += 1


@njit(inner=True, cache=True, nogil=True)
def _features(
    jobs: Inputs, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks, options: SiteOptions,
    by: Choosing, job: int, time: int, ways: Int, lengths: Int, now: NDArray[np.bool_],
) -> Float:  # fmt: skip
    """Features (ways, F) of a job on each way; `now`: whether its GPUs are free."""
    rows = np.zeros((len(ways), len(SITE_FEATURES)))
    for place, rule in enumerate(HINTS):
        best, best_major, best_minor = -1, 0, 0
        bound, data = bound_to_data(asked, options, rule, job), asked.data_at[job]
        for patient in range(2):
            for i, option in enumerate(ways):
                if (not now[i] and not patient) or (bound and options.home[option] != data):
                    continue
                major, minor = ranks(
                    jobs, state, asked, links, options, by, rule, job, option, lengths[i], time
                )
                if best < 0 or major < best_major or (major == best_major and minor < best_minor):
                    best, best_major, best_minor = i, major, minor
            if best >= 0:
                break
        if best >= 0:
            rows[best, place] = 1.0
    step = np.searchsorted(by.carbon.at, time, side="right") - 1
    shortest, machine = lengths.min(), by.gpus.sum()
    least = _carbon(options, by, ways[0], lengths[0], time)
    for i, option in enumerate(ways):
        least = min(least, _carbon(options, by, option, lengths[i], time))
    for i, option in enumerate(ways):
        row, home = rows[i], options.home[option]
        row[6] = 1.0 if now[i] else 0.0
        row[7] = math.log((lengths[i] / NS_PER_S + 1) / (shortest / NS_PER_S + 1))
        row[8] = math.log(1 + _nano_usd(jobs, asked, links, options, job, option) / 1e9)
        row[9] = math.log((_carbon(options, by, option, lengths[i], time) + 1) / (least + 1))
        row[10] = by.carbon.mg_kwh[step, home] / 1e6
        row[11] = _busy_ppm(state, options, by, option) / 1e6
        row[12] = state.free.sum() / machine
        row[13] = math.log(1 + jobs.predicted[job] / NS_PER_S) / 10
        row[14] = options.need[option].sum() / machine
        row[15] = math.log(1 + (time - jobs.submit[job]) / NS_PER_S) / 10
        row[16] = math.log(1.0 + pool.now[WAITING]) / 5
    return rows
