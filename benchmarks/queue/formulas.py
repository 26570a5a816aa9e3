"""Queueing theory beside the simulator: M/M/c, M/G/1, shortest first, and Little's law, with intervals."""

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.queue.published import table
from policy.queue.registry import recipe
from twin.queue import theory
from twin.queue.jobs import Float, QueueJobs
from twin.queue.metrics import jcts_s, makespan_s, mean_jobs_in_system, waits_s
from twin.queue.simulation import QueueSchedule, simulate

SEEDS, JOBS, WARM_UP = 20, 50_000, 5_000
MEAN_S = 100.0
T_95 = 2.093
"""Student's t of 19 degrees of freedom, two-sided 95 %."""
Draw = Callable[[np.random.Generator], Float]


def exponential(random: np.random.Generator) -> Float:
    """Service times of M/M/c."""
    return random.exponential(MEAN_S, JOBS)


def uniform(random: np.random.Generator) -> Float:
    """Service times between 0 and twice the mean."""
    return random.uniform(0.0, 2 * MEAN_S, JOBS)


def two_lengths(random: np.random.Generator) -> Float:
    """One job in ten lasts 550 s, the others 50 s."""
    return np.where(random.random(JOBS) < 0.1, 550.0, 50.0)


def played(interval_s: float, servers: int, draw: Draw, policy: str) -> Iterator[QueueSchedule]:
    """Yields independent runs of Poisson arrivals that know their service times."""
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        arrivals = random.exponential(interval_s, JOBS).cumsum()
        jobs = QueueJobs.of_seconds(arrivals, draw(random), np.ones(JOBS, np.int64))
        yield simulate(jobs, servers, recipe(policy))


def _row(
    queue: str, load: float, formula: float, interval_s: float, servers: int, draw: Draw, policy: str
) -> tuple[object, ...]:
    waits = [waits_s(done)[WARM_UP:].mean() for done in played(interval_s, servers, draw, policy)]
    mean, half = float(np.mean(waits)), T_95 * float(np.std(waits, ddof=1)) / SEEDS**0.5
    inside = "yes" if mean - half <= formula <= mean + half else "no"
    return queue, load, f"{formula:.2f}", f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]", inside


def waits() -> Iterator[tuple[object, ...]]:
    """Yields a row for each queue."""
    for servers, load in ((1, 0.5), (4, 0.7), (16, 0.8), (64, 0.9)):
        formula = theory.mmc_wait(servers, servers * load / MEAN_S, 1 / MEAN_S)
        yield _row(
            f"M/M/{servers}, Erlang C", load, formula, MEAN_S / (servers * load), servers, exponential, "fcfs"
        )
    for load in (0.3, 0.6, 0.8):
        formula = theory.mg1_wait(load / MEAN_S, MEAN_S, (2 * MEAN_S) ** 2 / 3)
        yield _row("M/G/1 uniform, Pollaczek-Khinchine", load, formula, MEAN_S / load, 1, uniform, "fcfs")
    lengths = np.array([550.0] + [50.0] * 9)
    for load in (0.3, 0.6, 0.8):
        formula = theory.mg1_wait(load / MEAN_S, MEAN_S, float((lengths**2).mean()))
        yield _row(
            "M/G/1 two lengths, Pollaczek-Khinchine", load, formula, MEAN_S / load, 1, two_lengths, "fcfs"
        )
        formula = theory.spt_wait(load / MEAN_S, lengths)
        yield _row("M/G/1 two lengths, shortest first", load, formula, MEAN_S / load, 1, two_lengths, "sjf")


def little() -> float:
    """Returns the largest relative difference of L and lambda W over runs of a queue of 4 servers."""
    found = []
    for done in played(MEAN_S / 2.8, 4, exponential, "sjf"):
        rate = len(done.jobs) / makespan_s(done)
        found.append(abs(mean_jobs_in_system(done) / (rate * float(jcts_s(done).mean())) - 1))
    return max(found)


def text() -> str:
    """Returns the section of the page."""
    heads = ("queue", "load", "mean wait by formula, s", "simulated, s", "formula inside")
    return f"""Poisson arrivals, mean service {MEAN_S:g} s, {SEEDS} runs of {JOBS:,} jobs without the first
{WARM_UP:,}, 95 % intervals over runs (Student); one in twenty leaves its formula out. Little's law,
L = lambda W, holds on each run to {little():.1e} of L (M/M/4, load 0.7, `sjf`).

{table(heads, waits())}"""
