"""Formulas of queueing theory that the simulator is held to; times in one unit, rates in its inverse."""

from math import factorial


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
