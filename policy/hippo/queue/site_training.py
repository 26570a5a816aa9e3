"""Training of a choice of sites: begun at the best rule exactly, then steps until they or the time are over.

The network scores each (job, way) pair (`twin/sites/choosing.py`); it begins as the rule of the part's best
heuristic, so that a training that finds nothing gives that rule. What is kept is the network that does best
on the last quarter of the jobs given, with tails no longer (`training.Tails`).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ingest.core.progress import SILENT, Progress
from policy.hippo.queue.rollout import QueueRollout, accrued
from policy.hippo.queue.site_windows import SitePart, SitePrices, SiteWindow, site_log_slowdowns, site_windows
from policy.hippo.queue.training import EVERY, PRACTISED, Tails, one_thread
from policy.placement.sites import GREENEST, SITE_CHOICES
from twin.core.seeds import generator
from twin.queue.jobs import LATEST_NS, Float, Int
from twin.queue.metrics import TAU_S
from twin.queue.recipe import JobScorer
from twin.sites.choosing import CHOICE_BEGIN, CHOICE_JOB, CHOICE_NS, CHOICES, HINTS, ROWS, SITE_FEATURES
from twin.sites.inputs import SITE_RULES, SiteChoice
from twin.sites.simulation import SiteSchedule

if TYPE_CHECKING:
    from torch import nn

SiteMethod = Literal["ppo", "evolution"]
SITE_ORDERS = tuple(f"{order}+easy" for order in ("fcfs", "sjf", "saf", "f1", "wfp3"))
"""Orders that a training may begin at, all inside EASY."""
SITE_WIDTHS = (len(SITE_FEATURES), 32, 16, 8, 1)
SMALL_SITE_WIDTHS = (len(SITE_FEATURES), 4, 1)
"""The control: 77 weights."""
SHARPNESS = 2.0
"""Logit of the way that the first rule takes; the other ways have 0."""
SITE_ROOM = 200_000
"""Rows of features that a window may record."""


def site_rules() -> tuple[SiteChoice, ...]:
    """Returns the rules to beat, at each of which a network can begin; `mast` is none of them: it looks at
    the data of those who wait, of which no feature tells."""
    return tuple(one for one in (*SITE_CHOICES.values(), GREENEST) if SITE_RULES.index(one.name) in HINTS)


@dataclass(frozen=True, eq=False)
class LearnedSites:
    """A network that chooses sites, the order it was trained in, and how it was made."""

    scorer: JobScorer
    order: str
    provenance: dict[str, Any]


def best_on_sites(
    part: SitePart, rules: tuple[SiteChoice, ...], orders: tuple[str, ...] = SITE_ORDERS
) -> tuple[str, SiteChoice]:
    """Returns the order and the rule with the least mean cost; prices are those of the first order."""
    prices = SitePrices.of(part, orders[0])
    found = {pair: float(prices.costs(part.play(*pair)).mean()) for pair in product(orders, rules)}
    return min(found, key=found.__getitem__)


def begun_at(widths: tuple[int, ...], rule: SiteChoice, seed: int) -> "nn.Sequential":
    """Returns a network that is a rule: one unit of each layer passes its feature on, the others have no way
    to the score yet."""
    import torch
    from torch import nn

    from policy.hippo.queue.network import network

    hint = HINTS.index(SITE_RULES.index(rule.name))
    module = network(widths, seed)
    layers = [layer for layer in module if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for place, layer in enumerate(layers):
            layer.weight[0] = 0.0
            layer.weight[0, hint if place == 0 else 0] = SHARPNESS if place == 0 else 1.0
            layer.bias[0] = 0.0
    return module


def site_rollout(window: SiteWindow, scorer: JobScorer, seed: int) -> QueueRollout:
    """Returns sampled choices in a window, with their rewards."""
    done, by = window.part.play_network(window.order, scorer, SITE_ROOM, seed)
    taken = by.choices[: by.counts[CHOICES]]
    rows, begin = by.rows[: by.counts[ROWS]], taken[:, CHOICE_BEGIN].copy()
    lengths = np.diff(np.append(begin, len(rows)))
    return QueueRollout(
        rows, begin, np.repeat(taken[:, CHOICE_JOB], lengths), taken[:, CHOICE_NS].copy(),
        site_rewards(window, done, taken[:, CHOICE_NS], taken[:, CHOICE_JOB]),
    )  # fmt: skip


def site_rewards(window: SiteWindow, own: SiteSchedule, time_ns: Int, job: Int) -> Float:
    """Returns the reward of each choice (k,): the heuristic's accrual of log slowdowns by waiting minus the
    own one until the next choice; and to the last choice for a job what its way cost less beyond waiting
    (a job that had none: to the last choice before its start)."""
    if not len(time_ns):
        return np.zeros(0)
    jobs, until, reward = own.jobs, np.append(time_ns, LATEST_NS), np.zeros(len(time_ns))
    least_s = np.maximum(jobs.run_ns / 1e9, TAU_S)
    at = np.maximum(np.searchsorted(time_ns, own.start_ns, side="right") - 1, 0)
    at[job] = np.arange(len(job))  # of several choices for one job the last stays
    for sign, done, cost in ((1, window.base, window.cost), (-1, own, window.prices.costs(own))):
        reward += sign * np.diff(accrued(jobs.submit_ns, jobs.run_ns, done.start_ns, until))
        waited_s = (done.start_ns - jobs.submit_ns + jobs.run_ns) / 1e9
        beyond = cost - np.log(np.maximum(1.0, waited_s / least_s))
        np.add.at(reward, at, sign * beyond)
    return reward


def site_gain(scorer: JobScorer, windows: list[SiteWindow]) -> float:
    """Returns how much less a job costs than under the heuristic, mean over windows."""
    return float(
        np.mean(
            [
                one.cost.mean() - one.prices.costs(one.part.play_network(one.order, scorer)[0]).mean()
                for one in windows
            ]
        )
    )


@one_thread()
def train_sites(
    part: SitePart, method: SiteMethod = "ppo", *, seed: int = 0, minutes: float = 5.0,
    steps: int | None = None, begun: tuple[str, SiteChoice] | None = None, progress: Progress = SILENT,
    clock: Callable[[], float] = time.monotonic,
) -> LearnedSites:  # fmt: skip
    """Returns the choice of sites learned from the jobs of a log; with `steps` it takes so many, whatever the
    time. `begun`: order and rule to begin at; None: the best of the part."""
    from policy.hippo.queue.evolution import Evolution
    from policy.hippo.queue.network import scorer_of
    from policy.hippo.queue.ppo import Ppo, PpoSettings

    began, random = clock(), generator(seed, f"sites {method}")
    order, rule = begun or best_on_sites(part, site_rules())
    first, later = part.split(PRACTISED)
    prices = SitePrices.of(part, order)
    windows = site_windows(first, order, rule, prices)
    module = begun_at(SITE_WIDTHS if method == "ppo" else SMALL_SITE_WIDTHS, rule, seed)
    learner: Ppo | Evolution
    if method == "ppo":
        learner = Ppo(module, seed, PpoSettings(windows=3, passes=2, rate=3e-3), site_rollout)
    else:
        learner = Evolution(scorer_of(module), site_gain)
    base = best = site_tails(later, order, prices, learner.scorer)
    kept, taken = learner.scorer, 0
    progress.start(steps or round(minutes * 60), f"train {method} over sites", "steps" if steps else "s")
    while taken < steps if steps else clock() - began < minutes * 60:
        learner.step(windows, random)
        taken += 1
        if taken % EVERY == 0 or taken == steps:
            found = site_tails(later, order, prices, learner.scorer)
            if found.within(base) and found.mean < best.mean:
                best, kept = found, learner.scorer
        progress.advance(1 if steps else 0, f"cost {best.mean - base.mean:+.3f} to {rule.name} in {order}")
    provenance = {
        "method": method, "order": order, "rule": rule.name, "seed": seed, "steps": taken,
        "minutes": round((clock() - began) / 60, 3), "jobs": len(part.jobs),
        "validation": {"cost": best.mean, "rule": base.mean},
    }  # fmt: skip
    return LearnedSites(kept, order, provenance)


def site_tails(part: SitePart, order: str, prices: SitePrices, scorer: JobScorer) -> Tails:
    """Returns mean cost, 95th percentile of log slowdowns and longest wait of a network on a part."""
    done, _ = part.play_network(order, scorer)
    longest_s = float((done.start_ns - done.jobs.submit_ns).max()) / 1e9
    return Tails(
        float(prices.costs(done).mean()), float(np.percentile(site_log_slowdowns(done), 95)), longest_s
    )
