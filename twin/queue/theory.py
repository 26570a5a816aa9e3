"""Formulas of queueing theory that the simulator is held to; times in one unit, rates in its inverse."""

from math import factorial

import numpy as np

from twin.queue.jobs import Float


def erlang_c(servers: int, offered: float) -> float:
    """Returns the probability that a job of M/M/c waits; `offered` load is arrival rate / service rate.

    Erlang's second formula, a^c / c! c / (c - a) over itself plus the sum of a^k / k! for k < c (Kleinrock,
    Queueing Systems 1, 1975, section 3.5). It has no factor 1 / mu.

    Raises:
        ValueError: the load is not below the number of servers: the queue grows for ever.
    """
    if not 0 <= offered < servers:
        raise ValueError(
            f"an offered load of {offered:g} on {servers} servers; it must be below their number"
        )
    queued = offered**servers / factorial(servers) * servers / (servers - offered)
    return queued / (sum(offered**k / factorial(k) for k in range(servers)) + queued)


def mmc_wait(servers: int, arrival_rate: float, service_rate: float) -> float:
    """Returns the mean wait of M/M/c: C(c, a) / (c mu - lambda)."""
    blocked = erlang_c(servers, arrival_rate / service_rate)
    return blocked / (servers * service_rate - arrival_rate)


def mg1_wait(arrival_rate: float, mean_service: float, mean_square_service: float) -> float:
    """Returns the mean wait of M/G/1: lambda E[S^2] / (2 (1 - rho)) (Pollaczek 1930, Khinchine 1932).

    Raises:
        ValueError: the load is not below 1.
    """
    load = arrival_rate * mean_service
    if not 0 <= load < 1:
        raise ValueError(f"a load of {load:g}; it must be below 1")
    return arrival_rate * mean_square_service / (2 * (1 - load))


def spt_wait(arrival_rate: float, services: Float) -> float:
    """Returns the mean wait of M/G/1 where the shortest job goes first and none is interrupted.

    `services`: equally likely service times (n,). With rho(x) the load of the jobs that are no longer than x,
    a job of length x waits lambda E[S^2] / (2 (1 - rho(x-)) (1 - rho(x))) (Phipps, Operations Research 1956;
    Cobham's priorities with one class a length).

    Raises:
        ValueError: the load is not below 1.
    """
    length, count = np.unique(services, return_counts=True)
    share = count / count.sum()
    upto = np.cumsum(arrival_rate * length * share)
    if not 0 <= upto[-1] < 1:
        raise ValueError(f"a load of {upto[-1]:g}; it must be below 1")
    residual = arrival_rate * float((length**2 * share).sum()) / 2
    below = np.concatenate(([0.0], upto[:-1]))
    return float((share * residual / ((1 - below) * (1 - upto))).sum())
