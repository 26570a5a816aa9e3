"""An order of the queue by a small network: one score a waiting job, the highest goes first.

The network is a multilayer perceptron with rectified linear units over `FEATURES` of a job at the moment of a
pass; all of them are known then. The `CANDIDATES` oldest waiting jobs are scored, younger ones come behind
them. Scores are logits: with a trail, standard Gumbel noise is added to each in each pass, so that every next
job is drawn from the softmax over those that could be chosen (Yellott, Journal of Mathematical Psychology
1977), and every choice between two jobs or more is recorded. Shared scorer and masked softmax as in
RLScheduler (Zhang et al., SC 2020); there the sample is the next job, here it is the order inside EASY.
"""

import math
from itertools import pairwise

import numpy as np

from ingest.core.compiled import njit
from ingest.core.units import NS_PER_S
from twin.queue.jobs import Float, Int, QueueJobs
from twin.queue.pool import FIRST, FREE, LATEST, SPARE, WAITING, Inputs, Pool, Scoring, unscored
from twin.queue.recipe import JobScorer

FEATURES = (
    "wait", "estimate", "size", "area", "history", "free share", "queue length", "time of day, sine",
    "time of day, cosine",
)  # fmt: skip
"""log(1 + seconds waited) / 10; log(1 + predicted seconds) / 10; log(1 + processors) over that of the
machine; log(1 + predicted processor-seconds) / 15; log of (1 s + run times) / (1 s + predictions) of the
user's last two jobs that have ended, / 5; free processors over all; log(1 + jobs waiting) / 5; time of day on
a circle."""
CANDIDATES = 128
"""Oldest waiting jobs that are scored."""
DAY_S = 86_400
MACHINE, SEED, ROWS, TABLE, ELIGIBLE, DECISIONS = range(6)
"""Places of `Scoring.counts`: processors of the machine; state of the generator; rows of the trail in use,
and those of them that a recorded decision refers to; eligible rows and decisions recorded."""
AT, COUNT, TIME, JOB, OVERTOOK = range(5)
"""Columns of a decision: its first eligible row, how many there are (the chosen one is the first), when it
was taken, the job chosen, and 1 if that job overtook the head."""


def weights_in(widths: tuple[int, ...]) -> int:
    """Returns the number of weights and biases of layers of these widths, inputs first."""
    return sum(below * above + above for below, above in pairwise(widths))


def trail_of(rows: int, seed: int) -> Scoring:
    """Returns an empty trail with room for so many rows of features; recording ends where it is full."""
    counts = np.zeros(6, np.int64)
    counts[SEED] = seed
    table, eligible = np.zeros((rows, len(FEATURES))), np.zeros(2 * rows, np.int64)
    decisions = np.zeros((rows, 5), np.int64)
    return unscored()._replace(
        counts=counts, rows=table, job=np.zeros(rows, np.int64), eligible=eligible, decisions=decisions
    )


def scoring_of(
    jobs: QueueJobs, predicted: Int, processors: int, scorer: JobScorer, users: int, trail: Scoring | None
) -> Scoring:
    """Returns the arrays of a scorer for these jobs; those of a trail are the ones given."""
    made = trail_of(0, 0) if trail is None else trail
    made.counts[MACHINE] = processors
    return made._replace(
        widths=np.array(scorer.widths), weights=scorer.weights,
        fixed=fixed_features(jobs, predicted, processors),
        history=np.zeros(users), last=np.zeros((users, 4), np.int64),
        hidden=np.zeros((2, max(scorer.widths))), features=np.zeros(len(FEATURES)),
        row=np.full(len(jobs), -1),
    )  # fmt: skip


def fixed_features(jobs: QueueJobs, predicted: Int, processors: int) -> Float:
    """Returns estimate, size and area of each job (n, 3), which no event changes."""
    seconds, size = predicted / NS_PER_S, jobs.processors
    columns = (
        np.log1p(seconds) / 10,
        np.log1p(size) / np.log1p(processors),
        np.log1p(seconds * size) / 15,
    )
    return np.ascontiguousarray(np.stack(columns, axis=1))


@njit(cache=True, nogil=True)
def remember(jobs: Inputs, own: Scoring, job: int) -> None:
    """Makes a job that has ended the last one of its user."""
    last, user = own.last, jobs.user[job]
    last[user, 0], last[user, 1] = last[user, 2], last[user, 3]
    last[user, 2], last[user, 3] = jobs.run[job], jobs.predicted[job]
    run_s = 1 + (last[user, 0] + last[user, 2]) / NS_PER_S
    predicted_s = 1 + (last[user, 1] + last[user, 3]) / NS_PER_S
    own.history[user] = math.log(run_s / predicted_s) / 5


