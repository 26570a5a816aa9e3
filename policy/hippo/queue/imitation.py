"""Imitation of an order: the network learns which of the jobs that could be chosen the heuristic would take.

The states are those that the network itself comes into, labelled by the heuristic (DAgger; Ross, Gordon and
Bagnell, AISTATS 2011).
"""

import numpy as np
import torch
from torch import nn

from policy.hippo.queue.network import log_probabilities, scorer_of
from policy.hippo.queue.rollout import QueueRollout, rollout
from policy.hippo.queue.windows import Window
from policy.queue.registry import recipe
from twin.queue.jobs import Float, Int
from twin.queue.recipe import OrderKeys

ROUNDS, PASSES, RATE, WINDOWS = 6, 30, 1e-2, 2
"""Rounds of play and learning, gradient steps of a round, step size, and windows that are played in each."""


def imitate(module: nn.Sequential, windows: list[Window], order: str, random: np.random.Generator) -> float:
    """Brings a network to the order of that name; returns the share of its choices that are the order's in
    the last round, before it learned from them."""
    optimiser, played, agreed = torch.optim.Adam(module.parameters(), lr=RATE), list[QueueRollout](), 0.0
    for turn in range(ROUNDS):
        fresh = [
            _labelled(windows[at], module, order, random)
            for at in random.integers(len(windows), size=WINDOWS)
        ]
        played = (played + fresh)[-2 * WINDOWS :]
        agreed = agreement(module, fresh)
        for group in optimiser.param_groups:
            group["lr"] = RATE * (1 - turn / ROUNDS)
        for _ in range(PASSES):
            one = played[int(random.integers(len(played)))]
            rows, begin = torch.from_numpy(one.rows), torch.from_numpy(one.begin)
            loss = -log_probabilities(module(rows)[:, 0], begin).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return agreed


def agreement(module: nn.Sequential, labelled: list[QueueRollout]) -> float:
    """Returns the share of choices in which the network scores the heuristic's job highest."""
    with torch.no_grad():
        firsts = [
            np.maximum.reduceat(logits, one.begin) == logits[one.begin]
            for one in labelled
            for logits in (module(torch.from_numpy(one.rows))[:, 0].numpy(),)
        ]
    return float(np.concatenate(firsts).mean())


def _labelled(window: Window, module: nn.Sequential, order: str, random: np.random.Generator) -> QueueRollout:
    """Returns choices of the network with the job first that the order would take."""
    found = rollout(window, scorer_of(module), int(random.integers(2**62)))
    jobs = window.part.jobs
    keys = recipe(order).keys(jobs, jobs.estimate_ns)
    lengths = np.diff(found.begin, append=len(found.rows))
    key = key_at(keys, jobs.submit_ns, found.job, np.repeat(found.time_ns, lengths))
    # per choice: lowest key, then lowest job, comes first
    choice = np.repeat(np.arange(len(lengths)), lengths)
    sorted_ = np.lexsort((found.job, key, choice))
    return QueueRollout(found.rows[sorted_], found.begin, found.job[sorted_], found.time_ns, found.reward)


def key_at(keys: OrderKeys, submit_ns: Int, job: Int, time_ns: Int) -> Float:
    """Returns the keys that an order has for jobs at times (e,)."""
    if not keys.power:
        return np.asarray(keys.static[job])
    aged = (time_ns - submit_ns[job]) / 1e9 / keys.scale[job]
    return np.asarray(-(aged**keys.power) * keys.factor[job])
