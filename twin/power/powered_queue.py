"""One log under one recipe with the power of its site: what is asked of power, and who starts when."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from twin.power import capped_kernel
from twin.power.deferral import Deferral, SignalForecast, held_back, releases
from twin.power.limits import limits_at_meter
from twin.power.signals import Signal
from twin.power.site_power import PowerModel, SitePower, site_power
from twin.power.step_series import Int
from twin.queue import kernel
from twin.queue.jobs import Prediction, QueueJobs
from twin.queue.recipe import QueueRecipe
from twin.queue.rules import PREDICTSIM, QueueRules
from twin.queue.simulation import QueueSchedule, check

DeferBy = Literal["carbon", "price"]
Owner = Literal["user", "group"]
"""Whose accounts a ledger has."""


@dataclass(frozen=True, eq=False)
class PowerChoices:
    """Choices about power that a queue heeds: the model of its site, limits at the meter in watts,
    signals, and the one that jobs wait for, up to `longest_ns`. `owner`: whose accounts a kept run has.

    Raises:
        UsageError: jobs shall wait for a signal that is not given.
    """

    model: PowerModel
    cap_w: float | None = None
    rise_w: float | None = None
    window_s: float = 0.0
    carbon: Signal | None = None
    price: Signal | None = None
    defer: DeferBy | None = None
    longest_ns: int = 0
    forecast: SignalForecast = "yesterday"
    owner: Owner = "user"

    def __post_init__(self) -> None:
        if self.defer is not None and self.awaited is None:
            raise UsageError(f"--defer {self.defer} needs --{self.defer} ZONE, the signal that jobs wait for")

    @property
    def awaited(self) -> Signal | None:
        """The signal that jobs wait for."""
        return {"carbon": self.carbon, "price": self.price, None: None}[self.defer]

    @property
    def limited(self) -> bool:
        """True if the schedule can differ from that of the queue alone."""
        return self.cap_w is not None or self.rise_w is not None or self.defer is not None

    def unlimited(self) -> "PowerChoices":
        """Returns the same site and signals without limits and delays."""
        return replace(self, cap_w=None, rise_w=None, defer=None)


@dataclass(frozen=True, eq=False)
class PoweredSchedule:
    """A schedule whose waits count from the users' submissions, when each job was let into the queue (n,),
    and the power of the site."""

    schedule: QueueSchedule
    released_ns: Int
    power: SitePower


def simulate_with_power(
    jobs: QueueJobs, processors: int, recipe: QueueRecipe, choices: PowerChoices, *,
    prediction: Prediction = "estimate", rules: QueueRules = PREDICTSIM,
) -> PoweredSchedule:  # fmt: skip
    """Returns what a recipe makes of the jobs on a pool, under limits of power and with jobs that wait.

    Without limits and delays it is `twin.queue.simulation.simulate`. Orders that count waits count them from
    when a job is let into the queue.

    Raises:
        UsageError: the recipe cannot be played under these rules or limits.
    """
    check(jobs, processors, recipe, rules)
    played = jobs.cut_at_estimate() if rules.cuts else jobs
    released = played.submit_ns
    if choices.awaited is not None:
        released = releases(played, Deferral(choices.awaited, choices.longest_ns, choices.forecast))
    seen, order = held_back(played, released)
    start, backfilled = _played(seen, processors, recipe, choices, prediction, rules)
    start_ns, overtook = np.empty_like(start), np.empty_like(backfilled)
    start_ns[order], overtook[order] = start, backfilled
    done = QueueSchedule(played, processors, start_ns, overtook)
    return PoweredSchedule(done, released, site_power(done, choices.model))


def _played(
    jobs: QueueJobs, processors: int, recipe: QueueRecipe, choices: PowerChoices, prediction: Prediction,
    rules: QueueRules,
) -> tuple[Int, NDArray[np.bool_]]:  # fmt: skip
    """Returns starts and who overtook, of jobs as the queue sees them."""
    predicted = jobs.predicted_ns(prediction)
    keys = recipe.keys(jobs, predicted)
    if choices.cap_w is None and choices.rise_w is None:
        return kernel.play(jobs, predicted, processors, keys, recipe.backfill, rules)
    if choices.rise_w is not None and recipe.backfill == "conservative":
        raise UsageError(
            f"{recipe.name} promises starts, which a ramp limit can move: take another policy, as easy, or a "
            "power cap"
        )
    model = choices.model
    limits = limits_at_meter(model, processors, choices.cap_w, choices.rise_w, choices.window_s)
    job_mw = model.of_jobs(jobs)
    limits.check(jobs, job_mw)
    return capped_kernel.play(
        jobs, predicted, processors, keys, recipe.backfill, rules, job_mw, limits
    )  # fmt: skip