@njit(cache=True, nogil=True)
def score(jobs: Inputs, pool: Pool, own: Scoring, time: int) -> None:
    """Makes the key of every waiting job minus its score, and infinite for those that are not scored."""
    now, queue = pool.now, pool.queue
    first, waiting, at, recorded = now[FIRST], now[WAITING], own.features, len(own.rows) > 0
    if not waiting:
        return
    last = _youngest(queue[first : first + waiting])
    at[5] = now[FREE] / own.counts[MACHINE]
    at[6] = math.log(1.0 + waiting) / 5
    angle = (time / NS_PER_S) % DAY_S / DAY_S * (2 * math.pi)
    at[7], at[8] = math.sin(angle), math.cos(angle)
    own.counts[ROWS] = own.counts[TABLE]
    for i in range(first, first + waiting):
        job = queue[i]
        own.row[job] = -1
        if job > last:
            pool.key[job] = np.inf
            continue
        at[0] = math.log(1.0 + (time - jobs.submit[job]) / NS_PER_S) / 10
        at[1], at[2], at[3] = own.fixed[job, 0], own.fixed[job, 1], own.fixed[job, 2]
        at[4] = own.history[jobs.user[job]]
        pool.key[job] = -forward(own.features, own.widths, own.weights, own.hidden)
        if recorded:
            pool.key[job] -= gumbel(own.counts)
            _write_row(own, job)


@njit(inner=True, cache=True, nogil=True)
def _youngest(waiting: Int) -> int:
    """Returns the youngest job that is scored; jobs are numbered by submission."""
    return int(waiting.max() if len(waiting) <= CANDIDATES else np.sort(waiting)[CANDIDATES - 1])


@njit(cache=True, nogil=True)
def forward(values: Float, widths: Int, weights: Float, hidden: Float) -> float:
    """Returns the score of the features; weights of a layer are (inputs, outputs), then its biases. `hidden`
    (2, widest layer) is room to work in."""
    used, layers = 0, len(widths) - 1
    for layer in range(layers):
        inputs, outputs = widths[layer], widths[layer + 1]
        out, biases = hidden[layer % 2], used + inputs * outputs
        for o in range(outputs):
            out[o] = weights[biases + o]
        for i in range(inputs):
            for o in range(outputs):
                out[o] += values[i] * weights[used + i * outputs + o]
        if layer < layers - 1:
            for o in range(outputs):
                out[o] = max(out[o], 0.0)
        values, used = out, biases + outputs
    return float(values[0])


@njit(inner=True, cache=True, nogil=True)
def gumbel(counts: Int) -> float:
    """Returns a draw of the standard Gumbel distribution (SplitMix64; Steele, Lea and Flood, OOPSLA 2014);
    the state of the generator is `counts[SEED]`."""
    counts[SEED] += -7046029254386353131  # 0x9E3779B97F4A7C15, as 64 bits with a sign
    z = np.uint64(counts[SEED])
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(-math.log(-math.log((float(z >> np.uint64(11)) + 0.5) / 2.0**53)))


@njit(inner=True, cache=True, nogil=True)
def _write_row(own: Scoring, job: int) -> None:
    """Keeps the features of a job for decisions of this pass, while there is room."""
    if own.counts[ROWS] < len(own.rows):
        own.row[job] = own.counts[ROWS]
        own.rows[own.counts[ROWS]], own.job[own.counts[ROWS]] = own.features, job
        own.counts[ROWS] += 1


@njit(cache=True, nogil=True)
def note(jobs: Inputs, pool: Pool, own: Scoring, job: int, time: int, overtakes: bool) -> None:
    """Records that a waiting job is chosen: as the head of the queue from all that are scored, or to overtake
    it from those that may."""
    now, counts, begin = pool.now, own.counts, own.counts[ELIGIBLE]
    if own.row[job] < 0 or counts[DECISIONS] == len(own.decisions):
        return
    if begin + now[WAITING] > len(own.eligible):
        return
    own.eligible[begin], count = own.row[job], 1
    for i in range(now[FIRST], now[FIRST] + now[WAITING]):
        other = pool.queue[i]
        size, end = jobs.processors[other], time + jobs.predicted[other]
        fits = size <= now[FREE] and (size <= now[SPARE] or end <= now[LATEST])
        if other != job and own.row[other] >= 0 and (fits or not overtakes):
            own.eligible[begin + count] = own.row[other]
            count += 1
    if count < 2:
        return
    taken = own.decisions[counts[DECISIONS]]
    taken[AT], taken[COUNT], taken[TIME], taken[JOB], taken[OVERTOOK] = begin, count, time, job, overtakes
    counts[DECISIONS] += 1
    counts[ELIGIBLE] += count
    counts[TABLE] = counts[ROWS]
