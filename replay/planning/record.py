"""The recorded links that plans are judged by, with the cost models of the cluster and the job."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policy.control.long_run import samples_of, typical_links
from policy.core.objective import free_egress
from policy.core.protocol import Context
from twin.core.domain import LinkState
from twin.core.link_history import LinkHistory
from twin.core.seeds import generator
from twin.core.view import Forecast, View
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States
from twin.filters import long_run
from twin.filters.past_telemetry import TelemetryModel
from twin.scenario.prepare import Scenario, cost_models
from twin.settings.window import Part, known_share, split
from twin.traces import measured_links
from twin.traces.perturbation import altered
from twin.traces.time_range import TimeRange
from twin.world.telemetry import moved_links

SAMPLES = 480
"""Joint states of the links over which the figures of a listed plan are computed, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A scenario, its cost models, and its links at regular steps of a part of their record.

    `history` is None where one given link state stands for the record. `hours` is its length.
    """

    scenario: Scenario
    estimator: Estimator
    states: States
    history: LinkHistory | None
    dataset: str
    window: str
    hours: float
    note: str

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of each domain (K,)."""
        return tuple(domain.gpus for domain in self.estimator.cluster.domains)

    @property
    def relayed(self) -> bool:
        """True where relays are turned: money has no weight, and relayed egress is paid twice."""
        return free_egress(self.scenario.weights.vector)

    def sampled(self, count: int) -> States:
        """Returns at most `count` joint states, spread evenly over the record."""
        return _sampled(self, count)

    def before(self, count: int, lag_s: float) -> States:
        """Returns for each state of `sampled` the links by which the last decision was made `lag_s` seconds
        before it."""
        if self.history is None:
            return self.states
        lag = round(lag_s / self.history.step_s)
        chosen = decisions(self)[np.maximum(self.history.evenly(count) - lag, 0)]
        return States(self.history.bandwidth_bps[chosen], self.history.latency_s[chosen])

    @property
    def typical(self) -> LinkState:
        """Mean time per bit and mean latency of every link over the record."""
        return _typical(self)

    def context(self) -> Context:
        """Returns what a policy is reset with at the end of the record."""
        return Context(
            estimator=self.estimator,
            period_s=self.scenario.control.period_s,
            restart_s=self.scenario.moving.restart_s,
            weights=self.scenario.weights.vector,
            rng=generator(self.scenario.seed, "plan"),
            history=self.history,
        )


@lru_cache(maxsize=16)
def _sampled(record: Record, count: int) -> States:
    return record.states if record.history is None else samples_of(record.history, count)


@lru_cache(maxsize=4)
def _typical(record: Record) -> LinkState:
    return typical_links(record.states, np.ones(len(record.states)))


@lru_cache(maxsize=4)
def decisions(record: Record) -> NDArray[np.int64]:
    """Returns for each sample of the history (S,) that of the last decision: a controller decides every
    period, and when a link has moved by more than its threshold since (`twin.world.telemetry`)."""
    history, control = record.history, record.scenario.control
    assert history is not None, "decisions are those of a recorded past"
    found, last = np.zeros(len(history), dtype=np.int64), 0
    for n in range(1, len(history)):
        due = (n - last) * history.step_s >= control.period_s
        if due or moved_links(
            history.bandwidth_bps[last], history.bandwidth_bps[n], control.change_threshold
        ):
            last = n
        found[n] = last
    return found


def view_of(record: Record, links: LinkState) -> View:
    """Returns the view of a job that has not started under links that stay as they are."""
    size = record.estimator.cluster.size
    forecast = Forecast(np.zeros(1), links.bandwidth_bps[None], np.zeros((1, size, size)), links.latency_s)
    return View(0, "start", forecast, None, record.gpus, np.ones(size), float("inf"), 0.0)


def load(
    store: Path,
    scenario: Scenario,
    *,
    dataset: str | None = None,
    window: Part | TimeRange = "all",
    links: LinkState | None = None,
) -> Record:
    """Returns the record of a scenario's links in the lake, as they were measured: without the disturbances
    that a replay adds, but with permanent `link_changes`. `links` takes its place.

    Raises:
        NotFoundError: the lake lacks the data set. UsageError: the data set does not fit the scenario, or the
        window is not inside the series.
    """
    if dataset is not None:
        scenario = scenario.model_copy(update={"wan": scenario.wan.replaced(dataset)})
    estimator = cost_models(scenario, store)
    if links is not None:
        one = States.of([links])
        return Record(scenario, estimator, one, None, "given links", "one state", 0.0, "links as given")
    if isinstance(window, TimeRange):
        today = measured_links.load(store, scenario.wan, scenario.domains)
        window = window.of(today, 0, scenario.wan.stretch != 1)
    whole = measured_links.load(store, scenario.wan, scenario.domains, known_share(window))
    whole = altered(whole, [change for change in scenario.link_changes if change.at_s is None])
    begin_ns, end_ns = split(whole.end_ns, window)
    part = whole.window(begin_ns, end_ns)
    history = long_run.before(part, part.end_ns, TelemetryModel(scenario.telemetry.period_s))
    assert history is not None, "a window is longer than a period of telemetry"
    return Record(
        scenario, estimator, samples_of(history, SAMPLES), history, scenario.wan.title, str(window),
        (end_ns - begin_ns) / 3.6e12, whole.note,
    )  # fmt: skip
