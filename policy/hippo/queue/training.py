"""Training of an order: imitation of the best heuristic, then steps until the time is over.

The jobs given are cut in two. Steps practise on windows of the first part; what is kept is the network that
does best on the second, the imitated heuristic among them, so that a training that finds nothing gives that
heuristic.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from ingest.core.progress import SILENT, Progress
from policy.hippo.queue.windows import PoolPart, Window, best_order, log_slowdowns, split, windows_of
from policy.queue.checkpoint import LearnedOrder
from policy.queue.registry import recipe
from twin.core.seeds import generator
from twin.queue.jobs import Float, Int
from twin.queue.recipe import JobScorer

Method = Literal["ppo", "evolution", "dd-ppo", "sla-morl"]
PRACTISED = 0.75
"""Share of the jobs to practise on; the others choose among the networks."""
EVERY = 5
"""Steps from one look at the second part to the next."""
WORSE = 1.05
"""A network whose 95th percentile of slowdowns or longest wait grows by more is not taken."""


class Learner(Protocol):
    """A scorer that improves step by step."""

    @property
    def scorer(self) -> JobScorer:
        """The network as it is."""
        ...

    def step(self, windows: list[Window], random: np.random.Generator) -> None:
        """Practises on some of the windows."""
        ...


@dataclass(frozen=True, slots=True)
class Tails:
    """A schedule of the second part: mean and 95th percentile of log slowdowns; longest wait, seconds."""

    mean: float
    p95: float
    longest_s: float

    def within(self, base: "Tails") -> bool:
        """Returns True if the tail is no longer than that of another schedule, up to `WORSE`."""
        return bool(self.p95 <= base.p95 + np.log(WORSE) and self.longest_s <= base.longest_s * WORSE + 1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Lets torch use one thread: networks so small gain nothing from more, and on a machine that is busy the
    others' waiting costs ten times the time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def train(
    parts: list[PoolPart], method: Method = "ppo", *, seed: int = 0, minutes: float = 5.0,
    steps: int | None = None, start: LearnedOrder | None = None, progress: Progress = SILENT,
    clock: Callable[[], float] = time.monotonic,
) -> LearnedOrder:  # fmt: skip
    """Returns the order learned from the jobs of some logs; after Ctrl-C the best one so far.

    With `steps` it takes so many, whatever the time. With `start` it goes on from those weights.

    Raises:
        UsageError: no part of the logs makes jobs wait.
    """
    began, random = clock(), generator(seed, f"queue {method}")
    cut = [split(part, PRACTISED) for part in parts]
    heuristic = best_order(parts) if start is None else str(start.provenance["heuristic"])
    windows = windows_of([first for first, _ in cut], recipe(f"{heuristic}+easy"))
    later = [second for _, second in cut]
    learner, agreed = _learner(method, windows, heuristic, seed, random, start)
    base = best = _tails(later, learner.scorer)
    kept, taken, finished = learner.scorer, 0, True
    progress.start(steps or round(minutes * 60), f"train {method}", "steps" if steps else "s")
    reported = 0
    try:
        while taken < steps if steps else clock() - began < minutes * 60:
            learner.step(windows, random)
            taken += 1
            if taken % EVERY == 0 or taken == steps:
                found = _tails(later, learner.scorer)
                if found.within(base) and found.mean < best.mean:
                    best, kept = found, learner.scorer
            done = taken if steps else int(clock() - began)
            progress.advance(
                done - reported, f"{1 - np.exp(best.mean - base.mean):.1%} below {heuristic}+easy"
            )
            reported = done
    except KeyboardInterrupt:
        finished = False
    provenance = {
        "method": method, "heuristic": heuristic, "seed": seed, "steps": taken, "finished": finished,
        "minutes": round((clock() - began) / 60, 3), "jobs": [len(part.jobs) for part in parts],
        "processors": [part.processors for part in parts], "agreement": round(agreed, 4),
        "validation": {
            "geometric_mean": float(np.exp(best.mean)), "imitated": float(np.exp(base.mean)),
        },
    }  # fmt: skip
    return LearnedOrder(kept, provenance)


def _learner(
    method: Method, windows: list[Window], heuristic: str, seed: int, random: np.random.Generator,
    start: LearnedOrder | None,
) -> tuple[Learner, float]:  # fmt: skip
    """Returns a learner at the heuristic, or where a training ended, and the share of choices that agree."""
    from policy.hippo.queue import network
    from policy.hippo.queue.dd_ppo import QueueDdPpo
    from policy.hippo.queue.evolution import Evolution
    from policy.hippo.queue.imitation import imitate
    from policy.hippo.queue.ppo import Ppo
    from policy.hippo.queue.sla_morl import QueueSlaMorl

    module = network.network(network.SMALL_WIDTHS if method == "evolution" else network.WIDTHS, seed)
    if start is None:
        agreed = imitate(module, windows, heuristic, random)
    else:
        network.restore(module, start.scorer.weights)
        agreed = float(start.provenance.get("agreement", 1.0))
    learner: Learner
    match method:
        case "ppo":
            learner = Ppo(module, seed)
        case "dd-ppo":
            learner = QueueDdPpo(module, seed)
        case "sla-morl":
            learner = QueueSlaMorl(module, seed, windows)
        case "evolution":
            learner = Evolution(network.scorer_of(module))
    return learner, agreed


def _tails(parts: list[PoolPart], scorer: JobScorer) -> Tails:
    """Returns the figures of a network on parts."""
    from policy.hippo.queue.rollout import starts

    played: list[tuple[PoolPart, Int]] = [(part, starts(part, scorer)) for part in parts]
    slowdowns: Float = np.concatenate([log_slowdowns(part, start_ns) for part, start_ns in played])
    waits = [
        float((start_ns - part.jobs.submit_ns).max()) / 1e9 for part, start_ns in played if len(start_ns)
    ]
    return Tails(float(slowdowns.mean()), float(np.percentile(slowdowns, 95)), max(waits))
